"""The guard: what it does to requests, and what it tells of it."""

from __future__ import annotations

import gc
import math
import os
import threading
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_specdecode.generation.counts import Counts
from otel_specdecode.generation.plan import AS_ASKED, Ask, Plan, Who
from otel_specdecode.generation.record import Ending, Facts, Record, Timing
from otel_specdecode.generation.request import Request
from otel_specdecode.generation.tally import Delta
from otel_specdecode.generation.transition import Lane, Transition
from otel_specdecode.guard.clocks import Clocks
from otel_specdecode.guard.guard import Guard
from otel_specdecode.guard.machine import MachineState
from otel_specdecode.guard.policy import Baseline, Budget, Ladder, Policy, Probe, Scope, Trigger, Windows
from tests.guard.simulated import START_NS, Clock, Service, World

ASK = Ask("mlx", "target", "draft_model", 4, "draft", "chat")
NO_CONTROL = Baseline(share=0.0)
ENFORCE = Policy(mode="enforce", baseline=NO_CONTROL)
BAD = World(accept=0.05)
TRACE = "0" * 31 + "1"


def a_guard(policy: Policy = ENFORCE, **given: Any) -> Guard:
    clock = given.pop("clock", None) or Clock()
    return Guard(policy, clocks=Clocks(clock, clock.wall), **given)


def of(tenant: str | None = None, session: str | None = None) -> Ask:
    return replace(ASK, who=Who(tenant, session))


def request_of(plan: Plan, ask: Ask = ASK) -> Request:
    length = plan.length(ask.draft_length)
    return Request(
        "chat",
        ask.provider,
        ask.model,
        mode="speculative" if length else "autoregressive",
        requested_mode="speculative",
        method=ask.method,
        draft_max_tokens=length,
        cohort=plan.cohort,
        fallback_reason=plan.fallback_reason,
        decided=plan.decided,
    )


def rounds(emitted: int, count: int = 200, proposed: int = 4) -> Delta:
    counts = Counts(tokens=emitted * count)
    for _ in range(count):
        counts.add_round(proposed, emitted, True)
    return Delta(counts, [30_000_000] * count)


def record_of(request: Request, error: str | None = None, **timing: Any) -> Record:
    ending = Ending("complete" if error is None else "error", 0, None, error)
    counts = Counts(tokens=3, prefill_tokens=1)
    if request.mode == "speculative":
        counts.add_round(request.draft_max_tokens or 4, 2, True)
    else:
        counts.plain_passes = 2
    return Record(request, counts, Timing(1.0, **timing), Facts(100), ending)


def fail_twice(guard: Guard, ask: Ask = ASK, trace: str | None = None) -> None:
    for _ in range(2):
        guard.finish(record_of(request_of(guard.plan(ask), ask), "RuntimeError"), ask.who, trace)


def test_observing_decides_and_changes_no_request() -> None:
    service = Service(Policy(mode="observe_only"), BAD)
    plans = [service.request() for _ in range(300)]
    assert all(plan == AS_ASKED and plan.permit is not None for plan in plans)
    assert service.told[0].after == "limited"
    assert all(transition.observe_only for transition in service.told)


def test_a_request_that_asks_for_no_draft_is_left_alone() -> None:
    guard = a_guard()
    guard.switch(False)
    for ask in (replace(ASK, method="none"), replace(ASK, draft_length=0)):
        plan = guard.plan(ask)
        assert (plan, plan.permit is None) == (AS_ASKED, False)


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
    assert (guard._service.running, guard._service.speculating) == (2, 2)


def test_a_permit_that_nobody_holds_any_more_is_given_back() -> None:
    guard = a_guard()
    plan: Any = guard.plan(ASK)
    assert guard._service.speculating == 1
    loop = [plan]
    loop.append(loop)
    del plan, loop
    gc.collect()
    guard.machine(MachineState())
    assert (guard._service.running, guard._service.speculating) == (0, 0)


def test_requests_without_speculation_run_but_take_no_stream() -> None:
    guard = a_guard()
    guard.switch(False)
    plan = guard.plan(ASK)
    assert (guard._service.running, guard._service.speculating) == (1, 0)
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


# In flight


def test_what_an_older_rung_decided_does_not_count_for_the_new_one() -> None:
    told: list[Transition] = []
    clock = Clock()
    guard = a_guard(clock=clock, tell=[told.append])
    older = request_of(guard.plan(ASK))
    guard.progress(request_of(guard.plan(ASK)), Who(), rounds(2), 100)
    assert [each.rung_after for each in told] == ["k=3"]
    for _ in range(20):
        clock.seconds += 200
        guard.progress(older, Who(), rounds(1), 100)
        guard.finish(record_of(older, "RuntimeError"), Who())
    assert len(told) == 1
    newer = request_of(guard.plan(ASK))
    guard.progress(newer, Who(), rounds(2, proposed=3), 100)
    assert len(told) == 2


