"""What the guard measures of speculative requests: sums of rounds, and samples of requests, until a window is full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from otel_specdecode.generation.counts import Counts
from otel_specdecode.guard.baseline import Baseline, Conditions, quantile
from otel_specdecode.guard.policy import Measure

NANOSECONDS = 1e9

COMPARABLE = 0.8
"""Share of a window that must have a baseline for a relative measure to be known."""

Values = dict[Measure, float]
"""What was measured; a measure that is not known is not there."""


class Closed(NamedTuple):
    """A full window.

    Attributes:
        values: What it says.
        samples: Rounds or requests that it is of.
        seconds: From its first to its last.
    """

    values: Values
    samples: int
    seconds: float


@dataclass(slots=True)
class _Timed:
    tokens: float = 0.0
    seconds: float = 0.0


@dataclass(slots=True)
class RoundWindow:
    """Rounds in a row of one lane.

    Attributes:
        rounds: Rounds so far.
    """

    rounds: int = 0
    _began: float = 0.0
    _last: float = 0.0
    _accepted: int = 0
    _compared: int = 0
    _finished: int = 0
    _all_rejected: int = 0
    _timed: dict[Conditions, _Timed] = field(default_factory=dict)

    def add(self, counts: Counts, pass_times: Sequence[int], conditions: Conditions, now: float) -> None:
        """Take what a stretch added.

        Args:
            counts: Its tokens and passes.
            pass_times: Duration (ns) of each decode pass whose duration is known.
            conditions: What a baseline has to be of, to be comparable.
            now: Clock reading in seconds.
        """
        if not self.rounds:
            self._began = now
        self._last = now
        self.rounds += counts.rounds
        self._accepted += counts.accepted
        self._compared += counts.accepted + counts.rejected
        self._finished += counts.finished_rounds
        self._all_rejected += counts.all_rejected
        passes = counts.decode_passes
        if passes and pass_times:
            timed = self._timed.setdefault(conditions, _Timed())
            emitted = counts.accepted + counts.finished_rounds + counts.plain_passes
            timed.tokens += emitted * min(len(pass_times) / passes, 1.0)
            timed.seconds += sum(pass_times) / NANOSECONDS

    def is_stale(self, now: float, max_age: float) -> bool:
        """Return whether what it holds is too old to count."""
        return bool(self.rounds) and now - self._began > max_age

    def close(self, baseline: Baseline, now: float) -> Closed:
        """Return what it says."""
        values: Values = {}
        if self._compared:
            values["accept_rate"] = self._accepted / self._compared
        if self._finished:
            values["all_rejected"] = self._all_rejected / self._finished
        even = self._break_even(baseline, now)
        if even is not None:
            values["break_even"] = even
        return Closed(values, self.rounds, max(self._last - self._began, 0.0))

    def _break_even(self, baseline: Baseline, now: float) -> float | None:
        """Return the time that these tokens take without a draft over the time that they took.

        It is acceptance length over the ratio of round durations, with each tier and condition at its own share, so
        that a change of the mix alone moves nothing.
        """
        tokens = comparable = taken = without = 0.0
        for conditions, timed in self._timed.items():
            tokens += timed.tokens
            each = baseline.round_seconds(conditions, now)
            if each is not None:
                comparable += timed.tokens
                taken += timed.seconds
                without += timed.tokens * each
        if not taken or comparable < COMPARABLE * tokens:
            return None
        return without / taken


@dataclass(slots=True)
class RequestWindow:
    """Requests in a row of one lane."""

    requests: int = 0
    _began: float = 0.0
    _last: float = 0.0
    _without_proposal: int = 0
    _queued: list[float] = field(default_factory=list)
    _per_token: list[float] = field(default_factory=list)
    _first: list[float] = field(default_factory=list)
    _speedups: list[float] = field(default_factory=list)

    def add(
        self,
        conditions: Conditions,
        baseline: Baseline,
        now: float,
        *,
        proposed: int,
        queued: float | None,
        time_per_token: float | None,
        time_to_first_token: float | None,
    ) -> None:
        """Take one finished request that did not fail.

        Args:
            conditions: What a baseline has to be of, to be comparable.
            baseline: What it is held against, as of now.
            now: Clock reading in seconds.
            proposed: Proposed tokens.
            queued: Seconds that it waited, None outside of servers.
            time_per_token: Seconds a token after the first burst, None with too few of them.
            time_to_first_token: Seconds, None without a token.
        """
        if not self.requests:
            self._began = now
        self._last = now
        self.requests += 1
        self._without_proposal += not proposed
        if queued is not None:
            self._queued.append(queued)
        usual = baseline.requests(conditions, now)
        if usual is None:
            return
        if time_per_token and usual.time_per_token_p95:
            self._per_token.append(time_per_token / usual.time_per_token_p95)
        if time_per_token and usual.time_per_token_p50:
            self._speedups.append(usual.time_per_token_p50 / time_per_token)
        if time_to_first_token is not None and usual.time_to_first_token_p50:
            self._first.append(time_to_first_token / usual.time_to_first_token_p50)

    def is_stale(self, now: float, max_age: float) -> bool:
        """Return whether what it holds is too old to count."""
        return bool(self.requests) and now - self._began > max_age

    def close(self, service_speedup: float | None) -> Closed:
        """Return what it says.

        Args:
            service_speedup: Output a second of the whole service over the baseline's, None if not comparable.
        """
        values: Values = {"nothing_proposed": self._without_proposal / self.requests}
        if self._queued:
            values["queue"] = quantile(self._queued, 0.95)
        enough = COMPARABLE * self.requests
        if len(self._per_token) >= enough:
            values["time_per_token"] = quantile(self._per_token, 0.95)
        if len(self._speedups) >= enough:
            values["speedup"] = quantile(self._speedups, 0.5)
        if len(self._first) >= enough:
            values["time_to_first_token"] = quantile(self._first, 0.5)
        if service_speedup is not None:
            values["service_speedup"] = service_speedup
        return Closed(values, self.requests, max(self._last - self._began, 0.0))
