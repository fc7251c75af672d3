"""A guard joined to real engines: plans that are made up, drafts that turn bad, and small windows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry import baggage, context

pytest.importorskip("msgspec", reason="needs the [guard] extra")

from otel_specdecode.generation.plan import Ask, Permit, Plan, plan_by, planner
from otel_specdecode.guard.policy import Baseline, Ladder, Policy, Probe, Scope, Trigger, Windows
from otel_specdecode.guarded import RunningGuard, start_guard
from otel_specdecode.telemetry.names import Attr
from otel_specdecode.testing.capture import Telemetry
from otel_specdecode.testing.checker import check

RUNGS: Mapping[str, Plan] = {
    "shortened": Plan(2),
    "one at a time": Plan(1),
    "probe": Plan(2, "probe"),
    "fallback": Plan(0, "fallback", "accept_rate"),
    "control": Plan(0, "control", "control"),
    "as asked": Plan(),
}
"""Every kind of plan, of requests that ask for 4 tokens at once."""

ROUNDS = 12
"""Rounds of a window."""

NO_CONTROL = Baseline(share=0.0, most_share=0.0)


def policy(
    below: float = 0.35,
    *,
    by: Any = "process",
    action: Any = "autoregressive",
    cool_down: float = 1000.0,
    baseline: Baseline = NO_CONTROL,
    **more: Any,
) -> Policy:
    """A policy that takes its action after one small window of a low accept rate."""
    return Policy(
        mode="enforce",
        scope=Scope(by=by),
        windows=Windows(rounds=ROUNDS, requests=3),
        triggers={"accept_rate": Trigger(below=below, action=action)},
        ladder=Ladder(lengths=(3, 2)),
        probe=Probe(
            cool_down=cool_down, longest_cool_down=cool_down, share=1.0, windows=1, hysteresis=0.01, dwell=cool_down
        ),
        baseline=baseline,
        **more,
    )


@contextmanager
def guarded(source: Any) -> Iterator[RunningGuard]:
    """Run a guard for the length of a block."""
    guard = start_guard(source)
    try:
        yield guard
    finally:
        guard.close()


class Always:
    """Plans every request alike.

    Attributes:
        asked: What was asked for, in order.
        given_back: Permits that were given back.
    """

    def __init__(self, plan: Plan) -> None:
        self.asked: list[Ask] = []
        self.given_back = 0
        self._plan = plan

    def plan(self, ask: Ask) -> Plan:
        self.asked.append(ask)
        plan = self._plan
        return Plan(plan.draft_length, plan.cohort, plan.fallback_reason, permit=Permit(self._take_back))

    def progress(self, *_: Any) -> None:
        pass

    def finish(self, *_: Any) -> None:
        pass

    def _take_back(self) -> None:
        self.given_back += 1


@contextmanager
def planned(plan: Plan) -> Iterator[Always]:
    """Have every request of a block planned alike, whoever plans outside of it."""
    always, before = Always(plan), planner()
    plan_by(always)
    try:
        yield always
    finally:
        plan_by(before)


@contextmanager
def on_behalf_of(**who: str) -> Iterator[None]:
    """Make calls for a tenant or session, by baggage."""
    found = context.get_current()
    for key, value in who.items():
        found = baggage.set_baggage(f"specdecode.{key}.id", value, found)
    token = context.attach(found)
    try:
        yield
    finally:
        context.detach(token)


def paths(telemetry: Telemetry) -> Counter[tuple[str, str, str | None, int]]:
    """How many spans there are of each mode, cohort, fallback reason and draft length."""
    found = (dict(span.attributes or {}) for span in telemetry.spans())
    return Counter(
        (
            str(each[Attr.SPECDECODE_MODE]),
            str(each[Attr.SPECDECODE_COHORT]),
            each.get(Attr.SPECDECODE_FALLBACK_REASON),
            each[Attr.SPECDECODE_DRAFT_MAX_TOKENS],
        )
        for each in found
    )


def transitions(telemetry: Telemetry) -> list[dict[str, Any]]:
    """What the guard told of, in order, without the namespace."""
    told = [dict(event.attributes) for event in telemetry.events("specdecode.guard.transition")]
    return [{key.replace("specdecode.guard.", ""): value for key, value in each.items()} for each in told]


def violations(telemetry: Telemetry) -> list[str]:
    """What of all that was emitted is not as the registry has it."""
    found = check(spans=telemetry.spans(), metrics=telemetry.metrics_data(), logs=telemetry.logs())
    return [str(each) for each in found if each.severity == "violation"]


def run_until(seen: Callable[[], bool], request: Callable[[], object], most: int) -> int:
    """Make requests until something is seen; return how many that took.

    Raises:
        AssertionError: It was not seen after the most that there may be.
    """
    for made in range(most + 1):
        if seen():
            return made
        request()
    raise AssertionError(f"not seen after {most} requests")
