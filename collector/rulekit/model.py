"""What rules and alerts are: plain data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["critical", "warning", "info"]


class RuleError(Exception):
    """A rule that cannot be written. The message names the rule."""

    def __init__(self, rule: str, problem: str) -> None:
        super().__init__(f"{rule}: {problem}")


@dataclass(frozen=True)
class Recording:
    """A recorded series: what it means, its expression and the labels it has.

    Attributes:
        fixed: Labels with a constant value, for series that are numbers from the thresholds.
    """

    record: str
    brief: str
    expr: str
    labels: frozenset[str]
    fixed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Alert:
    """An alert. ``hold`` is how long it must be true before it fires, in Prometheus' notation."""

    name: str
    severity: Severity
    summary: str
    description: str
    expr: str
    labels: frozenset[str]
    hold: str = ""


@dataclass(frozen=True)
class Group:
    """Rules that are evaluated one after the other, all at the same time stamp."""

    name: str
    rules: tuple[Recording | Alert, ...]
    interval: str = "1m"


def labels(*names: str | Iterable[str]) -> frozenset[str]:
    """A set of labels of single names and other sets."""
    found: set[str] = set()
    for name in names:
        found |= {name} if isinstance(name, str) else set(name)
    return frozenset(found)


def listed(names: Iterable[str]) -> str:
    """Labels in the order they are written in an expression."""
    return ", ".join(sorted(names))
