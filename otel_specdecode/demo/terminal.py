"""The demo on a terminal, in a pipe and in a log file: the same words in all three."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from otel_specdecode.demo import results
from otel_specdecode.demo.engines.interface import Mode
from otel_specdecode.demo.fields import Field, rows
from otel_specdecode.demo.measures import Verdict, of_mode
from otel_specdecode.demo.results import Report, Result

_PIPE_WIDTH = 250
"""Columns where nobody set a width: enough that no table is cut."""

_STYLES = {"pays": "bold green", "hurts": "bold red"}


def make_console() -> Console:
    """Return a console that wraps at the terminal's width, and not at all elsewhere."""
    return Console(highlight=False, width=None if sys.stdout and sys.stdout.isatty() else _PIPE_WIDTH)


def say(console: Console, text: str, style: str = "") -> None:
    """Print one sentence; where there is no terminal, as one line."""
    console.print(text, style=style or None, markup=False, soft_wrap=not console.is_terminal)


@contextmanager
def progress(console: Console, title: str, steps: int) -> Iterator[Callable[[], None]]:
    """Show how far it is: a bar on a terminal, a line each quarter elsewhere.

    Yields:
        A function to call after each step.
    """
    if console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console) as bar:
            task = bar.add_task(title, total=steps)
            yield lambda: bar.advance(task)
        return
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        if done * 4 // steps > (done - 1) * 4 // steps:
            say(console, f"{title}: {done} of {steps}")

    yield step


def show(console: Console, report: Report) -> None:
    """Print a section for each engine, then all fields side by side, and what to know about them."""
    for result in report.results:
        _show_result(console, result)
    say(console, results.HOW_TO_READ)
    console.print()
    _print_whole(console, _field_tables(console, report.results))
    for note in results.field_notes(report):
        say(console, note)
    say(console, results.ECONOMICS, "italic")


def _show_result(console: Console, result: Result) -> None:
    note = results.padding_note(result)
    console.print()
    say(console, result.heading, "bold")
    if note:
        say(console, note, "bold yellow")
    _print_whole(console, [_verdict_table(result)])
    say(console, f"target: {result.lineup.about}.")
    for mode in result.lineup.modes:
        say(console, f"{mode.name}: {mode.about}.")
    for told in (results.interval_note(result), results.parted_note(result), results.method_note(result)):
        say(console, told)
    console.print()


def _verdict_table(result: Result) -> Table:
    table = _table(padding=0)
    for heading in ("draft", "verdict"):
        table.add_column(heading, no_wrap=True)
    for heading in ("speed-up\n(interval)", "accept\nrate", "acceptance\nlength", "break-even\nratio"):
        table.add_column(heading, justify="right", no_wrap=True)
    for verdict in result.verdicts:
        table.add_row(*_verdict_cells(verdict))
    return table


def _verdict_cells(verdict: Verdict) -> tuple[str, ...]:
    style = _STYLES.get(verdict.word)
    word = f"[{style}]{verdict.word}[/]" if style else verdict.word
    return (
        verdict.mode.name,
        word,
        f"{results.factor(None if verdict.speed_up is None else verdict.speed_up.ratio)} ({results.interval(verdict)})",
        results.plain(verdict.accept_rate),
        results.plain(verdict.acceptance_length),
        results.plain(verdict.break_even),
    )


def _field_tables(console: Console, shown: Sequence[Result]) -> list[Table]:
    """Return all modes side by side, in several parts where the terminal is too narrow for all of them at once."""
    fields = rows()
    tables = [_field_table(fields, [(result, result.lineup.modes) for result in shown])]
    if _fit(console, tables):
        return tables
    return [table for result in shown for table in _parts(console, fields, result)]


def _parts(console: Console, fields: Sequence[Field], result: Result) -> list[Table]:
    """Return one result's modes in as few tables as fit, each with the baseline."""
    baseline, drafts = result.lineup.baseline, result.lineup.drafts
    for size in range(len(drafts), 0, -1):
        parts = [drafts[start : start + size] for start in range(0, len(drafts), size)]
        tables = [_field_table(fields, [(result, (baseline, *part))]) for part in parts]
        if _fit(console, tables):
            break
    return tables


def _field_table(fields: Sequence[Field], columns: Sequence[tuple[Result, Sequence[Mode]]]) -> Table:
    """Return a table of fields; above the modes of a result stands its heading."""
    table = _table(padding=1)
    for heading in ("\nfield", "\nunit"):
        table.add_column(heading, no_wrap=True)
    runs = []
    for result, modes in columns:
        for number, mode in enumerate(modes):
            table.add_column(f"{'' if number else result.heading}\n{mode.name}", justify="right", no_wrap=True)
            runs.append(of_mode(result.runs, mode.name))
    for field in fields:
        table.add_row(field.name, field.unit, *(field.show(each) for each in runs))
    return table


def _fit(console: Console, tables: Sequence[Table]) -> bool:
    return all(_width(console, table) <= console.width for table in tables)


def _table(padding: int) -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, padding, 0, 0), header_style="bold")


def _width(console: Console, table: Table) -> int:
    return console.measure(table, options=console.options.update_width(_PIPE_WIDTH)).maximum


def _print_whole(console: Console, tables: Sequence[Table]) -> None:
    """Print tables at their own width: a terminal that is narrower wraps lines, but no word is cut."""
    for table in tables:
        wide = Console(highlight=False, width=max(console.width, _width(console, table)))
        wide.print(table)
