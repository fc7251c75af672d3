"""The commands `otel-specdecode prompts ...`. What needs more than click is imported when a command runs."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from otel_specdecode.acceptance.ending import told

if TYPE_CHECKING:
    from otel_specdecode.acceptance.prompts import Prompt

_FILES = click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path())
_OUTPUT = click.option("-o", "--output", metavar="OUT", required=True, type=click.Path(), help="The file to write.")
_FORCE = click.option("--force", is_flag=True, help="Replace the file if it is there.")


@click.group()
def prompts() -> None:
    """Check, make and convert prompt files for sweeps and soaks."""


@contextmanager
def _every_line_told() -> Iterator[None]:
    """End with all that is wrong in files, each on a line of its own, as an editor understands them."""
    with told():
        from otel_specdecode.acceptance.prompt_files import PromptError

        try:
            yield
        except PromptError as error:
            click.echo(error, err=True)
            sys.exit(1)


@prompts.command()
@_FILES
def check(files: tuple[str, ...]) -> None:
    """Say what is in prompt files, or what is wrong with them and in which lines.

    The exit status is 1 if they cannot be used. What is wrong goes to the standard error, a line each, as FILE:LINE:
    message.
    """
    with _every_line_told():
        from otel_specdecode.acceptance.prompt_files import prompts_digest, read_prompts

        read = read_prompts(files)
        click.echo(f"ok {prompts_digest(read)}")
        _summarise(read)


@prompts.command("from-text")
@click.argument("file", type=click.Path())
@_OUTPUT
@click.option("--paragraphs", is_flag=True, help="A prompt ends at a blank line.  [default: at the end of its line]")
@click.option("--chat", is_flag=True, help="Make each the user's turn of a chat.  [default: text as it is]")
@click.option(
    "--kind",
    type=click.Choice(["code", "summary", "translation", "json_tool", "other"]),
    default="other",
    show_default=True,
    help="What the prompts ask for.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(1, 131_072),
    default=256,
    show_default=True,
    help="The most tokens of an answer.",
)
@_FORCE
def from_text(file: str, output: str, paragraphs: bool, chat: bool, kind: str, max_tokens: int, force: bool) -> None:
    """Make a prompt file out of a plain text file: one prompt a line, or one a paragraph.

    Tiers are estimates; edit the file to give checks and weights.
    """
    with _every_line_told():
        from typing import cast

        from otel_specdecode.acceptance.plain_text import prompts_of_text
        from otel_specdecode.acceptance.records import Kind

        made = prompts_of_text(file, paragraphs=paragraphs, chat=chat, kind=cast("Kind", kind), max_tokens=max_tokens)
        _write(output, made, [file], force=force)


@prompts.command("from-spans")
@_FILES
@_OUTPUT
@click.option(
    "--bins", type=click.IntRange(2, 1000), default=24, show_default=True, help="The most prompts there may be."
)
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Seed of the texts.")
@_FORCE
def from_spans(files: tuple[str, ...], output: str, bins: int, seed: int, force: bool) -> None:
    """Make a prompt file with the lengths that requests had, out of exported spans (OTLP JSON lines).

    Only how long prompts and answers were is read; the texts are made up. Requests of cohort normal that ended without
    an error count.
    """
    with _every_line_told():
        from otel_specdecode.acceptance.from_spans import prompts_of_spans

        _write(output, prompts_of_spans(files, bins=bins, seed=seed), files, force=force)


@prompts.command("show-mix")
@click.argument("name")
@click.option("-o", "--output", metavar="OUT", type=click.Path(), help="A file to write, instead of the screen.")
@_FORCE
def show_mix(name: str, output: str | None, force: bool) -> None:
    """Write out a mix that comes with the package, to read or to start from: `default`, `checked` or `tiny`."""
    if force and output is None:
        raise click.UsageError("--force says that the file of --output may be replaced")
    with _every_line_told():
        from otel_specdecode.acceptance.mix import bundled
        from otel_specdecode.acceptance.prompt_files import prompt_lines

        mix = bundled(name)
        if output is None:
            click.echo(prompt_lines(mix), nl=False)
        else:
            _write(output, mix, (), force=force)


def _write(output: str, made: Sequence[Prompt], sources: Sequence[str], *, force: bool) -> None:
    from otel_specdecode.acceptance.prompt_files import write_prompts

    if os.path.realpath(output) in map(os.path.realpath, sources):
        raise click.ClickException(f"{output} is what is read: name another file")
    write_prompts(output, made, force=force)
    click.echo(f"Wrote {output}.", err=True)
    _summarise(made)


def _summarise(read: Sequence[Prompt]) -> None:
    """Print how many prompts there are, and of what."""
    checks = sum(prompt.check is not None for prompt in read)
    click.echo(f"{len(read)} prompts, {checks} with a check")
    for what, counts in (
        ("tier", Counter[str](prompt.tier for prompt in read)),
        ("kind", Counter[str](prompt.kind for prompt in read)),
    ):
        click.echo(f"{what}: " + ", ".join(f"{name} {count}" for name, count in counts.most_common()))
