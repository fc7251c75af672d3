"""What a benchmark found: rows of a table, each with the targets it is held against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.statistics import Array, Estimate, Target, median


@dataclass(frozen=True, slots=True)
class Comparison:
    """An estimate against something: `x the floor`, `over bare`."""

    what: str
    estimate: Estimate
    target: Target | None = None
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One variant of one case.

    Attributes:
        case: The stream or setting.
        variant: What watched it.
        value: The measured quantity itself.
        unit: Its unit.
        comparisons: The quantity against other variants or bounds.
    """

    case: str
    variant: str
    value: Estimate
    unit: str
    comparisons: tuple[Comparison, ...] = ()


@dataclass(slots=True)
class Section:
    """One question and its answers.

    Attributes:
        title: The question in a few words.
        note: How it was measured.
        rows: Answers.
        samples: Every sample by `case/variant`, one a repetition, in the rows' unit.
    """

    title: str
    note: str
    rows: list[Row] = field(default_factory=list)
    samples: dict[str, list[float]] = field(default_factory=dict)

    def keep(self, case: str, samples: Mapping[str, Array]) -> None:
        """Keep the samples of a case for the results file."""
        self.samples |= {f"{case}/{variant}": [float(each) for each in values] for variant, values in samples.items()}

    def add(
        self, case: str, variant: str, samples: Sequence[float], unit: str, comparisons: Sequence[Comparison] = ()
    ) -> None:
        """Add a row whose value is the median of samples."""
        self.rows.append(Row(case, variant, median(samples), unit, tuple(comparisons)))
