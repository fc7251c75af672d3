"""The commands `otel-specdecode gate` and `otel-specdecode gates ...`. What needs an extra is imported by what runs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import click

from otel_specdecode.acceptance.ending import though_unprinted

PRESETS = ("interactive", "balanced", "batch")
STATUS = {"accepted": 0, "rejected": 1, "invalid": 3}
"""Exit status of each verdict; 2 is a wrong use."""

WRONG = 2
_EXTRA = {"msgspec", "numpy", "rich", "scipy"}


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--policy", type=click.Path(), help="The gates, as `gates init` writes them.")
@click.option("--preset", type=click.Choice(PRESETS), help="Gates that come with this package, instead of --policy.")
@click.option("--soak", type=click.Path(path_type=Path), help="The folder of a soak of the same manifest.")
@click.option("--arm", help="The arm to judge, such as k=4.  [default: the fastest]")
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the verdict here, too."
)
def gate(
    run: Path, policy: str | None, preset: Any, soak: Path | None, arm: str | None, json_file: Path | None
) -> None:
    """Hold a run against numeric gates, and say whether speculation may be rolled out.

    RUN is the folder of a sweep; its soak counts beside it. The exit status is 0 if the run is accepted, 1 if it is
    rejected, 3 if it is invalid (it says neither, as something was not measured), and 2 for a wrong use.
    """
    if (policy is None) == (preset is None):
        raise click.UsageError("say what to hold it against: --policy FILE, or --preset NAME")
    with _wrong_use():
        from otel_specdecode.acceptance.gates.policy_file import preset_policy, read_gates
        from otel_specdecode.acceptance.gates.terminal import print_verdict
        from otel_specdecode.acceptance.gates.verdict import as_dict, evaluate
        from otel_specdecode.acceptance.report.writing import write_all
        from otel_specdecode.acceptance.storage import read_run
        from otel_specdecode.demo.terminal import make_console

        gates = preset_policy(preset) if policy is None else read_gates(policy)
        verdict = evaluate(gates, read_run(run), None if soak is None else read_run(soak), now=time.time(), arm=arm)
        if json_file is not None:
            write_all({json_file: json.dumps(as_dict(verdict), indent=2, allow_nan=False) + "\n"})
    with though_unprinted():  # the verdict is the exit status, whoever reads the rest
        print_verdict(make_console(), verdict)
    sys.exit(STATUS[verdict.status])


@click.group()
def gates() -> None:
    """Make and check policies of gates, which a run is held against."""


@gates.command()
@click.option(
    "--preset", type=click.Choice(PRESETS), default="balanced", show_default=True, help="What it starts from."
)
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="A new file, not the screen.")
def init(preset: Any, output: Path | None) -> None:
    """Print a preset, with a comment for each gate."""
    with _wrong_use():
        from otel_specdecode.acceptance.gates.policy_text import preset_text

        text = preset_text(preset)
    if output is None:
        click.echo(text, nl=False)
        return
    if output.exists() or output.is_symlink():
        _wrong(f"{output} is there already: name another file")
    with _wrong_use():
        from otel_specdecode.acceptance.report.writing import write_all

        write_all({output: text})
    click.echo(f"Wrote {output}.", err=True)


@gates.command()
@click.argument("policy", type=click.Path())
def check(policy: str) -> None:
    """Say what a policy demands, or what is wrong with it and in which line.

    The exit status is 2 if it cannot be used. What is wrong goes to the standard error, a line each, as FILE:LINE:
    message.
    """
    with _wrong_use():
        from otel_specdecode.acceptance.gates.policy_file import read_gates
        from otel_specdecode.acceptance.gates.terminal import print_policy
        from otel_specdecode.demo.terminal import make_console

        read = read_gates(policy)
    with though_unprinted():
        click.echo(f"ok {read.digest}")
        print_policy(make_console(), read)


@contextmanager
def _wrong_use() -> Iterator[None]:
    """End with a sentence, and the status of a wrong use, where something has to be changed or an extra is missing."""
    try:
        from otel_specdecode.acceptance.errors import AcceptanceError
        from otel_specdecode.guard.toml_file import PolicyError

        try:
            yield
        except PolicyError as error:
            click.echo(error, err=True)
            sys.exit(WRONG)
        except AcceptanceError as error:
            _wrong(str(error))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in _EXTRA:
            _wrong('needs the extra [acceptance]: pip install "otel-specdecode[acceptance]"')
        raise


class _WrongUse(click.ClickException):
    exit_code = WRONG


def _wrong(text: str) -> NoReturn:
    raise _WrongUse(text) from None
