"""Runs on a terminal, in a pipe and in a log file: the same words in all three."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from otel_specdecode.acceptance.endurance import Endurance, endurance
from otel_specdecode.acceptance.figures import arm_figures, speed_up
from otel_specdecode.acceptance.knee import knee, knees, told_by_level
from otel_specdecode.acceptance.records import Run
from otel_specdecode.acceptance.statistics import Estimate
from otel_specdecode.acceptance.storage import read_run
from otel_specdecode.demo.terminal import make_console, say

NOT_MEASURED = "-"

Step = Callable[[float, float], None]


@contextmanager
def progress(title: str) -> Iterator[Step]:
    """Show how far a run is, and how long it may still take: a bar on a terminal, a line each tenth elsewhere.

    Yields:
        A function to call with how much is done, and how much there is.
    """
    console = make_console()
    if console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        with Progress(*columns, TimeRemainingColumn(), TextColumn("left"), console=console) as bar:
            task = bar.add_task(title, total=None)
            yield lambda done, total: bar.update(task, completed=min(done, total), total=total)
        return
    shown = 0

    def step(done: float, total: float) -> None:
        nonlocal shown
        tenths = int(done * 10 / total) if total else 0
        if tenths > shown:
            shown = tenths
            # A reader that went away, as `head` does, or a full disk does not end the run; Rich ends the process from
            # 13.8 on.
            with suppress(OSError, SystemExit):
                say(console, f"{title}: {done:.0f} of {total:.0f}")

    yield step


def show_run(folder: Path) -> None:
    """Print what a run came to, and what to do with it."""
    console, run = make_console(), read_run(folder)
    console.print(_table(run))
    for note in run.notes:
        if note.what in ("branch_stopped", "tuning_stopped"):
            say(console, f"{note.what.replace('_', ' ').capitalize()}: {note.why}.")
    if any(arm.speculative for arm in run.head.arms) and any(not arm.speculative for arm in run.head.arms):
        best = knee(run)
        for sentence in (best.why, *told_by_level(best, knees(run))):
            say(console, sentence, "bold")
    for sentence in endurance_told(run):
        say(console, sentence)
    for fault in run.faults:
        say(console, f"Could not be read: {fault}", "yellow")
    quoted = shlex.quote(str(folder))
    say(console, f"Next: otel-specdecode report {quoted} -o report.html")
    say(console, "      otel-specdecode gates init -o gates.toml")
    say(console, f"      otel-specdecode gate {quoted} --policy gates.toml")


def endurance_told(run: Run) -> list[str]:
    """Return what a soak says of memory and speed over time, a sentence each; nothing of a sweep."""
    if run.head.kind != "soak":
        return []
    found = [found for arm in run.head.arms if (found := endurance(run, arm)) is not None]
    return [sentence for each in found for sentence in (_memory_told(each), _slowing_told(each))]


def _memory_told(found: Endurance) -> str:
    trend = found.memory
    words = {"yes": "grows", "no": "does not grow", "too short to tell": "was watched too briefly to tell"}
    rate = trend.per_hour
    told = (
        ""
        if rate is None
        else f", by {_mebibytes(rate.value)} [{_mebibytes(rate.low)}, {_mebibytes(rate.high)}] MiB an hour"
    )
    return f"{found.arm.name}: {trend.of} {words[found.grows]}{told}."


def _slowing_told(found: Endurance) -> str:
    words = {"yes": "slows down", "no": "does not slow down", "too short to tell": "was watched too briefly to tell"}
    trend = found.slowing
    span = f"{found.seconds / 60:.0f} min" if found.seconds >= 120 else f"{found.seconds:.0f} s"
    rise = "" if trend.rose is None else f"; time per token changed by {trend.rose:+.1%} over {span}"
    heat = (
        "heat is not known" if found.throttled_seconds is None else f"{found.throttled_seconds:.0f} s throttled by heat"
    )
    return f"{found.arm.name}: the machine {words[found.throttles]}{rise}; {heat}."


def _mebibytes(value: float | None) -> str:
    return NOT_MEASURED if value is None else f"{value / 2**20:+.1f}"


def _table(run: Run) -> Table:
    table = Table(title=f"Run {run.head.run_id}", title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name in (
        "arm",
        "requests",
        "tok/s",
        "speed-up",
        "accept rate",
        "TTFT p50, ms",
        "round p95, ms",
        "peak RSS, MiB",
    ):
        table.add_column(name, justify="left" if name == "arm" else "right", no_wrap=name in ("requests", "speed-up"))
    for arm in run.head.arms:
        found = arm_figures(run, arm)
        if not found.requests and not found.failed:
            continue
        table.add_row(
            escape(arm.name),
            f"{found.requests}" + (f" (+{found.failed} failed)" if found.failed else ""),
            _number(found.tokens_per_second, 1),
            _number(speed_up(run, arm), 1, 2, interval=True) if arm.speculative else NOT_MEASURED,
            _number(found.accept_rate, 1, 2),
            _number(found.time_to_first_token_p50, 1000),
            _number(found.round_p95, 1000),
            NOT_MEASURED if found.peak_rss is None else f"{found.peak_rss / 2**20:.0f}",
        )
    return table


def _number(estimate: Estimate | None, factor: float, digits: int = 1, *, interval: bool = False) -> str:
    if estimate is None:
        return NOT_MEASURED
    text = f"{estimate.value * factor:.{digits}f}"
    if not interval or estimate.low is None or estimate.high is None:
        return text
    return f"{text} \\[{estimate.low * factor:.{digits}f}, {estimate.high * factor:.{digits}f}]"
