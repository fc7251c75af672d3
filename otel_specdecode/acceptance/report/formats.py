"""The same numbers for programs and for a pull request: JSON, CSV, Markdown, and a badge."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from msgspec import to_builtins

from otel_specdecode.acceptance.figures import Share
from otel_specdecode.acceptance.knee import Knee
from otel_specdecode.acceptance.report.escaping import csv_cell, markdown, printable, xml
from otel_specdecode.acceptance.report.facts import Report
from otel_specdecode.acceptance.report.judged import GATE_TITLES, gate_rows, why, word
from otel_specdecode.acceptance.report.rows import COLUMNS, MAIN, Column, Row
from otel_specdecode.acceptance.report.wording import Number, value_of

SCHEMA = 1

_COLOURS = {"accepted": "#0f6b4f", "rejected": "#b3261e"}
_GREY = "#5b6472"
_LETTER = 6.6
"""Width of a letter of a badge, in pixels, in the mean; the text is fitted to it."""


def as_json(report: Report) -> str:
    """Return all that the report says. Seconds, bytes, shares from 0 to 1; null is what was not measured."""
    runs = [each for each in (report.run, report.soak) if each is not None]
    document = {
        "schema": SCHEMA,
        "version": report.version,
        "made_at": report.made_at,
        "status": None if report.verdict is None else report.verdict.status,
        "why": why(report.verdict, report.knee),
        "headline": {"text": report.headline.text, "missing": report.headline.missing},
        "verdict": None if report.verdict is None else to_builtins(report.verdict),
        "runs": [
            {
                **to_builtins(run.head),
                "evidence_sha256": report.evidence.get(run.head.run_id),
                "notes": to_builtins(run.notes),
                "faults": run.faults,
            }
            for run in runs
        ],
        "knee": _knee(report.knee),
        "knees": [{"concurrency": level, **_knee(each)} for level, each in report.knees.items()],
        "rows": [_row(row) for row in report.rows],
        "soak_rows": [_row(row) for row in report.soak_rows],
        "timelines": to_builtins(report.timelines),
        "endurance": to_builtins(report.endurance),
        "worthwhile": [{**to_builtins(each), "holds": each.holds} for each in report.worthwhile],
        "costs": to_builtins(report.costs),
        "reproduce": report.reproduce,
        "unmeasured": report.unmeasured,
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def as_csv(report: Report) -> str:
    """Return one row for each arm, and for each arm by tier and by kind; an empty cell is what was not measured."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["run_id", "arm", "draft_length", "part", "of", *(name for name, _ in _cells(report.rows[0]))])
    for row in report.rows:
        texts = (report.run.head.run_id, row.arm.name)
        numbers = ["" if value is None else value for _, value in _cells(row)]
        writer.writerow([*map(csv_cell, texts), row.arm.draft_length, row.part, row.of, *numbers])
    return file.getvalue()


def as_markdown(report: Report) -> str:
    """Return the headline, the best draft length for each number of requests at once, the gates and a short table."""
    reason = why(report.verdict, report.knee)
    lines = [
        f"## {word(report.verdict)}: {markdown(report.run.head.run_id)}",
        "",
        markdown(reason, 1000),
    ]
    missing = ", ".join(report.headline.missing)
    lines += [
        "",
        f"> {markdown(report.headline.text, 600)}" if report.headline.text else f"no headline: missing {missing}",
    ]
    if report.levels:
        told = [each for each in (report.knee.why, *report.levels) if each not in reason]
        lines += ["", "By speed alone:", "", *(f"- {markdown(each, 1000)}" for each in told)]
    if report.verdict is not None:
        rows = [
            [gate.id, f"{gate.mark} {gate.status}", *(cell.in_full for cell in gate.cells)]
            for gate in gate_rows(report.verdict)
        ]
        lines += ["", *_table(["Gate", "", *GATE_TITLES], rows)]
    lines += ["", *_table(["Arm", *(column.title for column in MAIN)], [_main(row) for row in report.arms])]
    return "\n".join(lines) + "\n"


def as_badge(report: Report) -> str:
    """Return a small SVG: the verdict, with numbers where it is yes or no; or that there is no headline."""
    status = "" if report.verdict is None else report.verdict.status
    said, colour = word(report.verdict).lower(), _COLOURS.get(status, _GREY)
    if report.headline.text is None:
        said, colour = "no headline", _GREY
    elif status in _COLOURS:
        said = f"{said}: {report.headline.short}"
    left, right = "speculative decoding", printable(said, 60)
    one, two = (round(len(text) * _LETTER + 12) for text in (left, right))
    title = xml(f"{left}: {right}")
    texts = "".join(
        f'<text x="{x:g}" y="14" textLength="{width - 12}" lengthAdjust="spacingAndGlyphs">{xml(text)}</text>'
        for x, width, text in ((one / 2, one, left), (one + two / 2, two, right))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{one + two}" height="20" role="img" aria-label="{title}">'
        f'<title>{title}</title><clipPath id="round"><rect width="{one + two}" height="20" rx="3"/></clipPath>'
        f'<g clip-path="url(#round)"><rect width="{one}" height="20" fill="#3b4048"/>'
        f'<rect x="{one}" width="{two}" height="20" fill="{colour}"/></g>'
        f'<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">{texts}</g>'
        "</svg>\n"
    )


def _knee(found: Knee) -> dict[str, Any]:
    return {"best": found.best.arm.name if found.best else None, "stay": found.stay, "why": found.why}


def _row(row: Row) -> dict[str, Any]:
    arm = {**to_builtins(row.arm), "name": row.arm.name}
    measures = {column.name: to_builtins(column.value(row)) if column.applies(row) else None for column in COLUMNS}
    return {"arm": arm, "part": row.part, "of": row.of, **measures}


def _cells(row: Row) -> list[tuple[str, float | None]]:
    """Return the numbers of a row by the names of their columns: an estimate has four, a share two."""
    return [cell for column in COLUMNS for cell in _parted(column, column.value(row) if column.applies(row) else None)]


def _parted(column: Column, number: Number) -> list[tuple[str, float | None]]:
    parts = {"number": (), "estimate": ("low", "high", "samples"), "share": ("of",)}[column.shape]
    value = number.passed if isinstance(number, Share) else value_of(number)
    return [(column.name, value), *((f"{column.name}_{part}", getattr(number, part, None)) for part in parts)]


def _main(row: Row) -> list[str]:
    return [row.arm.name, *(column.in_full(row) for column in MAIN)]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    body = [[markdown(cell) for cell in row] for row in rows]
    return [_bar(head), _bar(["---"] * len(head)), *map(_bar, body)]


def _bar(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
