"""The guard: what it does to requests."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import pytest

from otel_specdecode.generation.counts import Counts
from otel_specdecode.generation.plan import AS_ASKED, Who
from otel_specdecode.generation.transition import Transition
from otel_specdecode.guard.machine import MachineState
from otel_specdecode.guard.policy import Baseline, Budget, Ladder, Policy, Scope
from tests.guard.asked import (
    ASK,
    BAD,
    NO_CONTROL,
    a_guard,
    fail_twice,
    of,
    record_of,
    request_of,
    rounds,
)
from tests.guard.simulated import Clock, Service, World


def test_observing_decides_and_changes_no_request() -> None:
    service = Service(Policy(mode="observe_only"), BAD)
    plans = [service.request() for _ in range(300)]
    assert all(plan == AS_ASKED and plan.as_asked and plan.permit is not None for plan in plans)
    assert service.told[0].after == "limited"
    assert all(transition.observe_only for transition in service.told)


def test_a_request_that_asks_for_no_draft_is_left_alone() -> None:
    guard = a_guard()
    guard.switch(False)
    for ask in (replace(ASK, method="none"), replace(ASK, draft_length=0)):
        plan = guard.plan(ask)
        assert (plan, plan.as_asked, plan.permit is None) == (AS_ASKED, True, False)


def test_two_in_a_hundred_are_control_and_twenty_while_there_are_too_few() -> None:
    service = Service(Policy(mode="enforce"), World(accept=0.8))
    first = [service.request().cohort for _ in range(100)]
    assert first.count("control") == 20
    later = [service.request().cohort for _ in range(500)]
    assert later.count("control") == 10
    assert not service.told


def test_a_control_request_says_why_it_does_not_speculate() -> None:
    plan = a_guard(Policy(mode="enforce", baseline=Baseline(share=1.0))).plan(ASK)
    assert (plan.draft_length, plan.cohort, plan.fallback_reason) == (0, "control", "control")


def test_sessions_stay_control_or_not() -> None:
    guard = a_guard(Policy(mode="enforce"))
    first = {f"s{number}": guard.plan(of(None, f"s{number}")).cohort for number in range(50)}
    assert list(first.values()).count("control") == 10
    for _ in range(5):
        assert {session: guard.plan(of(None, session)).cohort for session in first} == first


def test_sessions_probe_or_not() -> None:
    clock = Clock()
    guard = a_guard(clock=clock)
    fail_twice(guard)
    clock.seconds += 301
    first = {f"s{number}": guard.plan(of(None, f"s{number}")).cohort for number in range(40)}
    assert list(first.values()).count("probe") == 4
    assert {session: guard.plan(of(None, session)).cohort for session in first} == first


def test_a_probe_runs_at_the_shortest_draft_and_all_others_say_why_not() -> None:
    clock = Clock()
    guard = a_guard(clock=clock)
    fail_twice(guard)
    clock.seconds += 301
    probe, other = guard.plan(ASK), guard.plan(ASK)
    assert (probe.draft_length, probe.cohort, probe.fallback_reason) == (2, "probe", None)
    assert (other.draft_length, other.cohort, other.fallback_reason) == (0, "fallback", "verifier_error")


@pytest.mark.parametrize("by", ["tenant", "session"])
def test_a_scope_of_one_session_finds_back(by: Any) -> None:
    """Its only session is the one that probes."""
    clock = Clock()
    guard = a_guard(Policy(mode="enforce", scope=Scope(by=by), baseline=NO_CONTROL), clock=clock)
    ask = of("acme", "s1")
    fail_twice(guard, ask)
    for _ in range(30):
        clock.seconds += 100
        guard.finish(record_of(request_of(guard.plan(ask), ask)), ask.who)
    assert guard.scopes()["closed"] == 1


def test_one_tenant_falls_back_and_another_goes_on() -> None:
    guard = a_guard(Policy(mode="enforce", scope=Scope(by="tenant"), baseline=NO_CONTROL))
    guard.plan(of("b"))
    fail_twice(guard, of("a"))
    assert guard.plan(of("a")).fallback_reason == "verifier_error"
    assert guard.plan(of("b")) == AS_ASKED
    assert guard.plan(of()) == AS_ASKED
    assert guard.scopes() == {"closed": 2, "limited": 0, "open": 1, "probing": 0}


def test_a_flood_of_tenants_does_not_make_it_forget_who_fell_back() -> None:
    guard = a_guard(Policy(mode="enforce", scope=Scope(by="tenant", most=10), baseline=NO_CONTROL))
    fail_twice(guard, of("a"))
    for number in range(1000):
        guard.plan(of(f"t{number}"))
    assert guard.plan(of("a")).fallback_reason == "verifier_error"
    assert sum(guard.scopes().values()) == 10


def test_a_longer_draft_that_is_asked_for_later_has_its_rungs() -> None:
    guard = a_guard()
    guard.plan(replace(ASK, draft_length=2))
    long = replace(ASK, draft_length=8)
    plan = guard.plan(long)
    guard.progress(request_of(plan, long), Who(), rounds(1, proposed=8), 100)
    assert guard.plan(long).draft_length == 6


# Permits


@pytest.mark.parametrize("times", [1, 2, 5])
def test_a_permit_is_given_back_once(times: int) -> None:
    guard = a_guard()
    plans = [guard.plan(ASK) for _ in range(3)]
    for _ in range(times):
        assert plans[0].permit is not None
        plans[0].permit.release()
    guard.machine(MachineState())
    assert (guard._streams.service.running, guard._streams.service.speculating) == (2, 2)


def test_a_permit_that_nobody_holds_any_more_is_given_back() -> None:
    guard = a_guard()
    plan: Any = guard.plan(ASK)
    assert guard._streams.service.speculating == 1
    loop = [plan]
    loop.append(loop)
    del plan, loop
    gc.collect()
    guard.machine(MachineState())
    assert (guard._streams.service.running, guard._streams.service.speculating) == (0, 0)


def test_requests_without_speculation_run_but_take_no_stream() -> None:
    guard = a_guard()
    guard.switch(False)
    plan = guard.plan(ASK)
    assert (guard._streams.service.running, guard._streams.service.speculating) == (1, 0)
    assert plan.permit is not None


def test_on_the_rung_that_limits_streams_only_so_many_speculate() -> None:
    guard = a_guard(Policy(mode="enforce", baseline=NO_CONTROL, ladder=Ladder(streams=2)))
    guard.machine(MachineState(swap_used=0))
    kept = [guard.plan(ASK)]
    guard.machine(MachineState(swap_used=2 << 30))
    kept += [guard.plan(ASK) for _ in range(3)]
    assert [plan.fallback_reason for plan in kept] == [None, None, "swap_growth", "swap_growth"]
    assert kept[0].permit is not None
    kept[0].permit.release()
    assert guard.plan(ASK) == AS_ASKED


# Budgets and the feature flag


def test_a_tenant_beyond_its_draft_tokens_waits_for_the_next_minute() -> None:
    clock = Clock()
    budget = Budget(draft_tokens_per_minute=800)
    guard = a_guard(Policy(mode="enforce", baseline=NO_CONTROL, budget=budget), clock=clock)
    guard.progress(request_of(guard.plan(of("a"))), Who("a"), rounds(5), 100)
    plan = guard.plan(of("a"))
    assert (plan.draft_length, plan.cohort, plan.fallback_reason) == (0, "fallback", "tenant_budget")
    assert guard.plan(of("b")) == AS_ASKED
    assert guard.plan(of()) == AS_ASKED
    clock.seconds += 1
    assert guard.plan(of("a")) == AS_ASKED


def test_a_tenant_may_have_its_share_of_streams_where_there_are_others() -> None:
    guard = a_guard(Policy(mode="enforce", baseline=NO_CONTROL, budget=Budget(share_of_streams=0.5)))
    kept = [guard.plan(of("a")), guard.plan(of("b")), guard.plan(of("b")), guard.plan(of("a"))]
    assert [plan.fallback_reason for plan in kept] == [None, None, "tenant_budget", "tenant_budget"]
    assert kept[1].permit is not None
    kept[1].permit.release()
    assert guard.plan(of("a")) == AS_ASKED


def test_the_feature_flag_switches_off_and_on_and_code_overrides_it() -> None:
    told: list[Transition] = []
    guard = a_guard(tell=[told.append])
    guard.flag(True)
    assert not told
    guard.flag(False)
    plan = guard.plan(ASK)
    assert (plan.draft_length, plan.cohort, plan.fallback_reason) == (0, "fallback", "feature_flag")
    guard.switch(True)
    assert guard.plan(ASK) == AS_ASKED
    guard.flag(True)
    guard.switch(False)
    assert guard.plan(ASK).fallback_reason == "feature_flag"
    guard.switch(None)
    assert guard.plan(ASK) == AS_ASKED
    assert [(each.trigger, each.before, each.after) for each in told] == [
        ("flag", "closed", "open"),
        ("flag", "open", "closed"),
    ] * 2


# Short answers


@pytest.mark.parametrize(
    ("counts", "trips"),
    [
        (Counts(tokens=1, prefill_tokens=1), False),
        (Counts(tokens=9, prefill_tokens=1, plain_passes=8, draft_calls=8), True),
        (Counts(tokens=9, prefill_tokens=1, plain_passes=8), True),
        (Counts(tokens=1, prefill_tokens=1, draft_calls=1), True),
    ],
    ids=["one token", "nothing to say", "calls not seen", "ended after a call"],
)
def test_a_draft_that_was_not_asked_did_not_propose_nothing(counts: Counts, trips: bool) -> None:
    guard = a_guard()
    for _ in range(200):
        guard.finish(replace(record_of(request_of(guard.plan(ASK))), counts=counts), Who())
    assert (guard.plan(ASK).fallback_reason == "nothing_proposed") is trips
