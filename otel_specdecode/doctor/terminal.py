"""A report on a terminal, in a pipe and in a log file: the same words in all three."""

from __future__ import annotations

import sys
from collections import Counter
from itertools import groupby

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from otel_specdecode.doctor.checks import Check, Report, Section

_STYLES = {"ok": "green", "warn": "yellow", "error": "bold red", "unknown": "dim"}


def show(report: Report) -> None:
    """Print a table for each section, and last how many checks found what."""
    console = Console(highlight=False, file=sys.stdout)
    for section in report.sections:
        console.print()
        console.print(Text(section.title, style="bold"))
        console.print(_table(section))
    console.print()
    console.print(_summary(report))


def _table(section: Section) -> Table:
    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True, min_width=7)
    table.add_column(max_width=24)
    table.add_column(overflow="fold")
    for _, alike in groupby(section.checks, lambda check: (check.status, check.detail, check.fix)):
        first, *others = alike
        titles = "\n".join(check.title for check in (first, *others))
        table.add_row(Text(first.status, style=_STYLES[first.status]), Text(titles), _detail(first))
    return table


def _detail(check: Check) -> Text:
    text = Text(check.detail)
    if check.fix:
        text.append(f"\nfix: {check.fix}", style="bold" if check.status == "error" else "")
    return text


def _summary(report: Report) -> Text:
    counts: Counter[str] = Counter(check.status for section in report.sections for check in section.checks)
    told = ", ".join(f"{counts[status]} {status}" for status in _STYLES if counts[status])
    if not report.broken:
        return Text(f"Nothing needed is broken. {told}.")
    names = ", ".join(check.title for check in report.broken)
    return Text(f"Broken: {names}. {told}.", style="bold red")
