"""Seconds in each state, and how often swapping began."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_specdecode.host.durations import StateTimes, SwapEpisodes
from otel_specdecode.host.state import STATES, HostState, ThermalState, unknown_host
from tests.host.states import host_state

LONGEST = 15.0


def thermal(times: StateTimes, at: float) -> dict[str, float]:
    """The seconds of the thermal states that are not 0."""
    return {state: seconds for state, seconds in times.seconds(at)["thermal_state"].items() if seconds}


def test_before_the_first_reading_there_is_no_time() -> None:
    times = StateTimes(LONGEST)
    assert times.seconds(100.0) == {name: dict.fromkeys(members, 0.0) for name, members in STATES.items()}


def test_a_short_red_phase_between_two_exports_is_not_missed() -> None:
    times = StateTimes(LONGEST)
    for at in range(0, 65, 5):
        times.observe(at, host_state(thermal_state="critical" if at == 30 else "nominal"))
    assert thermal(times, 60) == {"nominal": 55, "critical": 5}


def test_the_time_since_the_last_reading_belongs_to_it() -> None:
    times = StateTimes(LONGEST)
    times.observe(10, host_state(thermal_state="serious"))
    assert thermal(times, 12.5) == {"serious": 2.5}
    times.observe(15, host_state(thermal_state="nominal"))
    assert thermal(times, 16) == {"serious": 5, "nominal": 1}


def test_a_reading_does_not_speak_for_long() -> None:
    """If the reading thread hangs, or the machine slept, nobody knows what was."""
    times = StateTimes(LONGEST)
    times.observe(0, host_state(thermal_state="nominal"))
    assert thermal(times, 100) == {"nominal": 15, "unknown": 85}
    times.observe(200, host_state(thermal_state="fair"))
    assert thermal(times, 201) == {"nominal": 15, "unknown": 185, "fair": 1}


def test_each_enum_has_its_own_times() -> None:
    times = StateTimes(LONGEST)
    times.observe(0, host_state(power_source="battery", memory_pressure="warn"))
    seconds = times.seconds(4)
    assert seconds["power_source"] == {"ac": 0, "battery": 4, "unknown": 0}
    assert seconds["memory_pressure"] == {"normal": 0, "warn": 4, "critical": 0, "unknown": 0}
    assert seconds["power_mode"] == {"low": 0, "automatic": 0, "high": 0, "unknown": 4}


def test_asking_changes_nothing() -> None:
    times = StateTimes(LONGEST)
    times.observe(0, host_state(thermal_state="fair"))
    assert times.seconds(5) == times.seconds(5)
    times.seconds(5)["thermal_state"]["fair"] = 99
    assert thermal(times, 5) == {"fair": 5}


def test_a_state_that_no_enum_has_counts_as_unknown() -> None:
    times = StateTimes(LONGEST)
    times.observe(0, host_state(thermal_state=cast(ThermalState, "melting")))
    assert thermal(times, 1) == {"unknown": 1}


steps = st.lists(
    st.tuples(st.floats(0, 40, allow_nan=False), st.sampled_from(STATES["thermal_state"]), st.booleans()), max_size=30
)


@given(steps)
def test_the_seconds_add_up_and_never_fall(taken: list[tuple[float, str, bool]]) -> None:
    """Whenever it is asked, the seconds of an enum are the time since the first reading."""
    times, at, first, before = StateTimes(LONGEST), 0.0, None, dict.fromkeys(STATES["thermal_state"], 0.0)
    for wait, state, reads in taken:
        at += wait
        now = times.seconds(at)
        assert all(now["thermal_state"][member] >= before[member] - 1e-9 for member in before)
        before = now["thermal_state"]
        for members in now.values():
            assert sum(members.values()) == pytest.approx(0.0 if first is None else at - first)
        if reads:
            first = at if first is None else first
            times.observe(at, unknown_host("x") if state == "unknown" else host_state(thermal_state=state))


def episodes(*readings: tuple[float, int | None]) -> int:
    """How many episodes these totals of swapped-out bytes make."""
    swaps = SwapEpisodes(60)
    for at, total in readings:
        swaps.observe(at, total)
    return swaps.count


@pytest.mark.parametrize(
    ("readings", "count"),
    [
        ([], 0),
        ([(0, 900)], 0),
        ([(0, 900), (5, 900), (10, 900)], 0),
        ([(0, 900), (5, 901)], 1),
        ([(0, 0), (5, 1), (10, 2), (15, 3)], 1),
        ([(0, 0), (5, 1), (64, 2)], 1),
        ([(0, 0), (5, 1), (65, 2)], 2),
        ([(0, 0), (5, 1), (60, 2), (115, 3)], 1),
        ([(0, 0), (5, 1), (10, None), (70, 2)], 2),
        ([(0, 5), (5, None), (10, 6)], 1),
        ([(0, 500), (5, 0), (10, 1)], 1),
        ([(0, None), (5, None)], 0),
    ],
    ids=[
        "no reading",
        "what was before is not known",
        "no growth",
        "growth",
        "growth that goes on",
        "again within a minute",
        "again after a minute",
        "never a minute's quiet",
        "unknown in between",
        "growth across an unknown",
        "a total that fell is a new start",
        "never known",
    ],
)
def test_a_swap_out_after_a_quiet_minute_begins_an_episode(
    readings: list[tuple[float, int | None]], count: int
) -> None:
    assert episodes(*readings) == count


def test_the_state_of_a_test_has_all_readings() -> None:
    assert isinstance(host_state(swapped_out=5), HostState)
    assert host_state(swapped_out=5).swapped_out.value == 5
