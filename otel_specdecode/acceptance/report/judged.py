"""What the gates said, in the words of the page and of Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from otel_specdecode.acceptance.gates.terminal import amount, status_of
from otel_specdecode.acceptance.gates.validity import ValidityItem
from otel_specdecode.acceptance.gates.verdict import GateResult, Verdict
from otel_specdecode.acceptance.knee import Knee
from otel_specdecode.acceptance.report.escaping import printable

GATE_TITLES = ("Value", "Threshold", "Evidence")
VALIDITY_TITLES = ("Seen",)

_GOOD, _BAD, _OPEN = ("✓", "good"), ("✗", "bad"), ("?", "open")
_MARKS = {
    "pass": _GOOD,
    "held": _GOOD,
    "fail": _BAD,
    "broken": _BAD,
    "warning": ("!", "open"),
    "waived": ("◇", "open"),
    "not measured": _OPEN,
    "noted": ("·", "open"),
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: its column's title, what it says, and in small letters what belongs to it."""

    title: str
    text: str
    small: tuple[str, ...] = ()

    @property
    def in_full(self) -> str:
        """Both as one text."""
        return f"{self.text} ({'; '.join(self.small)})" if self.small else self.text


@dataclass(frozen=True, slots=True)
class JudgedRow:
    """One gate, or one condition of a valid run.

    Attributes:
        id: Its name.
        about: What it is good for, or demands.
        status: What it says.
        mark: A sign that says the same without colour.
        tone: And its colour.
        cells: The rest.
    """

    id: str
    about: str
    status: str
    mark: str
    tone: str
    cells: tuple[Cell, ...]


def word(verdict: Verdict | None) -> str:
    """Return the verdict as one word, or two."""
    return "Not judged" if verdict is None else verdict.status.capitalize()


def why(verdict: Verdict | None, advice: Knee) -> str:
    """Return the one sentence that stands under the verdict."""
    return f"No gates were asked. {advice.why}" if verdict is None else verdict.reason


def gate_rows(verdict: Verdict) -> list[JudgedRow]:
    """Return what each gate says."""
    return [_gate(each) for each in verdict.gates]


def validity_rows(verdict: Verdict) -> list[JudgedRow]:
    """Return what makes the run count, or does not."""
    return [_condition(each) for each in verdict.validity]


def _gate(gate: GateResult) -> JudgedRow:
    status = status_of(gate)
    ends = ["?" if end is None else amount(end, gate.unit) for end in (gate.low, gate.high)]
    shown = gate.value is not None and ends != ["?", "?"] and not gate.low == gate.high == gate.value
    value = "not measured" if gate.value is None else amount(gate.value, gate.unit)
    threshold = f"{gate.bound} {amount(gate.threshold, gate.unit)}"
    return JudgedRow(
        gate.id,
        gate.title,
        status,
        *_MARKS[status],
        (
            Cell(GATE_TITLES[0], value, (f"{ends[0]} to {ends[1]}",) if shown else ()),
            Cell(GATE_TITLES[1], threshold, ("of the interval",) if gate.by == "interval" else ()),
            Cell(GATE_TITLES[2], "; ".join(_evidence(gate)) or "none", tuple(_beside(gate))),
        ),
    )


def _evidence(gate: GateResult) -> Iterator[str]:
    for each in gate.evidence:
        yield f"{printable(each.run_id)}/{each.file}, {each.samples:,} {each.of}"


def _beside(gate: GateResult) -> Iterator[str]:
    """Return what is worth telling beside a gate: why it was not measured, and its waiver."""
    if gate.why:
        yield printable(gate.why)
    waiver = gate.waiver
    if waiver is not None:
        lasts = f"expired on {waiver.expires}" if waiver.expired else f"until {waiver.expires}"
        yield printable(f"waiver of {waiver.who}, {lasts}: {waiver.reason}")


def _condition(item: ValidityItem) -> JudgedRow:
    small = () if item.counts else ("does not decide",)
    seen = Cell(VALIDITY_TITLES[0], printable(item.why) or item.status, small)
    return JudgedRow(
        item.id,
        "" if item.title == item.id.replace("_", " ") else item.title,
        item.status,
        *_MARKS[item.status],
        (seen,),
    )
