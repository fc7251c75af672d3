"""Finds bursts of rejection: times in which a draft is rejected far more than it was before.

Most rounds of a healthy draft of four tokens roll back, so a burst is no number of rollbacks. It is a jump of the
rejected tokens per 1,000 output tokens, or of the share of rounds without one accepted token, over their own median.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple, TypeVar

from otel_specdecode.generation.counts import Counts
from otel_specdecode.thresholds import thresholds

NANOSECONDS = 1_000_000_000
_PER = 1_000

_Key = TypeVar("_Key")

_MOST_RANKED = 64
"""Requests, and tenants, whose rejected tokens are kept apart during a burst."""

_MOST_COUNTED = 10_000
"""Requests that a burst counts; more are as bad."""

_MOST_ENDED = 1_024
"""Requests that are remembered after they ended without a mark. Those in a window of rounds are fewer."""


class Source(NamedTuple):
    """The request that rounds belong to.

    Attributes:
        request: Tells one request from another.
        trace: Id of its trace, None if nobody keeps that.
        tenant: On whose behalf, None if that is not known.
    """

    request: int
    trace: str | None = None
    tenant: str | None = None


class Level(NamedTuple):
    """How much is rejected.

    Attributes:
        rejected: Rejected tokens per 1,000 output tokens, correction and bonus tokens included.
        all_rejected: Share of the finished rounds that got no proposed token accepted, 0 to 1.
    """

    rejected: float
    all_rejected: float


@dataclass(frozen=True, slots=True)
class Burst:
    """A burst of rejection, as far as it is known.

    Attributes:
        start: Wall clock (ns) at which its first rounds began to be counted.
        end: Wall clock (ns) of its last rounds.
        peak: The highest levels in it, each by itself.
        baseline: The medians it is held against, None where there was too little history.
        rounds: Finished rounds in it.
        rollbacks: Rounds in it with a rejected token.
        decode_seconds: Decode time of its rounds, of all requests together, in s.
        requests: Requests with a rejected token in it.
        tenants: Tenants of those with their rejected tokens, worst first; of many, the worst.
        worst: Traces of the requests with the most rejected tokens, worst first: only such as are marked, or will be
            when they end, so that one who samples by the mark has kept them.
    """

    start: int
    end: int
    peak: Level
    baseline: Level | None
    rounds: int
    rollbacks: int
    decode_seconds: float
    requests: int
    tenants: tuple[tuple[str, int], ...]
    worst: tuple[str, ...]

    @property
    def rollbacks_per_minute(self) -> float:
        """Rollbacks per minute of decode; 0 where no decode time was seen."""
        return 60 * self.rollbacks / self.decode_seconds if self.decode_seconds else 0.0


@dataclass(slots=True)
class _Block:
    """Rounds that are counted together."""

    start: int
    end: int
    rounds: int = 0
    tokens: int = 0
    rejected: int = 0
    all_rejected: int = 0
    rollbacks: int = 0
    seconds: float = 0.0
    by_source: dict[Source, int] = field(default_factory=dict)

    def take(self, at: int, counts: Counts, seconds: float, source: Source) -> None:
        """Add rounds that ended at a time."""
        self.end = max(self.end, at)
        self.rounds += counts.finished_rounds
        self.tokens += counts.decode_tokens
        self.rejected += counts.rejected
        self.all_rejected += counts.all_rejected
        self.rollbacks += counts.rollbacks
        self.seconds += seconds
        if counts.rejected:
            self.by_source[source] = self.by_source.get(source, 0) + counts.rejected

    def join(self, later: _Block) -> None:
        """Add the rounds of another block; of the requests those with the most rejected tokens are kept."""
        self.start, self.end = min(self.start, later.start), max(self.end, later.end)
        self.rounds += later.rounds
        self.rollbacks += later.rollbacks
        self.seconds += later.seconds
        for source, rejected in later.by_source.items():
            _count(self.by_source, source, rejected)


class _Open:
    """A burst that goes on."""

    def __init__(self, baseline: Level | None) -> None:
        self.baseline = baseline
        self.peak = Level(0.0, 0.0)
        self._whole: _Block | None = None
        self._pending: _Block | None = None
        self._requests: set[int] = set()
        self._tenants: dict[str, int] = {}

    def add(self, block: _Block) -> None:
        """Take a block that belongs to it, and those that were undecided before it."""
        for each in (self._pending, block):
            if each is not None:
                self._involve(each)
                self._whole = _joined(self._whole, each)
        self._pending = None

    def wait(self, block: _Block) -> None:
        """Keep a block that belongs to it only if the burst goes on after it."""
        self._pending = _joined(self._pending, block)

    def rise(self, level: Level) -> None:
        """Keep the highest levels."""
        self.peak = Level(*map(max, self.peak, level))

    def told(self, without: Container[int]) -> tuple[Burst, tuple[int, ...]]:
        """Return the burst so far, with the traces of the worst of all requests but these, and those requests."""
        whole = self._whole or _Block(0, 0)
        worst: dict[str, int] = {}
        for source, _ in _ranked(whole.by_source):
            if source.trace is not None and source.request not in without:
                worst.setdefault(source.trace, source.request)
        named = tuple(worst.items())[: thresholds()["burst"]["worst"]]
        burst = Burst(
            start=whole.start,
            end=whole.end,
            peak=self.peak,
            baseline=self.baseline,
            rounds=whole.rounds,
            rollbacks=whole.rollbacks,
            decode_seconds=whole.seconds,
            requests=len(self._requests),
            tenants=tuple(_ranked(self._tenants)[: thresholds()["burst"]["tenants"]]),
            worst=tuple(trace for trace, _ in named),
        )
        return burst, tuple(request for _, request in named)

    def _involve(self, block: _Block) -> None:
        for source, rejected in block.by_source.items():
            if len(self._requests) < _MOST_COUNTED:
                self._requests.add(source.request)
            if source.tenant is not None:
                _count(self._tenants, source.tenant, rejected)


class BurstDetector:
    """Watches the rounds of one model with one draft, of all its requests. Constant work and memory a block of rounds.

    Times come from outside, so that a test or a replay decides them. They may come a little out of order, as parts of
    several streams do.
    """

    def __init__(self) -> None:
        """Start without history."""
        rule = thresholds()["burst"]
        self._rule = rule
        self._block_rounds = rule["rounds"] // rule["blocks"]
        self._current: _Block | None = None
        self._window: deque[_Block] = deque(maxlen=rule["blocks"])
        self._since_kept = 0
        self._history: deque[Level] = deque(maxlen=rule["most_history"])
        self._open: _Open | None = None
        self._unmarked: dict[int, None] = {}
        self._owed: deque[int] = deque(maxlen=_MOST_RANKED)

    @property
    def in_burst(self) -> bool:
        """Whether a burst goes on."""
        return self._open is not None

    def observe(self, at: int, counts: Counts, seconds: float, source: Source) -> tuple[bool, Burst | None]:
        """Take rounds that ended.

        Args:
            at: Wall clock (ns) of the last of them.
            counts: What they added.
            seconds: Their decode time, in s.
            source: The request they belong to.

        Returns:
            Whether a burst has begun, and the burst that has ended, None if none has.
        """
        ended = self._settle(at)
        if not counts.finished_rounds:
            return False, ended
        if self._current is None:
            self._current = _Block(at - round(seconds * NANOSECONDS), at)
        block = self._current
        block.take(at, counts, seconds, source)
        if block.rounds < self._block_rounds:
            return False, ended
        self._current = None
        began, ended_now = self._close(block)
        return began, ended or ended_now

    def settle(self, now: int) -> Burst | None:
        """End a burst whose rounds have stopped coming, and forget rounds that are too old to be judged with new ones.

        Where the clock was turned back, what came before cannot be judged with what comes now.

        Args:
            now: Wall clock (ns).

        Returns:
            The burst that has ended, None if none has.
        """
        if -self._silent(now) <= self._rule["idle"]:
            return self._settle(now)
        ended = self.finish()
        self._forget()
        return ended

    def _settle(self, at: int) -> Burst | None:
        """As settle(), at a time that may lie behind that of other streams, since a consumer may hold one for long."""
        silent = self._silent(at)
        if self._open is not None and silent > self._rule["idle"]:
            return self._end()
        if silent > self._rule["stale"]:
            self._forget()
        return None

    def _silent(self, at: int) -> float:
        """Return for how long (s) there was no round before a time; below 0 if there was one after it."""
        blocks = [*self._window, *([self._current] if self._current else [])]
        return (at - max((block.end for block in blocks), default=at)) / NANOSECONDS

    def _forget(self) -> None:
        self._window.clear()
        self._current = None

    def mark(self, source: Source) -> bool:
        """Take note that a request ends.

        Returns:
            Whether it is to be marked: a burst goes on, or one that ended while it ran names it among the worst.
        """
        if self.in_burst or source.request in self._owed:
            return True
        self._unmarked[source.request] = None
        if len(self._unmarked) > _MOST_ENDED:
            del self._unmarked[next(iter(self._unmarked))]
        return False

    def finish(self) -> Burst | None:
        """End the burst that goes on, as the process ends; None if none does."""
        return None if self._open is None else self._end()

    def _close(self, block: _Block) -> tuple[bool, Burst | None]:
        self._window.append(block)
        if len(self._window) < self._rule["blocks"]:
            return False, None
        level = _level(self._window)
        if self._open is not None:
            return False, self._go_on(self._open, block, level)
        baseline = self._baseline()
        if self._is_burst(level, baseline):
            self._begin(baseline, level)
            return True, None
        self._since_kept += 1
        if self._since_kept >= self._rule["blocks"]:
            self._since_kept = 0
            self._history.append(level)
        return False, None

    def _begin(self, baseline: Level | None, level: Level) -> None:
        """Begin with the blocks of the window that are above the bound themselves, the last one at least."""
        opened = self._open = _Open(baseline)
        opened.rise(level)
        blocks = list(self._window)
        first = next((place for place, each in enumerate(blocks) if self._is_burst(_level([each]), baseline)), -1)
        for block in blocks[first:]:
            opened.add(block)

    def _go_on(self, opened: _Open, block: _Block, level: Level) -> Burst | None:
        """Take one more block. Where the window is calm the burst has ended, with its last block above the bound."""
        if self._is_calm(level, opened.baseline):
            return self._end()
        if self._is_burst(_level([block]), opened.baseline):
            opened.rise(level)
            opened.add(block)
        else:
            opened.wait(block)
        return None

    def _end(self) -> Burst | None:
        opened, self._open = self._open, None
        self._window.clear()
        self._since_kept = 0
        if opened is None:
            return None
        burst, named = opened.told(self._unmarked)
        self._owed.extend(named)
        return burst

    def _baseline(self) -> Level | None:
        if len(self._history) < self._rule["least_history"]:
            return None
        rejected, all_rejected = zip(*self._history, strict=True)
        return Level(median(rejected), median(all_rejected))

    def _bounds(self, baseline: Level | None) -> Level:
        """Return the levels above which there is a burst."""
        rule = self._rule
        if baseline is None:
            return Level(float("inf"), rule["all_rejected_ceiling"])
        rejected, share = baseline
        jump = max(share * rule["all_rejected_jump"], share + rule["all_rejected_rise"])
        return Level(
            max(rejected * rule["rejected_jump"], rejected + rule["rejected_rise"]),
            min(jump, share + rule["all_rejected_leap"]),
        )

    def _is_burst(self, level: Level, baseline: Level | None) -> bool:
        bounds = self._bounds(baseline)
        return level.rejected > bounds.rejected or level.all_rejected > bounds.all_rejected

    def _is_calm(self, level: Level, baseline: Level | None) -> bool:
        bounds, base = self._bounds(baseline), baseline or Level(0.0, 0.0)
        return all(
            value <= low + self._rule["calm"] * (bound - low)
            for value, low, bound in zip(level, base, bounds, strict=True)
        )


def _count(rejected: dict[_Key, int], key: _Key, amount: int) -> None:
    """Add to a count; beyond a number of them the smallest is forgotten."""
    rejected[key] = rejected.get(key, 0) + amount
    if len(rejected) > _MOST_RANKED:
        del rejected[min(rejected, key=lambda each: rejected[each])]


def _ranked(rejected: dict[_Key, int]) -> list[tuple[_Key, int]]:
    """Return the counts, the largest first."""
    return sorted(rejected.items(), key=lambda item: item[1], reverse=True)


def _joined(whole: _Block | None, block: _Block) -> _Block:
    if whole is None:
        whole = _Block(block.start, block.end)
    whole.join(block)
    return whole


def _level(blocks: Iterable[_Block]) -> Level:
    rounds = tokens = rejected = all_rejected = 0
    for block in blocks:
        rounds += block.rounds
        tokens += block.tokens
        rejected += block.rejected
        all_rejected += block.all_rejected
    return Level(_PER * rejected / max(tokens, 1), all_rejected / max(rounds, 1))
