"""What is asked for, and when: made beforehand out of a seed, so that two runs ask the same."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from otel_specdecode.demo.needs import DemoError

Way = Literal["alone", "draft k=4", "draft k=2", "prompt lookup", "draft k=0", "bad draft"]
"""How a request is generated."""

DRAFT_LENGTHS: Mapping[Way, int] = {"draft k=4": 4, "draft k=2": 2, "draft k=0": 0, "bad draft": 4}
"""Tokens of a proposal, in the ways that have a draft model."""

TENANTS = ("acme", "globex")
NOISY_TENANT = TENANTS[1]
"""Sends most of what meets the bad draft."""

_DECK: tuple[Way, ...] = (
    *("alone",) * 5,
    *("draft k=4",) * 9,
    *("draft k=2",) * 3,
    *("prompt lookup",) * 2,
    "draft k=0",
)
_NOISY_SHARE = 0.85
_BURST_SECONDS = 20.0
_SWING, _SWING_SECONDS = 0.4, 150.0
# Of the requests of an engine each so many-th, counted from the second number.
_FAILS, _LONG, _CLOSED = (100, 8), (40, 12), (12, 5)


@dataclass(frozen=True)
class Burst:
    """When the draft is a bad one, in seconds since the beginning.

    Attributes:
        start: From then on.
        seconds: For so long; 0 for never.
    """

    start: float
    seconds: float

    def holds(self, at: float) -> bool:
        """Return whether it goes on at a time."""
        return self.start <= at < self.start + self.seconds


@dataclass(frozen=True)
class Load:
    """How much is asked of each engine.

    Attributes:
        seconds: For how long.
        rate: Requests a second, in the mean: they come in waves.
        seed: Of all that is random.
        burst: When the draft is a bad one.
    """

    seconds: float
    rate: float
    seed: int
    burst: Burst


def load_of(
    seconds: float, rate: float, seed: int, burst_at: float | None = None, burst_seconds: float | None = None
) -> Load:
    """Return a load with a burst in the middle, unless it is said when.

    Args:
        seconds: For how long.
        rate: Requests a second.
        seed: Of all that is random.
        burst_at: Seconds after which the draft is a bad one.
        burst_seconds: For how many seconds; 0 for never.

    Raises:
        DemoError: If the burst would not be over before the end.
    """
    lasts = min(_BURST_SECONDS, seconds / 3) if burst_seconds is None else burst_seconds
    start = seconds / 2 if burst_at is None else burst_at
    if lasts and start + lasts > seconds:
        raise DemoError(f"a burst from {start:g} to {start + lasts:g} s does not fit into {seconds:g} s")
    return Load(seconds, rate, seed, Burst(start, lasts))


@dataclass(frozen=True)
class Arrival:
    """One request.

    Attributes:
        at: When it comes, in seconds since the beginning.
        way: How it is generated.
        prompt: Picks a prompt.
        long: Whether its prompt has more tokens than the short context tier.
        tokens: The most tokens it emits.
        temperature: 0 for greedy.
        seed: Of its sampling.
        tenant: On whose behalf.
        close_after: Its reader leaves after so many tokens; None for one who stays.
        pause: Seconds that its reader takes for each token.
        fails: Whether the engine is made to raise.
    """

    at: float
    way: Way
    prompt: int
    long: bool
    tokens: int
    temperature: float
    seed: int
    tenant: str
    close_after: int | None
    pause: float
    fails: bool


def arrivals(load: Load, engine: str, ways: Sequence[Way]) -> Iterator[Arrival]:
    """Return the requests of an engine in the order in which they come.

    Args:
        load: How much.
        engine: Its name: two engines are not asked the same at the same time.
        ways: What the engine has; what it has not runs with the draft at k = 4.
    """
    chance = random.Random(f"{load.seed} {engine}")  # noqa: S311 - nothing secret
    deck = _shuffled(chance)
    at = 0.0
    for number in itertools.count():
        at += chance.expovariate(load.rate * _wave(at))
        if at >= load.seconds:
            return
        yield _arrival(chance, load, at, number, next(deck), ways)


def _arrival(chance: random.Random, load: Load, at: float, number: int, dealt: Way, ways: Sequence[Way]) -> Arrival:
    burst = load.burst.holds(at)
    noisy = burst and chance.random() < _NOISY_SHARE
    way: Way = "bad draft" if noisy else dealt if dealt in ways else "draft k=4"
    long = not noisy and _each(number, _LONG)
    return Arrival(
        at=at,
        way=way,
        prompt=chance.randrange(1_000_000),
        long=long,
        tokens=24 if long else chance.choice((32, 48, 64)),
        temperature=chance.choice((0.0, 0.0, 0.7)),
        seed=chance.randrange(1_000_000),
        tenant=_tenant(chance, burst, noisy),
        close_after=chance.randrange(4, 20) if _each(number, _CLOSED) and not noisy else None,
        pause=0.0 if noisy or chance.random() < 0.5 else chance.uniform(0.02, 0.08),
        fails=_each(number, _FAILS) and not noisy,
    )


def _tenant(chance: random.Random, burst: bool, noisy: bool) -> str:
    if burst:
        return NOISY_TENANT if noisy else TENANTS[0]
    return chance.choice(TENANTS)


def _each(number: int, rule: tuple[int, int]) -> bool:
    every, first = rule
    return number % every == first


def _wave(at: float) -> float:
    """Return by how much there is more to do at a time than in the mean."""
    return 1 + _SWING * math.sin(2 * math.pi * at / _SWING_SECONDS)


def _shuffled(chance: random.Random) -> Iterator[Way]:
    """Deal the deck again and again, so that a short run has every way too."""
    while True:
        yield from chance.sample(_DECK, len(_DECK))
