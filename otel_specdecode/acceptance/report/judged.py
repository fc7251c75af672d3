"""What the gates said, in the words of the page and of Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from otel_specdecode.acceptance.gates.verdict import Verdict
from otel_specdecode.acceptance.knee import Knee

GATE_TITLES = ("Value", "Threshold", "Evidence")

_MARKS = {"pass": ("✓", "good"), "fail": ("✗", "bad"), "waived": ("◇", "open"), "not measured": ("?", "open")}


@dataclass(frozen=True, slots=True)
class GateRow:
    """One line of a table of gates.

    Attributes:
        id: The gate's name.
        about: What it is good for.
        status: Pass, fail, waived or not measured.
        mark: A sign that says the same without colour.
        tone: And its colour.
        cells: By GATE_TITLES the text, and the interval below it.
    """

    id: str
    about: str
    status: str
    mark: str
    tone: str
    cells: tuple[tuple[str, str, str], ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """The cells as one text each."""
        return tuple(f"{text} [{ends}]" if ends else text for _, text, ends in self.cells)


def word(verdict: Verdict | None) -> str:
    """Return the verdict as one word."""
    return "Not judged" if verdict is None else verdict.status.capitalize()


def why(verdict: Verdict | None, advice: Knee) -> str:
    """Return the one sentence that stands under the verdict."""
    if verdict is None:
        return f"No gates were asked. {advice.why}"
    return verdict.reasons[0] if verdict.reasons else advice.why


def reasons(verdict: Verdict | None) -> Sequence[str]:
    return () if verdict is None else verdict.reasons


def gate_rows(verdict: Verdict) -> list[GateRow]:
    return []


def validity_rows(verdict: Verdict) -> list[GateRow]:
    return []
