"""What a doctor's report is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from otel_specdecode.doctor.texts import printable
from otel_specdecode.version import __version__

Status = Literal["ok", "warn", "error", "unknown"]

FORMAT = 1
"""Of the JSON document; it rises when a key goes or changes its meaning."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        id: Stable name, for programs that read the report.
        title: What was looked at.
        status: `error`: something needed is broken. `warn`: worth knowing, works nevertheless. `unknown`: it cannot be
            told here, which is no fault.
        detail: What was found, in a sentence.
        fix: What to do about it; empty where there is nothing to do.
        facts: The same for programs: plain numbers, texts and lists.
    """

    id: str
    title: str
    status: Status
    detail: str
    fix: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Write what does not print as escapes, wherever the texts came from."""
        for name in ("title", "detail", "fix"):
            object.__setattr__(self, name, printable(getattr(self, name)))


@dataclass(frozen=True, slots=True)
class Section:
    """Checks that belong together, shown under one heading."""

    id: str
    title: str
    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """All sections, in the order in which they are shown."""

    sections: tuple[Section, ...]

    @property
    def broken(self) -> list[Check]:
        """The checks that found something needed broken."""
        return [check for section in self.sections for check in section.checks if check.status == "error"]

    @property
    def exit_status(self) -> int:
        """1 if something needed is broken, else 0."""
        return 1 if self.broken else 0


def as_document(report: Report) -> dict[str, Any]:
    """Return a report as one JSON document."""
    return {
        "format": FORMAT,
        "otel_specdecode": __version__,
        "exit_status": report.exit_status,
        "sections": [asdict(section) for section in report.sections],
    }


def section_of(id: str, title: str, gather: Callable[[], Sequence[Check]]) -> Section:  # noqa: A002
    """Return a section; where gathering it raises, one check that says so: a doctor never breaks down."""
    try:
        checks = tuple(gather())
    except Exception as error:
        detail = f"this part could not be gathered ({type(error).__name__})"
        checks = (Check(f"{id}.failed", title, "warn", detail, "please report it, with the versions above"),)
    return Section(id, title, checks)
