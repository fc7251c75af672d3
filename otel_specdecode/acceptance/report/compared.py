"""A comparison for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import to_builtins
from rich.console import Console
from rich.table import Table
from rich.text import Text

from otel_specdecode.acceptance.report import wording
from otel_specdecode.acceptance.report.compare import ArmComparison, Comparison
from otel_specdecode.acceptance.report.escaping import markdown, printable
from otel_specdecode.acceptance.report.wording import Number, Write

SCHEMA = 1

Cell = Callable[[ArmComparison], str]


def _ratio(take: Callable[[ArmComparison], Number], write: Write = wording.factor) -> Cell:
    return lambda arm: wording.in_full(take(arm), write)


def _both(take: Callable[[ArmComparison], tuple[Number, Number]], write: Write = wording.plain) -> Cell:
    return lambda arm: " → ".join(wording.said(each, write) for each in take(arm))


def _of_speculation(cell: Cell) -> Cell:
    return lambda arm: cell(arm) if arm.arm.speculative else "-"


CELLS: tuple[tuple[str, Cell], ...] = (
    ("Prompts", lambda arm: str(arm.prompts)),
    ("Decode speed", _ratio(lambda arm: arm.speed)),
    ("With prefill", _ratio(lambda arm: arm.emitted)),
    ("TTFT", _ratio(lambda arm: arm.time_to_first_token)),
    ("Peak memory", _ratio(lambda arm: arm.memory)),
    ("Checks passed", _ratio(lambda arm: arm.success, wording.signed_percent)),
    ("Tokens/s", _both(lambda arm: (arm.one.tokens_per_second, arm.other.tokens_per_second))),
    (
        "Accept rate",
        _of_speculation(_both(lambda arm: (arm.one.accept_rate, arm.other.accept_rate), wording.fraction)),
    ),
    ("Speed-up", _of_speculation(_both(lambda arm: (arm.one_speed_up, arm.other_speed_up), wording.factor))),
)
HOW_TO_READ = (
    "Ratios are of the second run over the first, over the prompts that both had, paired by id; intervals are 95 %. "
    "Above 1 the second is faster in decode speed and with prefill, and slower to the first token."
)
_SAME = {True: "equal", False: "differs", None: "cannot be told"}


def show(found: Comparison, console: Console) -> None:
    """Print a comparison."""
    console.print(Text(_title(found), style="bold"))
    for title, texts in _lists(found):
        console.print(Text(f"{title}:"))
        for text in texts:
            console.print(Text(f"  {printable(text)}"))
    if found.weights:
        facts = Table("What", "", "First, and second", title="Whether both ran the same weights", title_justify="left")
        for fact in found.weights:
            facts.add_row(*(Text(printable(text)) for text in (fact.what, _SAME[fact.same], fact.told)))
        console.print(facts)
    table = Table("Measure", title="Second over first", title_justify="left")
    for arm in found.arms:
        table.add_column(Text(printable(arm.arm.name)))
    for name, cell in CELLS:
        table.add_row(name, *(Text(cell(arm)) for arm in found.arms))
    console.print(table)
    console.print(Text(HOW_TO_READ))


def as_json(found: Comparison) -> str:
    """Return a comparison for programs. Seconds, bytes, shares from 0 to 1; null is what was not measured."""
    document: dict[str, Any] = {"schema": SCHEMA, **to_builtins(found)}
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def as_markdown(found: Comparison) -> str:
    """Return a comparison for a pull request."""
    lines = [f"## {markdown(_title(found))}", ""]
    for title, texts in _lists(found):
        lines += [f"{title}:", "", *(f"- {markdown(text)}" for text in texts), ""]
    if found.weights:
        rows = [[fact.what, _SAME[fact.same], fact.told] for fact in found.weights]
        lines += [*_table(["What", "", "First, and second"], rows), ""]
    rows = [[arm.arm.name, *(cell(arm) for _, cell in CELLS)] for arm in found.arms]
    lines += [*_table(["Arm", *(name for name, _ in CELLS)], rows), "", HOW_TO_READ]
    return "\n".join(lines) + "\n"


def _title(found: Comparison) -> str:
    one, other = (
        printable(f"{name} ({engine})") for name, engine in zip((found.one, found.other), found.engines, strict=True)
    )
    return f"{other} against {one}"


def _lists(found: Comparison) -> list[tuple[str, Sequence[str]]]:
    lists = [
        ("The manifests differ in", found.differences),
        ("Conditions differed in", found.conditions),
        ("Not compared", found.left_out),
    ]
    return [(title, texts) for title, texts in lists if texts]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    body = [[markdown(cell) for cell in row] for row in rows]
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *body)]
