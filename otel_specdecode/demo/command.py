"""The demo from beginning to end."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

import otel_specdecode
from otel_specdecode.demo import files, terminal
from otel_specdecode.demo.capture import Capture
from otel_specdecode.demo.engines.interface import Engine, ModelChoice
from otel_specdecode.demo.export import Export
from otel_specdecode.demo.lineups import Lineup, Size, build
from otel_specdecode.demo.measures import verdicts
from otel_specdecode.demo.page import page
from otel_specdecode.demo.results import Report, Result
from otel_specdecode.demo.runs import count_of, measure, warm_up
from otel_specdecode.demo.sharing import claims
from otel_specdecode.telemetry.listener import recorder

_RECORD_SECONDS = 5.0


def run(engines: Sequence[Engine], model: ModelChoice, size: Size, out: Path) -> None:
    """Run the demo, print it and write its files.

    Args:
        engines: What runs the models, one after the other.
        model: Which models.
        size: How much to run.
        out: Folder for the files.

    Raises:
        DemoError: If it cannot go on.
    """
    files.check(out)
    console = terminal.make_console()
    export = Export()
    capture = Capture(export)
    otel_specdecode.instrument(
        tracer_provider=capture.tracer_provider,
        meter_provider=capture.meter_provider,
        logger_provider=capture.logger_provider,
    )
    try:
        with tempfile.TemporaryDirectory(prefix="otel-specdecode-demo-") as scratch:
            results = [
                result
                for engine in engines
                for result in _results(console, capture, engine, model, size, Path(scratch) / engine.name)
            ]
        report = Report(results, claims(results, capture.metric_names))
        terminal.show(console, report)
        files.write(out, _contents(capture, report))
    finally:
        otel_specdecode.uninstrument()
        recorder.drain(_RECORD_SECONDS)
        taken = export.finish(capture.tracer_provider, capture.meter_provider, capture.logger_provider)
    _tell_ending(console, out, export, taken)


def _results(
    console: Console, capture: Capture, engine: Engine, model: ModelChoice, size: Size, scratch: Path
) -> list[Result]:
    terminal.say(console, f"{engine.title}: loading the models ...")
    lineup = build(engine, model, size, scratch)
    results = [_result(console, capture, lineup, size)]
    if lineup.slower is not None and not results[0].pays and not results[0].undecided:
        terminal.say(console, "No draft was seen to pay here; once more with a padded, slower target ...")
        results.append(_result(console, capture, lineup.slower(), size))
    return results


def _result(console: Console, capture: Capture, lineup: Lineup, size: Size) -> Result:
    terminal.say(console, "Warming up ...")
    warm_up(lineup)
    with terminal.progress(console, "Requests", count_of(lineup)) as step:
        runs = measure(lineup, capture, step)
    return Result(lineup, runs, verdicts(lineup, runs, size.seed))


def _contents(capture: Capture, report: Report) -> dict[str, str]:
    names = {"traces": files.SPANS, "metrics": files.METRICS, "logs": files.LOGS}
    contents = {name: "".join(f"{line}\n" for line in capture.lines[signal]) for signal, name in names.items()}
    return {**contents, files.PAGE: page(report)}


def _tell_ending(console: Console, out: Path, export: Export, taken: bool) -> None:
    console.print()
    if export.endpoint is not None and taken:
        terminal.say(console, f"Exported to {export.endpoint} as well.")
    elif export.endpoint is not None:
        terminal.say(console, f"{export.endpoint} did not take everything; the files are complete.", "yellow")
    for name, what in (
        (files.PAGE, "the plots: open it in a browser"),
        (files.SPANS, "one span a request, as OTLP JSON"),
        (files.METRICS, "the metrics after each prompt, as OTLP JSON"),
        (files.LOGS, "the events, as OTLP JSON: what ran, and hazards where one was met"),
    ):
        terminal.say(console, f"{out / name}  {what}")
    terminal.say(console, "Next: in your own program, before the engine is called:")
    for line in ("import otel_specdecode", "otel_specdecode.configure()", "otel_specdecode.instrument()"):
        terminal.say(console, f"  {line}")