def test_what_a_shorter_draft_proved_does_not_count_for_the_longer_one() -> None:
    told: list[Transition] = []
    clock = Clock()
    guard = a_guard(clock=clock, tell=[told.append])
    guard.progress(request_of(guard.plan(ASK)), Who(), rounds(2), 100)
    shorter = request_of(guard.plan(ASK))
    for _ in range(2):
        clock.seconds += 200
        guard.progress(request_of(guard.plan(ASK)), Who(), rounds(4, proposed=3), 100)
    assert [each.rung_after for each in told] == ["k=3", "as_asked"]
    guard.progress(shorter, Who(), rounds(1, proposed=3), 100)
    assert len(told) == 2


# Telling


def test_a_transition_has_all_that_it_was_made_for() -> None:
    told: list[Transition] = []
    clock = Clock()
    policy = Policy(mode="enforce", scope=Scope(by="tenant"), baseline=NO_CONTROL, windows=Windows(rounds=100))
    guard = a_guard(policy, clock=clock, tell=[told.append])
    ask = of("acme")
    request = request_of(guard.plan(ask), ask)
    guard.finish(record_of(request), ask.who, TRACE)
    guard.progress(request, ask.who, rounds(2, 50), 100)
    clock.seconds += 8
    guard.progress(request, ask.who, rounds(2, 51), 100)
    assert told == [
        Transition(
            at=START_NS + 1_008_000_000_000,
            lane=Lane("tenant", "acme", "mlx", "target", "draft_model"),
            before="closed",
            after="limited",
            rung_before="as_asked",
            rung_after="k=3",
            trigger="accept_rate",
            reason="accept_rate",
            value=0.25,
            threshold=0.42,
            samples=101,
            window_seconds=8.0,
            policy=policy.digest,
            observe_only=False,
            trace_id=TRACE,
        )
    ]


def test_a_trace_of_an_earlier_window_is_not_told() -> None:
    told: list[Transition] = []
    guard = a_guard(tell=[told.append])
    fail_twice(guard, trace=TRACE)
    guard.machine(MachineState())
    assert told[0].trace_id == TRACE
    assert guard._lanes.all()[0].trace_id is None


def unload_by_memory_pressure(guard: Guard, clock: Clock) -> None:
    for _ in range(30):
        clock.seconds += 5
        guard.machine(MachineState(memory_pressure="critical"))


def test_memory_is_freed_once_a_transition() -> None:
    clock, freed = Clock(), []
    guard = a_guard(clock=clock)
    guard.unload_with(lambda: freed.append(clock.seconds), lighter=False)
    unload_by_memory_pressure(guard, clock)
    assert len(freed) == 1
    assert guard.plan(ASK).fallback_reason == "memory_pressure"


def test_observing_frees_no_memory() -> None:
    clock, told = Clock(), []
    guard = a_guard(Policy(mode="observe_only"), clock=clock, tell=[told.append])
    guard.unload_with(lambda: pytest.fail("freed"), lighter=False)
    unload_by_memory_pressure(guard, clock)
    assert [each.rung_after for each in told] == ["unloaded"]


