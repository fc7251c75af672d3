"""The guard: impossible numbers, restarts, forks and threads."""

from __future__ import annotations

import math
import os
import threading
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_specdecode.generation.counts import Counts
from otel_specdecode.generation.plan import AS_ASKED, Who
from otel_specdecode.generation.tally import Delta
from otel_specdecode.generation.transition import Transition
from otel_specdecode.guard.guard import Guard
from otel_specdecode.guard.machine import MachineState
from otel_specdecode.guard.policy import Budget, Policy, Probe, Scope, Trigger, Windows
from tests.guard.asked import (
    ASK,
    NO_CONTROL,
    a_guard,
    fail_twice,
    of,
    record_of,
    request_of,
    rounds,
)
from tests.guard.simulated import Clock

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


def test_a_signal_may_have_metrics_collected_while_its_thread_is_in_the_guard() -> None:
    seen: list[int] = []

    class Interrupted(Clock):
        guard: Guard | None = None

        def __call__(self) -> float:
            if self.guard is not None:
                seen.append(sum(self.guard.scopes().values()))
            return super().__call__()

    clock = Interrupted()
    guard = clock.guard = a_guard(clock=clock)
    asking = threading.Thread(target=guard.plan, args=(ASK,), daemon=True)
    asking.start()
    asking.join(60)
    assert not asking.is_alive()
    assert seen


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
            clean = (guard._streams.service.running, guard._streams.service.speculating) == (1, 1) and plan == AS_ASKED
            del kept
            guard.machine(MachineState())
            clean = clean and guard._streams.service.running == 1 and guard.plan(of("bad")).cohort == "fallback"
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
    assert (guard._streams.service.running, guard._streams.service.speculating) == (0, 0)
    assert lane.rounds.rounds == 8 * 200 * 5 % 1000
    assert lane.requests.requests == 8 * 200 % policy.windows.requests
    assert guard._met.running == 0
