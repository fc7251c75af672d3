"""A report on a terminal, in a pipe and in a log file: the same words in all three."""

from __future__ import annotations

import io
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import groupby

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from otel_specdecode.doctor.checks import Check, Report, Section

_STYLES = {"ok": "green", "warn": "yellow", "error": "bold red", "unknown": "dim"}
_NARROW = 60  # columns, below which three of them side by side leave no room

Change = Callable[[str], str]


def rendered(report: Report, change: Change = str) -> str:
    """Return a table for each section, and last how many checks found what, as the standard output can show it.

    Args:
        report: What was found.
        change: What becomes of every text before it is shown.
    """
    console = _beside(Console(file=sys.stdout))
    for section in report.sections:
        console.print()
        console.print(Text(section.title, style="bold"))
        if console.width < _NARROW:
            for each in _stacked(section, change):
                console.print(each, overflow="fold")
        else:
            console.print(_table(section, change))
    console.print()
    console.print(_summary(report), overflow="fold")
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def _beside(shown: Console) -> Console:
    """Return a console like another one that writes into memory: rich cannot cope with an output that fails."""
    return Console(
        highlight=False,
        file=io.StringIO(),
        width=shown.width,
        force_terminal=shown.is_terminal,
        color_system=shown.color_system,  # type: ignore[arg-type]
        no_color=shown.no_color,
    )


def _table(section: Section, change: Change) -> Table:
    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True, min_width=7)
    table.add_column(max_width=24, overflow="fold")
    table.add_column(overflow="fold")
    for first, titles in _alike(section):
        table.add_row(Text(first.status, style=_STYLES[first.status]), Text(titles), _detail(first, change))
    return table


def _stacked(section: Section, change: Change) -> Iterator[Text | Padding]:
    for first, titles in _alike(section):
        yield Text.assemble((first.status, _STYLES[first.status]), f" {titles}".replace("\n", ", "), overflow="fold")
        yield Padding(_detail(first, change), (0, 0, 0, 2), expand=False)


def _alike(section: Section) -> Iterator[tuple[Check, str]]:
    """Yield the first of checks that found the same, with the titles of all."""
    for _, alike in groupby(section.checks, lambda check: (check.status, check.detail, check.fix)):
        first, *others = alike
        yield first, "\n".join(check.title for check in (first, *others))


def _detail(check: Check, change: Change) -> Text:
    text = Text(change(check.detail), overflow="fold")
    if check.fix:
        text.append(f"\nfix: {change(check.fix)}", style="bold" if check.status == "error" else "")
    return text


def _summary(report: Report) -> Text:
    counts: Counter[str] = Counter(check.status for section in report.sections for check in section.checks)
    told = ", ".join(f"{counts[status]} {status}" for status in _STYLES if counts[status])
    if not report.broken:
        return Text(f"Nothing needed is broken. {told}.")
    names = ", ".join(check.title for check in report.broken)
    return Text(f"Broken: {names}. {told}.", style="bold red")
