"""Decides about one request that asks for speculation: as asked, a shorter draft, or none, and why."""

from __future__ import annotations

from typing import Final

from otel_specdecode.generation.plan import Ask
from otel_specdecode.generation.request import Cohort
from otel_specdecode.guard.baseline import Baseline, Conditions
from otel_specdecode.guard.choosing import Chooser
from otel_specdecode.guard.flag import FEATURE_FLAG, FeatureFlag
from otel_specdecode.guard.lanes import LaneState
from otel_specdecode.guard.machine import Machine
from otel_specdecode.guard.policy import Policy
from otel_specdecode.guard.streams import Streams

TENANT_BUDGET: Final = "tenant_budget"
CONTROL: Final = "control"
"""Cohort and fallback reason of the requests that are the baseline."""

PROBE: Final = "probe"

Decision = tuple["int | None", Cohort, "str | None", bool]
"""Draft length, cohort, fallback reason and whether the draft is the lighter one."""


class Decider:
    """Decides by what is known now; changes nothing but who was chosen for control and probes.

    Not for several threads.
    """

    def __init__(
        self, policy: Policy, flag: FeatureFlag, machine: Machine, streams: Streams, baseline: Baseline
    ) -> None:
        """Take what decisions are made by.

        Args:
            policy: The rules.
            flag: Comes before everything else.
            machine: Its rung counts for every request, beside that of the request's lane.
            streams: Of which a rung and tenants' budgets allow so many.
            baseline: Of the control requests that are chosen here.
        """
        self._policy = policy
        self._flag = flag
        self._machine = machine
        self._streams = streams
        self._baseline = baseline
        self._chooser = Chooser(policy.scope.most * 10)
        self._controls = not baseline.is_fixed and policy.baseline.share > 0 and policy.baseline.source == CONTROL

    def decide(self, ask: Ask, lane: LaneState, met: Conditions | None, now: float) -> Decision:
        """Return what becomes of a request.

        Args:
            ask: What it asks for, speculation among it.
            lane: Its lane.
            met: Conditions under which such requests ran last, None if that is not known.
            now: Clock reading in seconds.
        """
        if not self._flag.on:
            return _without(FEATURE_FLAG)
        session = ask.who.session
        if self._controls and self._is_control(lane, met, session, now):
            return (0, CONTROL, CONTROL, False)
        machine, breaker = self._machine.breaker, lane.breaker
        if machine.rung.draft_length == 0:
            return _without(machine.reason)
        if breaker.state in ("open", "probing"):
            if breaker.state == "open" or self._machine.is_pressed or not self._is_probe(lane, session):
                return _without(breaker.reason)
            rung = breaker.probe_rung
            return (rung.draft_length, PROBE, None, rung.lighter)
        speculating = self._streams.service.speculating
        if (machine.limits_streams or breaker.limits_streams) and speculating >= self._policy.ladder.streams:
            return _without(machine.reason if machine.limits_streams else breaker.reason)
        tenant = ask.who.tenant
        if tenant is not None and not self._streams.budgets.allows(tenant, speculating, now):
            return _without(TENANT_BUDGET)
        one, other = machine.rung, breaker.rung
        return (_shorter(one.draft_length, other.draft_length), "normal", None, one.lighter or other.lighter)

    def _is_control(self, lane: LaneState, met: Conditions | None, session: str | None, now: float) -> bool:
        purpose = (CONTROL, lane.lane.provider, lane.lane.model)
        kept = None if session is None else self._chooser.kept(purpose, session)
        if kept is not None:
            return kept
        wanted = self._policy.baseline
        more = lane.suspects or met is None or self._baseline.thin(met, now)
        share = max(wanted.share, wanted.most_share) if more else wanted.share
        return self._chooser.chooses(purpose, share, session)

    def _is_probe(self, lane: LaneState, session: str | None) -> bool:
        # By the number of changes: each time that probes begin, sessions are chosen anew.
        purpose = (PROBE, *lane.names, lane.breaker.changes)
        return self._chooser.chooses(purpose, self._policy.probe.share, session, first=True)


def _shorter(one: int | None, other: int | None) -> int | None:
    """Return the shorter of two draft lengths, None where neither limits one."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def _without(reason: str | None) -> Decision:
    return (0, "fallback", reason, False)
