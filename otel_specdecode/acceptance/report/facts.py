"""All that a report says, gathered once: every format reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from otel_specdecode.acceptance.endurance import Endurance, endurance
from otel_specdecode.acceptance.figures import tier_of
from otel_specdecode.acceptance.frozen import NOTES
from otel_specdecode.acceptance.gates.verdict import Verdict
from otel_specdecode.acceptance.knee import Knee, knee, knees, told_by_level
from otel_specdecode.acceptance.prompts import Tier
from otel_specdecode.acceptance.records import Arm, HostSample, Run
from otel_specdecode.acceptance.report.cost import Costs, Rates, costs
from otel_specdecode.acceptance.report.headline import Headline, chosen_arm, headline_of, quotable, quotable_verdict
from otel_specdecode.acceptance.report.reproduce import commands
from otel_specdecode.acceptance.report.rows import COLUMNS, Row, rows
from otel_specdecode.acceptance.report.timeline import Timeline, timeline
from otel_specdecode.thresholds import thresholds
from otel_specdecode.version import __version__

UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Holds:
    """Whether something that speculation is known to need is so.

    Attributes:
        what: What it is.
        value: What was measured, None if nothing.
        low, high: Between which it has to be; None where that end is open.
    """

    what: str
    value: float | None
    low: float | None
    high: float | None

    @property
    def holds(self) -> bool | None:
        """Whether it is so; None where nothing was measured."""
        if self.value is None:
            return None
        return (self.low is None or self.value >= self.low) and (self.high is None or self.value <= self.high)


@dataclass(frozen=True, slots=True)
class Report:
    """What a report says.

    Attributes:
        version: Of the library that made it.
        made_at: When, in seconds since the epoch.
        run: The run.
        soak: Another run, over time; None without one.
        evidence: By run id, the sha256 of the run's files.
        verdict: The gates' word; None where the run was not judged. No advice has a number that no headline may have.
        headline: What may be quoted.
        knee: Which draft length is best.
        knees: Likewise for each number of requests at once.
        rows: Each arm, by tier and by kind.
        soak_rows: Each arm of the soak.
        timelines: The runs over time.
        endurance: By run id, what a run over time says of each arm: whether memory grows, and whether it slows down.
        worthwhile: What speculation is known to need.
        costs: What a million tokens cost.
        reproduce: Commands that make such a report.
        unmeasured: What was not measured, a sentence each.
    """

    version: str
    made_at: float
    run: Run
    soak: Run | None
    evidence: Mapping[str, str]
    verdict: Verdict | None
    headline: Headline
    knee: Knee
    knees: Mapping[int, Knee]
    rows: tuple[Row, ...]
    soak_rows: tuple[Row, ...]
    timelines: tuple[Timeline, ...]
    endurance: Mapping[str, tuple[Endurance, ...]]
    worthwhile: tuple[Holds, ...]
    costs: Costs
    reproduce: tuple[str, ...]
    unmeasured: tuple[str, ...]

    @property
    def levels(self) -> tuple[str, ...]:
        """Which draft length is best for each number of requests at once above 1, a sentence each."""
        return told_by_level(self.knee, self.knees)

    @property
    def arms(self) -> tuple[Row, ...]:
        """The rows of whole arms."""
        return tuple(row for row in self.rows if row.part == "all")


def gather(
    run: Run,
    soak: Run | None,
    verdict: Verdict | None,
    *,
    evidence: Mapping[str, str],
    made_at: float,
    rates: Rates | None = None,
    policy: str | None = None,
) -> Report:
    """Return all that a report says.

    Args:
        run: The run.
        soak: A soak that belongs to it.
        verdict: What the gates said of both.
        evidence: By run id, the sha256 of the run's files.
        made_at: Now, in seconds since the epoch.
        rates: What an hour costs.
        policy: Name of the file of the gates, for the command that makes the report again.
    """
    found, best = rows(run), knee(run)
    headline = headline_of(run, verdict)
    lasting = [each for each in (run, soak) if each is not None and (each is soak or each.head.kind == "soak")]
    timelines = [timeline(each) for each in lasting]
    arm = chosen_arm(run, verdict)
    return Report(
        version=__version__,
        made_at=made_at,
        run=run,
        soak=soak,
        evidence=evidence,
        verdict=quotable_verdict(verdict, headline, best.best.arm if best.best else None),
        headline=headline,
        knee=quotable(run, best),
        knees={level: quotable(run, each) for level, each in knees(run).items()},
        rows=found,
        soak_rows=rows(soak, parts=False) if soak else (),
        timelines=tuple(each for each in timelines if each is not None),
        endurance={each.head.run_id: _endurance(each) for each in lasting},
        worthwhile=_worthwhile(found, arm),
        costs=costs([row for row in found if row.part == "all"], arm, rates or Rates()),
        reproduce=commands(run, soak, policy),
        unmeasured=tuple(_unmeasured(run, soak, verdict, found)),
    )


def _endurance(run: Run) -> tuple[Endurance, ...]:
    found = (endurance(run, arm) for arm in run.head.arms)
    return tuple(each for each in found if each is not None)


def _worthwhile(found: Sequence[Row], arm: Arm | None) -> tuple[Holds, ...]:
    bounds = thresholds()["worthwhile"]
    by_arm = {row.arm: row for row in found if row.part == "all"}
    plain = by_arm.get(arm.baseline) if arm else next((row for row in by_arm.values() if not row.arm.speculative), None)
    drafted = by_arm.get(arm) if arm else None
    rate = drafted.figures.accept_rate if drafted else None
    return (
        Holds(
            "Decode share of the autoregressive time",
            plain.decode_share if plain else None,
            bounds["decode_share"],
            None,
        ),
        Holds("Accept rate", rate.value if rate else None, bounds["accept_rate_low"], bounds["accept_rate_high"]),
    )


def _unmeasured(run: Run, soak: Run | None, verdict: Verdict | None, found: Sequence[Row]) -> Iterator[str]:
    if verdict is None:
        yield "The gates: the run was not judged."
    else:
        yield from (f"Gate {gate.id}: {gate.why}." for gate in verdict.gates if gate.status == "not measured")
    whole = [row for row in found if row.part == "all"]
    yield from (f"{row.arm.name}: no request of it counts." for row in whole if not row.figures.requests)
    measured = [row for row in whole if row.figures.requests]
    for column in COLUMNS:
        lacking = [row.arm.name for row in measured if column.applies(row) and column.value(row) is None]
        if lacking:
            which = "every arm" if len(lacking) == len(measured) else ", ".join(lacking)
            yield f"{column.title} of {which}."
    tiers = {tier_of(each) for each in run.measured}
    yield from (f"Prompts of the tier {tier}." for tier in get_args(Tier) if tier not in tiers)
    if all(not arm.temperature for arm in run.head.arms):
        yield "Sampling: all arms are greedy."
    if all(arm.concurrency == 1 for arm in run.head.arms):
        yield "Several requests at once."
    if soak is None and run.head.kind != "soak":
        yield "A soak: nothing here says what happens over half an hour."
    yield from _unread((*run.host, *(soak.host if soak else ())))
    notes = run.head.conditions.get("notes")
    noted = notes if isinstance(notes, Mapping) else {}
    yield from (f"Noted by nobody: {name.replace('_', ' ')}." for name in NOTES if not noted.get(name))
    for each in filter(None, (run, soak)):
        yield from (f"A line that cannot be read, {fault}." for fault in each.faults)


def _unread(samples: Sequence[HostSample]) -> Iterator[str]:
    if not samples:
        yield "The machine: there is no sample of it."
        return
    for name in ("power_mode", "power_source", "thermal_state", "memory_pressure"):
        if all(getattr(each, name) == UNKNOWN for each in samples):
            yield f"The machine's {name.replace('_', ' ')}: the system does not tell."
    for name in ("swap_used", "swapped_in", "memory_available", "side_load"):
        if all(getattr(each, name) is None for each in samples):
            yield f"The machine's {name.replace('_', ' ')}: it was not read."
