"""The commands `otel-specdecode guard ...`. What needs more than click is imported when a command runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from otel_specdecode.guard.log_command import log

if TYPE_CHECKING:
    from otel_specdecode.guard.policy_file import PolicyFile


@click.group()
def guard() -> None:
    """Make and check policies of the guard, which switches speculation off where it does not pay."""


guard.add_command(log)


@contextmanager
def _told_what_is_missing() -> Iterator[None]:
    """Fail with what to install where a package of the extra is not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name in ("msgspec", "rich"):
            extra = "guard" if error.name == "msgspec" else "cli"
            raise click.ClickException(f'needs the extra [{extra}]: pip install "otel-specdecode[{extra}]"') from error
        raise


@guard.command()
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="A new file, instead of the screen.")
@click.option("--force", is_flag=True, help="Replace the file if it is there.")
def init(output: Path | None, force: bool) -> None:
    """Print the default policy, with a comment for each key."""
    if force and output is None:
        raise click.UsageError("--force says that the file of --output may be replaced")
    with _told_what_is_missing():
        from otel_specdecode.guard.policy_text import default_policy_text

        text = default_policy_text()
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        _write(output, text, force=force)
    except FileExistsError:
        raise click.ClickException(f"{output} is there already: name another file, or say --force") from None
    except OSError as error:
        raise click.ClickException(f"{output} cannot be written: {error.strerror}") from None
    click.echo(f"Wrote {output}.", err=True)


def _write(path: Path, text: str, *, force: bool) -> None:
    """Write a file whole or not at all: a guard may be about to read it."""
    if not force:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
        return
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_text(text, encoding="utf-8")
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


@guard.command()
@click.argument("policy", type=click.Path())
def check(policy: str) -> None:
    """Say what a policy does, or what is wrong with it and in which line.

    The exit status is 1 if it cannot be used. What is wrong goes to the standard error, a line each, as FILE:LINE:
    message.
    """
    with _told_what_is_missing():
        from otel_specdecode.guard.baseline_file import BaselineError, read_baseline
        from otel_specdecode.guard.policy_file import read_policy
        from otel_specdecode.guard.toml_file import PolicyError

        try:
            read = read_policy(policy)
            if read.baseline_file is not None:
                read_baseline(read.baseline_file)
        except (PolicyError, BaselineError) as error:
            click.echo(error, err=True)
            sys.exit(1)
        _summarise(read)


def _summarise(read: PolicyFile) -> None:
    from rich.console import Console

    from otel_specdecode.guard.policy_summary import facts, rules

    click.echo(f"ok {read.policy.digest}")
    console = Console(highlight=False)
    console.print(facts(read))
    console.print(rules(read.policy))
