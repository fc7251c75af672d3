from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("msgspec", reason="needs the [acceptance] extra")
pytest.importorskip("scipy", reason="needs the [acceptance] extra")

from otel_specdecode.acceptance.endurance import endurance
from otel_specdecode.acceptance.records import Arm, Run
from otel_specdecode.acceptance.terminal import endurance_told
from tests.acceptance.fakes import GIB, World, fake_run, prompts

ARM = Arm(4)
HOUR = fake_run((ARM,), prompts(4), kind="soak", seconds=3600.0)


def with_memory(run: Run, grows: float, noise: float = 0.01, *, footprint: bool = False) -> Run:
    """A run whose memory grows by so many GiB an hour over 10, with noise."""
    rng = np.random.default_rng(1)
    name = "footprint" if footprint else "rss"
    host = tuple(
        replace(each, **{name: int((10 + grows * (each.at - run.host[0].at) / 3600 + rng.normal(0, noise)) * GIB)})
        for each in run.host
    )
    return replace(run, host=host)


@pytest.mark.parametrize("footprint", [False, True])
def test_memory_that_grows_is_told_with_how_fast(footprint: bool) -> None:
    found = endurance(with_memory(HOUR, 1.0, footprint=footprint), ARM)

    assert found is not None
    assert found.grows == "yes"
    assert found.memory.of == ("footprint" if footprint else "resident memory")
    assert found.memory.per_hour is not None
    assert found.memory.per_hour.value == pytest.approx(GIB, rel=0.02)
    assert found.memory.rose == pytest.approx(0.075, rel=0.05)  # over the last three quarters


@pytest.mark.parametrize("grows", [0.0, 0.05, -1.0])
def test_memory_that_stays_or_hardly_moves_does_not_grow(grows: float) -> None:
    found = endurance(with_memory(HOUR, grows), ARM)
    assert found is not None
    assert found.grows == "no"


def test_caches_that_fill_at_first_are_no_growth() -> None:
    host = tuple(
        replace(each, rss=int(10 * GIB * min(0.5 + (each.at - HOUR.host[0].at) / 1000, 1.0))) for each in HOUR.host
    )
    found = endurance(replace(HOUR, host=host), ARM)
    assert found is not None
    assert found.grows == "no"


def test_a_step_of_one_sample_is_no_growth() -> None:
    run = with_memory(HOUR, 0.0)
    last = replace(run.host[-1], rss=30 * GIB)
    found = endurance(replace(run, host=(*run.host[:-1], last)), ARM)
    assert found is not None
    assert found.grows == "no"


def test_a_short_run_does_not_say_no() -> None:
    run = with_memory(fake_run((ARM,), prompts(4), kind="soak", seconds=120.0), 0.0)
    found = endurance(run, ARM)
    assert found is not None
    assert found.grows == "too short to tell"


def test_a_machine_that_slows_down_is_told_without_heat_being_known() -> None:
    begun = HOUR.measured[0].started_at
    slower = tuple(
        each
        if each.time_per_token is None
        else replace(each, time_per_token=each.time_per_token * (1 + 0.2 * (each.started_at - begun) / 3600))
        for each in HOUR.results
    )
    host = tuple(replace(each, thermal_state="unknown") for each in HOUR.host)
    found = endurance(replace(HOUR, results=slower, host=host), ARM)

    assert found is not None
    assert found.throttled_seconds is None
    assert found.throttles == "yes"
    assert found.slowing.rose == pytest.approx(0.2, abs=0.03)


def test_a_thermal_state_that_slows_down_is_told() -> None:
    middle = len(HOUR.host) // 2
    host = tuple(
        replace(each, thermal_state="serious") if middle <= number < middle + 4 else each
        for number, each in enumerate(HOUR.host)
    )
    found = endurance(replace(HOUR, host=host), ARM)
    assert found is not None
    assert found.throttled_seconds == pytest.approx(20.0)
    assert found.throttles == "yes"


def test_all_is_well_where_all_is_well() -> None:
    found = endurance(with_memory(HOUR, 0.0), ARM)
    assert found is not None
    assert (found.grows, found.throttles, found.throttled_seconds) == ("no", "no", 0.0)


def test_an_arm_without_a_request_says_nothing() -> None:
    assert endurance(HOUR, Arm(9)) is None
    assert endurance(fake_run((ARM,), prompts(1), World()), ARM) is not None


def test_a_soak_says_it_in_sentences_and_a_sweep_says_nothing() -> None:
    told = endurance_told(with_memory(HOUR, 1.0))

    assert told[0].startswith("k=4: resident memory grows, by +10")
    assert told[0].endswith("] MiB an hour.")
    assert told[1].startswith("k=4: the machine does not slow down; time per token changed by ")
    assert told[1].endswith(" over 60 min; 0 s throttled by heat.")
    assert endurance_told(fake_run((ARM,), prompts(1))) == []
