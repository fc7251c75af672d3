"""What a million tokens cost: on the machine of the run, and on a rented one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from otel_specdecode.acceptance.records import Arm
from otel_specdecode.acceptance.report.rows import HOUR, Row

MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Rates:
    """What an hour costs, in one currency; None where it was not given.

    Attributes:
        own: Of the machine of the run.
        rented: Of the one that could be rented in its place.
        rented_tokens_per_second: That the rented one emits.
    """

    own: float | None = None
    rented: float | None = None
    rented_tokens_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """What tokens cost on one machine, one way, without a break.

    Attributes:
        what: Which.
        tokens_per_hour: How many come out.
        per_million: The price of a million; None where no rate was given.
    """

    what: str
    tokens_per_hour: float | None
    per_million: float | None


@dataclass(frozen=True, slots=True)
class Costs:
    """What tokens cost.

    Attributes:
        rates: What was given.
        each: The ways that are held against each other.
    """

    rates: Rates
    each: tuple[Cost, ...]


def costs(rows: Sequence[Row], best: Arm | None, rates: Rates) -> Costs:
    """Return what tokens cost without a draft, with the best one, and on a rented machine if its rate was given."""
    shown = [row for row in rows if row.figures.requests and (best is None or row.arm in (best, best.baseline))]
    found = [Cost(row.arm.name, row.tokens_per_hour, _per_million(rates.own, row.tokens_per_hour)) for row in shown]
    if rates.rented is not None and rates.rented_tokens_per_second is not None:
        hour = rates.rented_tokens_per_second * HOUR
        found.append(Cost("rented machine", hour, _per_million(rates.rented, hour)))
    return Costs(rates, tuple(found))


def _per_million(rate: float | None, tokens_per_hour: float | None) -> float | None:
    return None if rate is None or not tokens_per_hour else rate / tokens_per_hour * MILLION
