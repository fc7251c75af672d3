"""A week of traffic in bulk: requests with the times of a real machine, and faults that are known to be faults."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from otel_specdecode.generation.counts import POSITIONS, Counts
from otel_specdecode.generation.plan import Ask, Plan, Who
from otel_specdecode.generation.record import Ending, Facts, Record, Timing
from otel_specdecode.generation.request import Request
from otel_specdecode.generation.tally import Delta
from otel_specdecode.generation.transition import Transition
from otel_specdecode.guard.clocks import Clocks
from otel_specdecode.guard.guard import Guard
from otel_specdecode.guard.machine import MachineState
from otel_specdecode.guard.policy import Policy
from tests.guard.simulated import START_NS, Clock

HOUR = 3600.0
DAY = 24 * HOUR


@dataclass(frozen=True)
class Kind:
    """What requests of a tenant are like, and what happens to them.

    Attributes:
        accept: Mean chance that a proposed token is the target's; each request has its own around it.
        draft: Seconds of one draft pass.
        target: Seconds of a target pass.
        length: Draft length that is asked for.
        proposes: Whether the draft proposes anything.
        error: What requests that speculate end with.
        queued: Median of the seconds that requests wait.
        prompts: Share by which times to the first token differ.
    """

    accept: float = 0.75
    draft: float = 0.003
    target: float = 0.026
    length: int = 4
    proposes: bool = True
    error: str | None = None
    queued: float = 0.05
    prompts: float = 0.5


@dataclass(frozen=True)
class Fault:
    """Something that is known to be wrong for a while, or known to be none.

    Attributes:
        name: What it is.
        begins: Seconds from the beginning of the week.
        lasts: Seconds.
        found_by: Triggers that may find it; empty: none may.
        tenant: Whose requests; None: of the machine.
        becomes: What requests are meanwhile.
        machine: What the machine is meanwhile.
        canary: Whether quality canaries fail.
        swap: Bytes a second by which swap grows.
    """

    name: str
    begins: float
    lasts: float
    found_by: tuple[str, ...] = ()
    tenant: str | None = None
    becomes: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    canary: bool = True
    swap: float = 0.0

    @property
    def ends(self) -> float:
        return self.begins + self.lasts

    def is_on(self, now: float) -> bool:
        return self.begins <= now < self.ends


class Week:
    """A service of several tenants under one guard. Time is told, nothing waits."""

    def __init__(self, policy: Policy, tenants: dict[str, Kind], faults: list[Fault], *, seed: int = 1) -> None:
        self.tenants = tenants
        self.faults = faults
        self.chance = np.random.default_rng(seed)
        self.clock = Clock(0.0)
        self.told: list[Transition] = []
        self.guard = Guard(policy, tell=[self.told.append], clocks=Clocks(self.clock, self.clock.wall))
        self.requests = 0
        self.speculated = 0
        self.accepted = self.compared = 0
        self.swap = float(2 << 30)
        self._looked = 0.0
        self._asked = 0.0

    def run(self, seconds: float, per_minute: Callable[[float], float]) -> None:
        """Serve requests of all tenants in turn, so many a minute for each; those that come too soon wait."""
        arrive = self.clock.seconds
        while arrive < seconds:
            self.look(arrive)
            for tenant in self.tenants:
                self.serve(tenant)
            arrive += self.chance.exponential(60.0 / per_minute(arrive))

    def look(self, until: float) -> None:
        """Let time pass; the machine is read every 5 s, and a canary asked every two minutes."""
        while self._looked + 5.0 <= until:
            before, self._looked = self._looked, max(self._looked + 5.0, self.clock.seconds)
            self.clock.seconds = self._looked
            on = self.read()
            grown = (self._looked - before) * sum(fault.swap for fault in on)
            self.swap += grown + self.chance.normal(0, 1 << 16)
            if self._looked - self._asked >= 120.0:
                self._asked = self._looked
                self.guard.canary(all(fault.canary for fault in on))
        self.clock.seconds = max(self.clock.seconds, until)

    def read(self) -> list[Fault]:
        """Read the machine; return what is wrong now."""
        on = [fault for fault in self.faults if fault.is_on(self.clock.seconds)]
        state = MachineState("automatic", "nominal", "normal", max(int(self.swap), 0))
        for fault in on:
            state = replace(state, **fault.machine)
        self.guard.machine(state)
        return on

    def kind(self, tenant: str) -> Kind:
        """What a tenant's requests are now."""
        kind = self.tenants[tenant]
        for fault in self.faults:
            if fault.is_on(self.clock.seconds) and fault.tenant in (tenant, "all"):
                kind = replace(kind, **fault.becomes)
        return kind

    def serve(self, tenant: str) -> None:
        """Serve one request."""
        kind, who = self.kind(tenant), Who(tenant)
        plan = self.guard.plan(Ask("mlx", "target", "draft_model", kind.length, "draft", "chat", who))
        self.read()
        request = self._request(kind, plan)
        delta, record = self._generate(kind, request)
        self.clock.seconds += record.timing.duration
        self.guard.progress(request, who, delta, 100)
        if plan.permit is not None:
            plan.permit.release()
        self.guard.finish(record, who, None)
        self.requests += 1
        self.speculated += request.mode == "speculative"
        self.accepted += delta.counts.accepted
        self.compared += delta.counts.accepted + delta.counts.rejected

    def _request(self, kind: Kind, plan: Plan) -> Request:
        length = plan.length(kind.length)
        return Request(
            "chat",
            "mlx",
            "target",
            mode="speculative" if length else "autoregressive",
            requested_mode="speculative",
            method="draft_model",
            draft_max_tokens=length,
            cohort=plan.cohort,
            fallback_reason=plan.fallback_reason,
            queued=float(self.chance.lognormal(math.log(kind.queued), 0.5)),
            decided=plan.decided,
        )

    def _generate(self, kind: Kind, request: Request) -> tuple[Delta, Record]:
        chance, length = self.chance, request.draft_max_tokens or 0
        tokens = int(chance.integers(30, 120))
        slow = chance.normal(1, 0.02)
        if length and kind.proposes:
            accept = min(max(chance.normal(kind.accept, 0.06), 0.01), 0.99)
            mean = (1 - accept ** (length + 1)) / (1 - accept)
            accepted = np.minimum(chance.geometric(1 - accept, max(round(tokens / mean), 1)) - 1, length)
            counts = counted(accepted, length)
            passes, seconds = len(accepted), kind.target + length * kind.draft
        else:
            counts = Counts(tokens=tokens, plain_passes=tokens)
            passes, seconds = tokens, kind.target
        times = np.maximum(chance.normal(slow, 0.05, passes), 0.1) * seconds
        decode, first = float(times.sum()), kind.target * 10 * float(chance.lognormal(0, kind.prompts))
        delta = Delta(counts, (times * 1e9).astype(int).tolist())
        total = Counts(tokens=1, prefill_tokens=1)
        total.add(counts)
        timing = Timing(decode + first, first, decode=decode, time_per_token=decode / counts.tokens)
        error = kind.error if request.mode == "speculative" else None
        ending = Ending("complete" if error is None else "error", 0, None, error)
        return delta, Record(request, total, timing, Facts(100), ending)


def counted(accepted: Any, length: int) -> Counts:
    """Counts of finished rounds, each with so many tokens accepted."""
    rounds, total = len(accepted), int(accepted.sum())
    at_least = np.bincount(accepted, minlength=POSITIONS + 1)[::-1].cumsum()[::-1].tolist()
    by_position = at_least[1:]
    all_accepted, none = at_least[length], rounds - at_least[1]
    return Counts(
        tokens=total + rounds,
        accepted=total,
        rejected=rounds * length - total,
        all_accepted=all_accepted,
        rolled_back=rounds - all_accepted - none,
        all_rejected=none,
        proposed_by_position=[rounds if place < length else 0 for place in range(POSITIONS)],
        accepted_by_position=by_position,
    )


def at(transition: Transition) -> float:
    """Seconds from the beginning of the week."""
    return (transition.at - START_NS) / 1e9