def test_who_is_told_may_call_the_guard_and_may_fail(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[object] = []
    clock = Clock()

    def look(transition: Transition) -> None:
        seen.append((guard.saved()["policy"], guard.scopes()["open"], guard.plan(ASK).fallback_reason))
        raise OSError(transition.trigger)

    guard = a_guard(clock=clock, tell=[look])
    guard.unload_with(lambda: 1 / 0, lighter=False)  # type: ignore[arg-type, return-value]
    unload_by_memory_pressure(guard, clock)
    assert seen == [(ENFORCE.digest, 1, "memory_pressure")]
    assert len(caplog.records) == 2


def test_a_clock_that_fails_leaves_requests_as_asked(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    guard = a_guard(clock=clock)
    clock.seconds = "noon"  # type: ignore[assignment]
    assert guard.plan(ASK) is AS_ASKED
    assert "runs as asked" in caplog.text


# What must never trip

TIMES = st.sampled_from([0.0, 0.01, 1.0, 1e18, math.nan, math.inf, -math.inf, -1.0]) | st.none()


@given(
    steps=st.lists(
        st.tuples(st.sampled_from([0.0, 1.0, 3e5, -3e5, 1e12, -1e12]), TIMES, TIMES, TIMES, st.integers(0, 10**30)),
        max_size=60,
    )
)
@settings(max_examples=30)
def test_jumps_of_the_clock_and_impossible_times_trip_nothing(steps: list[Any]) -> None:
    """The draft is a good one throughout; only clocks and times are mad."""
    told: list[Transition] = []
    clock = Clock(1e6)
    guard = a_guard(Policy(mode="enforce", windows=Windows(requests=2)), clock=clock, tell=[told.append])
    for jump, per_token, first, queued, pass_time in steps:
        clock.seconds += jump
        plan = guard.plan(ASK)
        request = replace(request_of(plan), queued=queued if queued != 1e18 else None)
        if request.mode == "speculative":
            guard.progress(request, Who(), Delta(rounds(4).counts, [pass_time, 30_000_000]), None)
        else:
            guard.progress(request, Who(), Delta(Counts(tokens=2, plain_passes=2), [26_000_000, 26_000_000]), None)
        times = (per_token, first) if request.mode == "speculative" else (0.026, 0.3)
        guard.finish(record_of(request, time_per_token=times[0], time_to_first_token=times[1]), Who())
        guard.machine(MachineState("low", "fair", "warn", 10))
    assert not told


def test_a_window_without_any_sample_trips_nothing() -> None:
    told: list[Transition] = []
    guard = a_guard(tell=[told.append])
    for _ in range(100):
        guard.progress(request_of(guard.plan(ASK)), Who(), Delta(Counts()), None)
    assert not told


def test_after_a_jump_back_of_days_the_cool_down_ends_as_ever() -> None:
    clock = Clock(1e6)
    guard = a_guard(clock=clock)
    fail_twice(guard)
    clock.seconds -= 3 * 86_400
    assert guard.plan(ASK).cohort == "fallback"
    clock.seconds += 301
    assert guard.plan(ASK).cohort == "probe"


# Saved and restored


def test_a_restart_forgets_nothing_that_is_open() -> None:
    clock = Clock()
    guard = a_guard(clock=clock)
    fail_twice(guard)
    for passed in (False, False):
        guard.canary(passed)
    clock.seconds += 100
    saved = guard.saved()
    later = Clock(5.0)
    other = a_guard(clock=later)
    assert other.restore(saved)
    assert other.saved() == saved
    assert other.plan(ASK).fallback_reason == "quality_canary"
    assert not a_guard(Policy(mode="enforce")).restore(saved)


@pytest.mark.parametrize("key", ["machine", "lanes", "policy"])
@pytest.mark.parametrize("value", [None, [], {}, 3, [{}], [None], {"state": []}])
def test_a_damaged_state_is_taken_as_a_whole_or_not_at_all(key: str, value: Any) -> None:
    guard, other = a_guard(), a_guard()
    fail_twice(guard)
    guard.canary(False)
    guard.canary(False)
    empty = other.saved()
    taken = other.restore({**guard.saved(), key: value})
    assert taken is (key == "lanes" and value == [])
    if not taken:
        assert other.saved() == empty
    assert not other.restore(value)


# Processes and threads


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs the fork of a POSIX system")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_the_child_of_a_fork_begins_without_the_requests_of_its_parent() -> None:
    budget = Budget(share_of_streams=0.5)
    guard = a_guard(Policy(mode="enforce", scope=Scope(by="tenant"), baseline=NO_CONTROL, budget=budget))
    fail_twice(guard, of("bad"))
    kept = [guard.plan(of("a")), guard.plan(of("b"))]
    kept[0].permit.release()  # type: ignore[union-attr]
    with guard._lock:
        child = os.fork()
        if child == 0:
            plan = guard.plan(of("a"))
            clean = (guard._service.running, guard._service.speculating) == (1, 1) and plan == AS_ASKED
            del kept
            guard.machine(MachineState())
            clean = clean and guard._service.running == 1 and guard.plan(of("bad")).cohort == "fallback"
            os._exit(0 if clean else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_totals_are_right_with_eight_threads_and_a_machine() -> None:
    told: list[Transition] = []
    policy = Policy(
        mode="enforce",
        baseline=NO_CONTROL,
        triggers={"accept_rate": Trigger(below=0.5)},
        windows=Windows(rounds=1000),
        probe=Probe(cool_down=1e9),
    )
    guard = Guard(policy, tell=[told.append])
    ended, failures = threading.Event(), []

    def work(number: int) -> None:
        for _ in range(200):
            ask = of(f"t{number}")
            plan = guard.plan(ask)
            request = request_of(plan, ask)
            if plan != AS_ASKED:
                failures.append(plan)
            guard.progress(request, ask.who, rounds(4, 5), 100)
            assert plan.permit is not None
            plan.permit.release()
            guard.finish(record_of(request), ask.who)

    def look() -> None:
        while not ended.is_set():
            guard.machine(MachineState(memory_pressure="normal", swap_used=5))
            guard.scopes()
            guard.saved()

    looking = threading.Thread(target=look)
    working = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in (looking, *working):
        thread.start()
    for thread in working:
        thread.join()
    ended.set()
    looking.join()
    guard.machine(MachineState())
    (lane,) = guard._lanes.all()
    assert not told
    assert not failures
    assert (guard._service.running, guard._service.speculating) == (0, 0)
    assert lane.rounds.rounds == 8 * 200 * 5 % 1000
    assert lane.requests.requests == 8 * 200 % policy.windows.requests
    assert not guard._met
