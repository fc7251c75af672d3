"""The guard: what it counts for which rung, what it tells of a change, and what it frees."""

from __future__ import annotations

import pytest

from otel_specdecode.generation.plan import AS_ASKED, Who
from otel_specdecode.generation.transition import Lane, Transition
from otel_specdecode.guard.guard import Guard
from otel_specdecode.guard.machine import MachineState
from otel_specdecode.guard.policy import Policy, Scope, Trigger, Windows
from tests.guard.asked import (
    ASK,
    ENFORCE,
    NO_CONTROL,
    TRACE,
    a_guard,
    fail_twice,
    of,
    record_of,
    request_of,
    rounds,
)
from tests.guard.simulated import START_NS, Clock


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
            window_seconds=9.5,  # 8 between the deliveries, and the passes of the first one
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


def test_memory_is_freed_by_who_looks_at_the_machine_and_never_while_a_request_waits() -> None:
    unloads = {"verifier_error": Trigger(above=2, action="unload")}
    guard, freed = a_guard(Policy(mode="enforce", baseline=NO_CONTROL, triggers=unloads)), [0]
    guard.unload_with(lambda: freed.append(1), lighter=False)
    fail_twice(guard)
    assert guard.plan(ASK).autoregressive
    assert freed == [0]
    for _ in range(2):
        guard.machine(MachineState())
        assert freed == [0, 1]


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
