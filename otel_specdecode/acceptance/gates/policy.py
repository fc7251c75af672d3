"""A policy of gates: what a run is held against, what makes it valid, and what was waived. Plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from functools import cache
from hashlib import sha256
from typing import Annotated, Any, Final, Literal, get_args

from msgspec import Meta, Struct, json

from otel_specdecode.guard.policy import Share, Table
from otel_specdecode.thresholds import thresholds

VERSION: Final = 1

Preset = Literal["interactive", "balanced", "batch"]
PRESETS: Final[tuple[Preset, ...]] = get_args(Preset)

Number = float | str
"""A number, or the name of one in thresholds.toml such as `speedup.low`."""

Bound = Literal["at_most", "at_least", "above", "below", "within"]
BOUNDS: Final[tuple[Bound, ...]] = get_args(Bound)
WORDS: Final[Mapping[Bound, str]] = {"at_most": "<=", "at_least": ">=", "above": ">", "below": "<", "within": "+-"}

Length = Annotated[int, Meta(ge=1, le=64)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Tokens = Annotated[int, Meta(ge=0, le=10_000_000)]
Amount = Annotated[float, Meta(ge=0, lt=1e15)]


class Part(Table, frozen=True, kw_only=True):
    """A table of a policy of gates."""


class Validity(Part, frozen=True, kw_only=True):
    """What must hold for a run to count at all.

    Attributes:
        warm_up: Seconds from where a run begins, or is resumed, to the first request that counts.
        soak: Seconds that a soak lasts without a break.
        pause: Seconds without any request of the soak's arm; more are a break.
        max_age: Days after which a result has expired.
        sleep: Seconds by which the time of day may get ahead of a clock that stands still while the machine sleeps.
        blind: Seconds without a sample of the machine, or in which a state is not known, after which it counts as not
            measured.
        free_memory: Share of memory that stays available throughout.
        shortest_answer: Tokens of the shortest answer whose time per token counts.
    """

    warm_up: Amount
    soak: Amount
    pause: Amount
    max_age: Amount
    sleep: Amount
    blind: Amount
    free_memory: Number
    shortest_answer: Tokens


class Gate(Part, frozen=True, kw_only=True):
    """One gate. It has one bound.

    Attributes:
        measure: What is read; the gate's name by default.
        about: What it is good for, in a sentence.
        at_most: The value is this or less.
        at_least: The value is this or more.
        above: The value is more than this.
        below: The value is less than this.
        within: The value is this or less on either side of 0.
        by: What is held against the bound: the value, or the end of its 95 % interval that is nearer to the bound.
        over_autoregressive: The value is divided by that of autoregressive decoding.
        against: What autoregressive decoding reached where the bound was chosen; shown beside what it reached here.
        needs: The fewest samples that the value is made of; fewer are no measurement.
        series: Series of `needs` requests each, in the order in which they ran. Every one must hold.
        run: The run that is read. A soak that is given alone is read for both.
        arm: The speculative arm, or its baseline.
        tier: Only requests of this context tier.
        kind: Only prompts of this kind.
        min_input_tokens: Only requests with so many input tokens or more.
        max_input_tokens: Only requests with so many input tokens or fewer.
        k: The arm of this draft length, all else as in the arm that is judged.
        concurrency: Likewise the arm of so many requests at once.
        window: First and last token of an answer that are read.
        drop: Tokens at the beginning of an answer that are never read.
        seconds: Seconds that the run must have lasted.
        swap_episodes: Episodes of swapping, in so many days, without which a rise of memory does not matter.
        days: Days in which they are counted.
        quantised_difference: With a quantised target, of which no engine promises equal answers, the share of them that
            may differ; it takes the place of the bound. Without it the bound holds for such a target as for any.
        level: What a failure does: it rejects the run, or it is only told.
        enabled: Whether it is looked at.
    """

    measure: str
    about: str = ""
    at_most: Number | None = None
    at_least: Number | None = None
    above: Number | None = None
    below: Number | None = None
    within: Number | None = None
    by: Literal["value", "interval"] = "value"
    over_autoregressive: bool = False
    against: Amount | None = None
    needs: Count | str = 1
    series: Count | None = None
    run: Literal["sweep", "soak"] = "sweep"
    arm: Literal["speculative", "autoregressive"] = "speculative"
    tier: Literal["short", "mid", "long"] | None = None
    kind: Literal["code", "summary", "translation", "json_tool", "other"] | None = None
    min_input_tokens: Count | None = None
    max_input_tokens: Count | str | None = None
    k: Length | None = None
    concurrency: Length | None = None
    window: tuple[Tokens, ...] = ()
    drop: Tokens | None = None
    seconds: Amount | None = None
    swap_episodes: Count | None = None
    days: Amount | None = None
    quantised_difference: Share | None = None
    level: Literal["gate", "warning"] = "gate"
    enabled: bool = True

    @property
    def bound(self) -> Bound:
        """Which bound it has."""
        return next(each for each in BOUNDS if getattr(self, each) is not None)

    @property
    def limit(self) -> float:
        """The number of its bound."""
        return number(getattr(self, self.bound))

    @property
    def samples(self) -> int:
        """The number of `needs`."""
        return int(number(self.needs))

    def holds(self, value: float, low: float | None, high: float | None) -> bool | None:
        """Return whether a value, or its interval where that is what counts, is on the right side.

        Returns:
            None where the interval counts and there is none.
        """
        if self.by == "value":
            low = high = value
        if low is None or high is None:
            return None
        worst = {"at_most": high, "below": high, "at_least": low, "above": low, "within": max(abs(low), abs(high))}
        found, limit = worst[self.bound], self.limit
        if self.bound in ("at_most", "within"):
            return found <= limit
        if self.bound == "at_least":
            return found >= limit
        return found > limit if self.bound == "above" else found < limit


class Waiver(Part, frozen=True, kw_only=True):
    """A failure that somebody answers for.

    Attributes:
        gate: Name of the gate.
        who: Who answers for it.
        reason: Why.
        expires: The last day on which it counts, in UTC.
    """

    gate: str
    who: str
    reason: str
    expires: date


class GatesPolicy(Struct, frozen=True, kw_only=True):
    """All of it.

    Attributes:
        preset: What it was made from; None if it has only gates of its own.
        validity: What makes a run valid.
        gates: The gates by name, in the order in which they are shown.
        waivers: What was waived.
    """

    preset: Preset | None
    validity: Validity
    gates: dict[str, Gate]
    waivers: tuple[Waiver, ...] = ()

    @property
    def digest(self) -> str:
        """Return 16 hex digits that tell two policies apart."""
        return sha256(json.encode([self, [gate.limit for gate in self.gates.values()]])).hexdigest()[:16]


def number(value: Number) -> float:
    """Return a number, or the one in thresholds.toml that has this name.

    Raises:
        KeyError: There is none.
    """
    return numbers()[value] if isinstance(value, str) else float(value)


@cache
def numbers() -> dict[str, float]:
    """Return the numbers in thresholds.toml by name."""
    return dict(_numbers(thresholds(), ""))


def _numbers(table: Mapping[str, Any], before: str) -> Iterator[tuple[str, float]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{before}{key}.")
        elif isinstance(value, (int, float)):
            yield f"{before}{key}", float(value)
