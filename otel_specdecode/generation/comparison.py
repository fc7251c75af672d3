"""What a scope of the guard is held against, when it comes or goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from otel_specdecode.generation.transition import Lane

Standing = Literal["known", "missing", "thin", "stale", "not_comparable"]
"""There is a baseline; no request without a draft was seen; too few; too old ones; only under other conditions."""


@dataclass(frozen=True, slots=True)
class BaselineChange:
    """A scope begins to have no baseline, or has one again.

    Attributes:
        at: Time of day, ns since the epoch.
        lane: The scope.
        standing: How it stands from now on.
        operation: GenAI operation name of its requests, the newest of those that tell the standing; likewise the next.
        tier: Size class of their input.
        at_once: Requests that ran at once, at least: 1, 2, 4 or 8.
        power_mode: Of the machine.
        thermal_state: Of the machine.
        requests: Requests without a draft that there are under these conditions.
        policy: Digest of the policy.
        observe_only: Whether the guard only observes, so that it makes no control requests.
    """

    at: int
    lane: Lane
    standing: Standing
    operation: str
    tier: str
    at_once: int
    power_mode: str
    thermal_state: str
    requests: int
    policy: str
    observe_only: bool
