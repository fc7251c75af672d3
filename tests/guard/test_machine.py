"""The machine's state: only what was read, in readings that follow each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_specdecode.guard.breaker import Change
from otel_specdecode.guard.ladder import rungs_of
from otel_specdecode.guard.machine import LONGEST_GAP, Machine, MachineState
from otel_specdecode.guard.policy import Policy

GIB = 1 << 30
POLICY = Policy(mode="enforce")
CRITICAL = MachineState(memory_pressure="critical")
NORMAL = MachineState(memory_pressure="normal")
HOT = MachineState(thermal_state="serious")


def a_machine(*, unloads: bool = True) -> Machine:
    return Machine(POLICY, rungs_of(None, POLICY.ladder, unloads=unloads), 0.0)


def read(machine: Machine, state: MachineState, began: float, seconds: float, running: int = 1) -> list[Change]:
    """Read the same state every 5 s."""
    times = [began + 5.0 * step for step in range(int(seconds / 5) + 1)]
    return [change for at in times if (change := machine.take(state, running, at)) is not None]


@pytest.mark.parametrize("state", [CRITICAL, HOT, MachineState(thermal_state="critical")])
def test_a_bad_state_trips_after_more_than_a_minute(state: MachineState) -> None:
    assert not read(a_machine(), state, 0.0, 60.0)
    (change,) = read(a_machine(), state, 0.0, 65.0)
    assert change.value == 65.0
    assert change.threshold == 60.0


def test_critical_memory_pressure_unloads_and_lasting_relief_brings_back_step_by_step() -> None:
    machine = a_machine()
    (change,) = read(machine, CRITICAL, 0.0, 600.0)
    assert (change.rung_after, change.reason) == ("unloaded", "memory_pressure")
    assert machine.is_pressed
    assert not read(machine, NORMAL, 605.0, 295.0)
    back = read(machine, NORMAL, 905.0, 3600.0)
    assert [each.rung_after for each in back] == ["k=2", "k=3", "k=4", "k=6", "as_asked"]
    assert not machine.is_pressed


def test_heat_takes_a_rung_at_a_time() -> None:
    changes = read(a_machine(), HOT, 0.0, 600.0)
    assert [each.rung_after for each in changes] == ["k=6", "k=4", "k=3", "k=2", "autoregressive"]


@pytest.mark.parametrize("between", [MachineState(), NORMAL, MachineState(memory_pressure="warn")])
def test_a_reading_between_that_is_not_critical_begins_anew(between: MachineState) -> None:
    machine = a_machine()
    read(machine, CRITICAL, 0.0, 55.0)
    machine.take(between, 1, 60.0)
    assert not read(machine, CRITICAL, 65.0, 60.0)


@pytest.mark.parametrize("jump", [LONGEST_GAP + 5.1, 86_400.0 * 3, -86_400.0 * 3])
def test_readings_that_do_not_follow_each_other_are_not_in_a_row(jump: float) -> None:
    machine = a_machine()
    read(machine, CRITICAL, 1e6, 30.0)
    assert not read(machine, CRITICAL, 1e6 + 30.0 + jump, 60.0)


def test_swap_that_grows_while_requests_run_limits_streams_first() -> None:
    machine = a_machine()
    machine.take(MachineState(swap_used=GIB), 1, 0.0)
    assert machine.take(MachineState(swap_used=GIB + GIB * 3 // 2), 1, 5.0) is None
    change = machine.take(MachineState(swap_used=GIB + GIB * 3 // 2 + 1), 1, 10.0)
    assert change is not None
    assert (change.rung_after, change.reason, change.value) == ("streams", "swap_growth", GIB * 3 // 2 + 1)
    assert not machine.breaker.rung.draft_length


def test_swap_of_others_trips_nothing_while_no_request_runs() -> None:
    machine = a_machine()
    changes = [machine.take(MachineState(swap_used=step * GIB), 0, step * 5.0) for step in range(20)]
    assert not any(changes)


def test_swap_that_was_in_use_before_is_no_growth() -> None:
    assert not read(a_machine(), MachineState(swap_used=50 * GIB), 0.0, 600.0)


def test_swap_that_stands_still_is_what_further_growth_counts_from() -> None:
    machine = a_machine()
    machine.take(MachineState(swap_used=0), 1, 0.0)
    assert not read(machine, MachineState(swap_used=GIB), 5.0, 400.0)
    assert not read(machine, MachineState(swap_used=2 * GIB), 410.0, 400.0)
    assert read(machine, MachineState(swap_used=4 * GIB), 815.0, 5.0)


def test_two_canaries_in_a_row_that_fail_trip_and_passed_ones_bring_back_after_the_cool_down() -> None:
    machine = a_machine()
    assert machine.canary(False, 0.0) is None
    assert machine.canary(True, 60.0) is None
    assert machine.canary(False, 120.0) is None
    change = machine.canary(False, 180.0)
    assert change is not None
    assert (change.rung_after, change.reason, change.samples) == ("autoregressive", "quality_canary", 2)
    assert [machine.canary(True, 180.0 + 60 * n) for n in range(1, 5)] == [None] * 4
    back = machine.canary(True, 480.0)
    assert back is not None
    assert back.after == "limited"


@given(st.lists(st.tuples(st.sampled_from(["unknown", "normal", "warn"]), st.floats(-1e6, 1e6)), max_size=50))
def test_whatever_the_clock_does_a_machine_that_is_well_trips_nothing(readings: list[tuple[str, float]]) -> None:
    machine = a_machine()
    for pressure, at in readings:
        assert machine.take(MachineState("low", "fair", pressure, 10), 1, at) is None
