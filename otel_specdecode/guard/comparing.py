"""Whether requests of a scope can be held against requests without a draft; when that changes, it is told with why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from otel_specdecode.guard.baseline import Baseline, Conditions
from otel_specdecode.guard.breaker import measure_of
from otel_specdecode.guard.lanes import LaneState
from otel_specdecode.guard.policy import RELATIVE, Policy
from otel_specdecode.guard.telling import Telling

SURE_AFTER: Final = 2
"""Full windows of requests in a row that say otherwise than those before: traffic of a changing mix tells no news."""

_OF_SINGLE_REQUESTS: Final = RELATIVE - {"service_speedup"}


class Comparing:
    """Watches whether scopes have a baseline. Not for several threads."""

    def __init__(self, policy: Policy, baseline: Baseline, telling: Telling) -> None:
        """Begin.

        Args:
            policy: The rules; without one that compares single requests nothing is told.
            baseline: What scopes are held against.
            telling: Told when a scope begins to have no baseline, and when it has one again.
        """
        self._baseline = baseline
        self._telling = telling
        self._compares = any(measure_of(*each) in _OF_SINGLE_REQUESTS for each in policy.triggers.items())

    def take(self, lane: LaneState, conditions: Conditions, now: float) -> None:
        """Take a scope's full window of requests, the last of which ran under such conditions."""
        lacking = lane.requests.lacking
        if not self._compares or (lacking is not None) is lane.lacks_baseline:
            lane.windows_otherwise = 0
            return
        lane.windows_otherwise += 1
        if lane.windows_otherwise < SURE_AFTER:
            return
        lane.lacks_baseline, lane.windows_otherwise = lacking is not None, 0
        told_of = lacking or conditions
        standing = self._baseline.standing(told_of, now) if lacking else "known"
        self._telling.add_baseline(lane.lane, told_of, standing, self._baseline.count(told_of))

    def without_baseline(self, lanes: Iterable[LaneState], now: float) -> int:
        """Return how many scopes' last requests could not be compared with any without a draft."""
        met = (lane.conditions for lane in lanes)
        return sum(conditions is None or self._baseline.thin(conditions, now) for conditions in met)
