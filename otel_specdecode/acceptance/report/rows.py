"""A row for each arm, and for each arm in each tier and kind of prompt; and the columns that all formats show of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from otel_specdecode.acceptance.figures import (
    ArmFigures,
    Where,
    arm_figures,
    break_even_margin,
    in_tier,
    of_kind,
    speed_up,
    tier_of,
)
from otel_specdecode.acceptance.prompts import Tier
from otel_specdecode.acceptance.records import Arm, Kind, Run
from otel_specdecode.acceptance.report import wording
from otel_specdecode.acceptance.report.wording import Number, Write
from otel_specdecode.acceptance.statistics import Estimate

Part = Literal["all", "tier", "kind"]
Shape = Literal["number", "estimate", "share"]
HOUR = 3600


@dataclass(frozen=True, slots=True)
class Row:
    """One arm, or the part of its requests that are of one tier or kind. None where nothing was measured.

    Attributes:
        part: What of the arm.
        of: Which tier or kind; empty for all.
        figures: Its figures.
        speed_up: Autoregressive over speculative time per token; None for an autoregressive arm.
        break_even_margin: By what share a round's tokens exceed its cost; None for an autoregressive arm.
        decode_share: Of the requests' time that was decoding.
    """

    part: Part
    of: str
    figures: ArmFigures
    speed_up: Estimate | None
    break_even_margin: Estimate | None
    decode_share: float | None

    @property
    def arm(self) -> Arm:
        """The arm."""
        return self.figures.arm

    @property
    def tokens_per_hour(self) -> float | None:
        """Tokens that come out in an hour without a break, prefill included."""
        rate = self.figures.emitted_per_second
        return None if rate is None else rate * HOUR

    @property
    def peak(self) -> int | None:
        """The highest memory: the footprint, which on a Mac holds what the GPU has, or what is resident."""
        return self.figures.peak_footprint or self.figures.peak_rss


@dataclass(frozen=True, slots=True)
class Column:
    """One measure of a row.

    Attributes:
        name: In files that programs read. SI units.
        title: For people.
        group: Of the table that it stands in.
        value: Takes it from a row.
        write: Writes it for people.
        main: Whether short tables show it.
        shape: What it is where it was measured: a number, one with an interval, or successes among trials.
    """

    name: str
    title: str
    group: str
    value: Callable[[Row], Number]
    write: Write = wording.plain
    main: bool = False
    shape: Shape = "number"

    def said(self, row: Row) -> str:
        """Return the measure of a row for people, without its interval."""
        return wording.said(self._of(row), self.write) if self.applies(row) else "-"

    def interval(self, row: Row) -> str:
        """Return its interval for people; empty without one."""
        return wording.interval(self._of(row), self.write)

    def in_full(self, row: Row) -> str:
        """Return both."""
        return wording.in_full(self._of(row), self.write) if self.applies(row) else "-"

    def applies(self, row: Row) -> bool:
        """Return whether such an arm can have it: an autoregressive one has no accept rate, not an unknown one."""
        return row.arm.speculative or self.name not in _OF_SPECULATION

    def _of(self, row: Row) -> Number:
        return self.value(row) if self.applies(row) else None


_OF_SPECULATION = frozenset(
    {"speed_up", "accept_rate", "accept_rate_median", "break_even_margin", "rollbacks_per_minute", "rounds"}
)


def _latency(name: str, title: str, *, main: bool = False) -> Column:
    return Column(name, title, LATENCY, lambda row: _figure(row, name), wording.milliseconds, main, "estimate")


def _figure(row: Row, name: str) -> Estimate | None:
    found: Estimate | None = getattr(row.figures, name)
    return found


SPEED, DRAFTING, LATENCY, REST = "Speed", "Drafting", "Latency", "Memory and answers"

COLUMNS = (
    Column("requests", "Requests", SPEED, lambda row: row.figures.requests, wording.whole, main=True),
    Column("prompts", "Prompts", SPEED, lambda row: row.figures.prompts, wording.whole),
    Column("failed", "Failed", SPEED, lambda row: row.figures.failed, wording.whole),
    Column(
        "tokens_per_second", "Tokens/s", SPEED, lambda row: row.figures.tokens_per_second, main=True, shape="estimate"
    ),
    Column("speed_up", "Speed-up", SPEED, lambda row: row.speed_up, wording.factor, main=True, shape="estimate"),
    Column("tokens_per_second_after_64", "Tokens/s after 64", SPEED, lambda row: row.figures.steady, shape="estimate"),
    Column("emitted_per_second", "Emitted tokens/s", SPEED, lambda row: row.figures.emitted_per_second),
    Column("tokens_per_hour", "Tokens/hour", SPEED, lambda row: row.tokens_per_hour, wording.whole),
    Column("decode_share", "Decode share", SPEED, lambda row: row.decode_share, wording.percent),
    Column(
        "accept_rate",
        "Accept rate",
        DRAFTING,
        lambda row: row.figures.accept_rate,
        wording.fraction,
        main=True,
        shape="estimate",
    ),
    Column(
        "accept_rate_median",
        "Median",
        DRAFTING,
        lambda row: row.figures.accept_rate_median,
        wording.fraction,
        shape="estimate",
    ),
    Column("acceptance_length", "Acceptance length", DRAFTING, lambda row: row.figures.acceptance_length),
    Column(
        "break_even_margin",
        "Break-even margin",
        DRAFTING,
        lambda row: row.break_even_margin,
        wording.signed_percent,
        shape="estimate",
    ),
    Column("rollbacks_per_minute", "Rollbacks/min", DRAFTING, lambda row: row.figures.rollbacks_per_minute),
    Column("rounds", "Rounds", DRAFTING, lambda row: row.figures.rounds, wording.whole),
    _latency("time_per_token_p50", "Time/token p50"),
    _latency("time_per_token_p95", "Time/token p95", main=True),
    _latency("time_to_first_token_p50", "TTFT p50", main=True),
    _latency("time_to_first_token_p95", "TTFT p95"),
    _latency("queued_p95", "Queue p95"),
    _latency("round_p50", "Round p50"),
    _latency("round_p95", "Round p95"),
    _latency("round_p99", "Round p99"),
    Column("peak_rss", "Peak RSS", REST, lambda row: row.figures.peak_rss, wording.size, main=True),
    Column("peak_footprint", "Peak footprint", REST, lambda row: row.figures.peak_footprint, wording.size),
    Column("engine_peak", "Engine peak", REST, lambda row: row.figures.engine_peak, wording.size),
    Column(
        "checks_passed",
        "Checks passed",
        REST,
        lambda row: row.figures.success,
        wording.percent,
        main=True,
        shape="share",
    ),
)
GROUPS = tuple(
    (group, tuple(column for column in COLUMNS if column.group == group)) for group in (SPEED, DRAFTING, LATENCY, REST)
)
MAIN = tuple(column for column in COLUMNS if column.main)


def rows(run: Run, *, parts: bool = True) -> tuple[Row, ...]:
    """Return the rows of a run.

    Args:
        run: The run.
        parts: Also each arm by the tiers and the kinds that the run has requests of.
    """
    whole = tuple(_row(run, arm, "all", "", None) for arm in run.head.arms)
    if not parts:
        return whole
    tiers = [tier for tier in get_args(Tier) if any(tier_of(each) == tier for each in run.measured)]
    kinds = [kind for kind in get_args(Kind) if any(each.kind == kind for each in run.measured)]
    return (
        *whole,
        *(_row(run, arm, "tier", tier, in_tier(tier)) for tier in tiers for arm in run.head.arms),
        *(_row(run, arm, "kind", kind, of_kind(kind)) for kind in kinds for arm in run.head.arms),
    )


def _row(run: Run, arm: Arm, part: Part, of: str, where: Where | None) -> Row:
    chosen = [each for each in run.of(arm) if where is None or where(each)]
    timed = [each for each in chosen if each.decode is not None and each.duration]
    seconds = sum(each.duration for each in timed)
    return Row(
        part=part,
        of=of,
        figures=arm_figures(run, arm, where),
        speed_up=speed_up(run, arm, where) if arm.speculative else None,
        break_even_margin=break_even_margin(run, arm, where) if arm.speculative else None,
        decode_share=sum(each.decode or 0.0 for each in timed) / seconds if seconds else None,
    )
