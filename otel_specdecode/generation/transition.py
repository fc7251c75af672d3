"""One change of what the guard lets requests do: the same data for event, metric and audit trail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["closed", "limited", "open", "probing"]
"""As asked; on a rung below that; no speculation; no speculation but for a few probes."""


@dataclass(frozen=True, slots=True)
class Lane:
    """What one decision counts for.

    Attributes:
        scope: Kind of the scope.
        key: Tenant or session; None for the process.
        provider: GenAI provider name of the engine; None for a decision about the machine, as the next two.
        model: Target model as the caller knows it, None if unknown.
        method: What proposes tokens.
    """

    scope: Literal["process", "tenant", "session"] = "process"
    key: str | None = None
    provider: str | None = None
    model: str | None = None
    method: str | None = None


@dataclass(frozen=True, slots=True)
class Transition:
    """A change, and what it was made for.

    Attributes:
        at: Time of day, ns since the epoch.
        lane: What it counts for.
        before: State until then.
        after: State from then on.
        rung_before: `as_asked`, `streams`, `k=4` and so on, `lighter`, `autoregressive`, `unloaded`.
        rung_after: Likewise.
        trigger: Name of the trigger in the policy; `recovered`, `probe` and `flag` are the guard's own.
        reason: Value of `specdecode.fallback.reason` that requests have from it; None where it lets speculate again.
        value: What was measured, None where nothing was.
        threshold: The bound, None where there is none.
        samples: Rounds, requests, failures or readings of the machine that the value is of.
        window_seconds: From the first to the last of them.
        policy: Digest of the policy.
        observe_only: Whether requests run as asked nevertheless.
        trace_id: A trace that was part of the last window, None if none is sampled.
    """

    at: int
    lane: Lane
    before: State
    after: State
    rung_before: str
    rung_after: str
    trigger: str
    reason: str | None
    value: float | None
    threshold: float | None
    samples: int
    window_seconds: float
    policy: str
    observe_only: bool
    trace_id: str | None = None
