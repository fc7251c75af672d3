"""The commands `report` and `compare`. What needs more than click is imported when a command runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from otel_specdecode.acceptance.ending import told
from otel_specdecode.acceptance.gates_commands import PRESETS
from otel_specdecode.acceptance.words import Finite

_FOLDER = click.Path(path_type=Path)
_FILE = click.Path(path_type=Path)


_AMOUNT = Finite(min=0, min_open=True)


@click.command()
@click.argument("run", type=_FOLDER)
@click.option("--soak", type=_FOLDER, help="Folder of a soak that belongs to it.")
@click.option("--policy", type=_FILE, help="File of the gates.  [default: a preset]")
@click.option("--preset", type=click.Choice(PRESETS), help="The gates, without a file of them.  [default: balanced]")
@click.option("--arm", help="The arm to judge, such as k=4.  [default: the fastest]")
@click.option("-o", "--output", type=_FILE, default=Path("report.html"), show_default=True, help="The page.")
@click.option("--json", "json_file", type=_FILE, help="Also write everything as JSON.")
@click.option("--csv", "csv_file", type=_FILE, help="Also write a row for each arm, tier and kind.")
@click.option("--markdown", "markdown_file", type=_FILE, help="Also write the headline, the gates and a table.")
@click.option("--badge", "badge_file", type=_FILE, help="Also write a badge as SVG.")
@click.option("--hourly-rate", type=_AMOUNT, help="What an hour of this machine costs, in any currency.")
@click.option("--rented-rate", type=_AMOUNT, help="What an hour of a rented machine costs.")
@click.option("--rented-tokens-per-second", type=_AMOUNT, help="Tokens a second that the rented one emits.")
def report(
    run: Path,
    soak: Path | None,
    policy: Path | None,
    preset: Any,
    arm: str | None,
    output: Path,
    json_file: Path | None,
    csv_file: Path | None,
    markdown_file: Path | None,
    badge_file: Path | None,
    hourly_rate: float | None,
    rented_rate: float | None,
    rented_tokens_per_second: float | None,
) -> None:
    """Make a page of the run in folder RUN that people can look at and sign.

    The files that are named are replaced if they are there: a report can always be made again from its run. All of them
    are written, or none.
    """
    if (rented_rate is None) != (rented_tokens_per_second is None):
        raise click.UsageError("--rented-rate and --rented-tokens-per-second are given together")
    if policy is not None and preset is not None:
        raise click.UsageError("--policy and --preset are two ways to name the gates: give one")
    with told():
        from otel_specdecode.acceptance.report.cost import Rates
        from otel_specdecode.acceptance.report.making import PRESET, files, made
        from otel_specdecode.demo.terminal import make_console, say

        rates = Rates(hourly_rate, rented_rate, rented_tokens_per_second)
        found = made(run, soak, policy, preset or PRESET, now=time.time(), arm=arm, rates=rates)
        written = files(
            found,
            {"html": output, "json": json_file, "csv": csv_file, "markdown": markdown_file, "badge": badge_file},
            tuple(filter(None, (run, soak))),
        )
        console = make_console()
    if found.verdict is not None:
        say(console, found.verdict.reason, "bold")
    if found.headline.text is None:
        click.echo(f"no headline: missing {', '.join(found.headline.missing)}", err=True)
    else:
        say(console, found.headline.text)
    click.echo(f"Wrote {', '.join(map(str, written))}.", err=True)


@click.command()
@click.argument("one", type=_FOLDER)
@click.argument("other", type=_FOLDER)
@click.option("--anyway", is_flag=True, help="Compare runs of different manifests; what differs is named.")
@click.option("--across-engines", is_flag=True, help="Hold MLX against llama.cpp on the same weights.")
@click.option("--json", "json_file", type=_FILE, help="Also write it as JSON.")
@click.option("--markdown", "markdown_file", type=_FILE, help="Also write it as Markdown.")
def compare(
    one: Path, other: Path, anyway: bool, across_engines: bool, json_file: Path | None, markdown_file: Path | None
) -> None:
    """Hold the run in folder OTHER against the one in ONE, arm by arm, over the prompts that both had.

    Two machines differ in their manifest too, in the part `machine`: that takes --anyway, and is named. The files that
    are named are replaced if they are there.
    """
    with told():
        from otel_specdecode.acceptance.report import compared
        from otel_specdecode.acceptance.report.compare import compare as held
        from otel_specdecode.acceptance.report.writing import write_all
        from otel_specdecode.acceptance.storage import read_run
        from otel_specdecode.demo.terminal import make_console

        found = held(read_run(one), read_run(other), anyway=anyway, across_engines=across_engines)
        contents = {json_file: compared.as_json, markdown_file: compared.as_markdown}
        write_all({path: make(found) for path, make in contents.items() if path is not None})
        compared.show(found, make_console())
