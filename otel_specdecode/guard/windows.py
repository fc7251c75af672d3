"""What the guard measures of speculative requests: sums of rounds, and samples of requests, until a window is full."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from otel_specdecode.generation.counts import Counts
from otel_specdecode.guard.baseline import Baseline, Conditions, quantile
from otel_specdecode.guard.policy import Measure
from otel_specdecode.thresholds import thresholds

NANOSECONDS = 1e9

LONGEST_PASS = 60.0
"""Seconds above which a decode pass was none: the process stood still, or the clock jumped."""

COMPARABLE = 0.8
"""Share of a window that must have a baseline for a relative measure to be known."""

SURELY_FASTER = 1.2
"""Speed-up from which on nobody asks whether the target is slow for all."""

ASKED = 0.25
"""Share of a window in which the draft must have been asked for a proposal for it to be known how often it had none."""

_FASTER = frozenset(("speedup", "service_speedup"))

Values = dict[Measure, float]
"""What was measured; a measure that is not known is not there."""


class Closed(NamedTuple):
    """A full window.

    Attributes:
        values: What it says.
        samples: Rounds or requests that it is of.
        seconds: From its first to its last; of rounds, from when the first one began.
        lengths: Compared tokens by the draft length of their request, None where that is unknown.
        suspect: Whether it looks bad against the baseline, and too few requests without a draft ran at the same time
            to tell whether the target is slow for all: what looks bad is then not known yet.
    """

    values: Values
    samples: int
    seconds: float
    lengths: Mapping[int | None, int] = {}
    suspect: bool = False


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
    _first: float = 0.0
    """When the first round began. All rounds of a stretch come at once, so their own times tell more than the clock."""
    _accepted: int = 0
    _compared: int = 0
    _finished: int = 0
    _all_rejected: int = 0
    _lengths: dict[int | None, int] = field(default_factory=dict)
    _timed: dict[Conditions, _Timed] = field(default_factory=dict)

    def add(
        self, counts: Counts, pass_times: Sequence[int], length: int | None, conditions: Conditions, now: float
    ) -> None:
        """Take what a stretch added.

        Args:
            counts: Its tokens and passes.
            pass_times: Duration (ns) of each decode pass whose duration is known.
            length: Draft length of its request, None if unknown.
            conditions: What a baseline has to be of, to be comparable.
            now: Clock reading in seconds.
        """
        taken = sum(pass_times) / NANOSECONDS if are_passes(pass_times) else 0.0
        if not self.rounds:
            self._began = self._first = now
        self._first = min(self._first, now - taken)
        self._last = now
        self.rounds += counts.rounds
        self._accepted += counts.accepted
        compared = counts.accepted + counts.rejected
        self._compared += compared
        self._lengths[length] = self._lengths.get(length, 0) + compared
        self._finished += counts.finished_rounds
        self._all_rejected += counts.all_rejected
        passes = counts.decode_passes
        if passes and taken:
            timed = self._timed.setdefault(conditions, _Timed())
            emitted = counts.accepted + counts.finished_rounds + counts.plain_passes
            timed.tokens += emitted * min(len(pass_times) / passes, 1.0)
            timed.seconds += taken

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
        even, drift = self._break_even(baseline, now), baseline.drift_of_passes(self._timed, self._began)
        suspect = even is not None and even < 1 and drift is None
        if even is not None and not suspect:
            values["break_even"] = even * (drift or 1.0)
        return Closed(values, self.rounds, max(self._last - self._first, 0.0), self._lengths, suspect)

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
        if not taken or not without or comparable < COMPARABLE * tokens:
            return None
        return without / taken


def are_passes(times: Sequence[int]) -> bool:
    """Return whether durations (ns) can be those of decode passes."""
    return bool(times) and max(times) <= LONGEST_PASS * NANOSECONDS


@dataclass(slots=True)
class RequestWindow:
    """Requests in a row of one lane."""

    requests: int = 0
    _began: float = 0.0
    _last: float = 0.0
    _asked: int = 0
    _without_proposal: int = 0
    _met: set[Conditions] = field(default_factory=set)
    _queued: list[float] = field(default_factory=list)
    _per_token: list[float] = field(default_factory=list)
    _first: list[float] = field(default_factory=list)
    _least_usual: int = 0
    _uncompared: int = 0
    _lacking: Conditions | None = None
    _speedups: list[float] = field(default_factory=list)

    def add(
        self,
        conditions: Conditions,
        baseline: Baseline,
        now: float,
        *,
        proposed: int | None,
        queued: float | None,
        time_per_token: float | None,
        time_to_first_token: float | None,
    ) -> None:
        """Take one finished request that did not fail.

        Args:
            conditions: What a baseline has to be of, to be comparable.
            baseline: What it is held against, as of now.
            now: Clock reading in seconds.
            proposed: Proposed tokens, None where none were asked for or it costs nothing to propose none.
            queued: Seconds that it waited, None outside of servers.
            time_per_token: Seconds a token after the first burst, None with too few of them.
            time_to_first_token: Seconds, None without a token.
        """
        if not self.requests:
            self._began = now
        self._last = now
        self._met.add(conditions)
        self.requests += 1
        if proposed is not None:
            self._asked += 1
            self._without_proposal += not proposed
        if queued is not None and 0 <= queued < math.inf:
            self._queued.append(queued)
        usual = baseline.requests(conditions, now)
        if usual is None:
            self._uncompared += 1
            self._lacking = conditions
            return
        if not self._least_usual or usual.requests < self._least_usual:
            self._least_usual = usual.requests
        if time_per_token is not None and 0 < time_per_token < math.inf:
            if usual.time_per_token_p95:
                self._per_token.append(time_per_token / usual.time_per_token_p95)
            if usual.time_per_token_p50:
                self._speedups.append(usual.time_per_token_p50 / time_per_token)
        usually_first = usual.time_to_first_token_p50
        if usually_first and time_to_first_token is not None and 0 <= time_to_first_token < math.inf:
            self._first.append(time_to_first_token / usually_first)

    def is_stale(self, now: float, max_age: float) -> bool:
        """Return whether what it holds is too old to count."""
        return bool(self.requests) and now - self._began > max_age

    @property
    def lacking(self) -> Conditions | None:
        """Those of the last request that had no baseline, None where so few had none that the window is comparable."""
        return None if self.requests - self._uncompared >= COMPARABLE * self.requests else self._lacking

    def close(self, baseline: Baseline, service_speedup: float | None) -> Closed:
        """Return what it says.

        Args:
            baseline: What its requests were held against.
            service_speedup: Output a second of the whole service over the baseline's, None if not comparable.
        """
        values: Values = {}
        if self._asked and self._asked >= ASKED * self.requests:
            values["nothing_proposed"] = self._without_proposal / self._asked
        if self._queued:
            values["queue"] = quantile(self._queued, 0.95)
        drift = baseline.drift_of_requests(self._met, self._began, self._last)
        relative = self._relative(service_speedup)
        suspects = {measure for measure, value in relative.items() if drift is None and _looks_bad(measure, value)}
        for measure, value in relative.items():
            if measure not in suspects:
                by = drift or 1.0
                values[measure] = value * by if measure in _FASTER else value / by
        return Closed(values, self.requests, max(self._last - self._began, 0.0), suspect=bool(suspects))

    def _relative(self, service_speedup: float | None) -> Values:
        enough = COMPARABLE * self.requests
        found: Values = {}
        if len(self._per_token) >= enough:
            found["time_per_token"] = quantile(self._per_token, 0.95)
        if len(self._speedups) >= enough:
            found["speedup"] = quantile(self._speedups, 0.5)
        if len(self._first) >= enough:
            found["time_to_first_token"] = quantile(self._first, 0.5) - self._chance()
        if service_speedup is not None:
            found["service_speedup"] = service_speedup
        return found

    def _chance(self) -> float:
        """Return how far two medians of requests of the same kind may be apart because their prompts differ."""
        spread: float = thresholds()["over_autoregressive"]["time_to_first_token_spread"]
        return spread * math.sqrt(1 / len(self._first) + 1 / max(self._least_usual, 1))


def _looks_bad(measure: Measure, value: float) -> bool:
    return value < SURELY_FASTER if measure in _FASTER else value > 1
