"""What is held against a bound, the value or its interval; and how swapping is counted."""

from __future__ import annotations

import pytest

pytest.importorskip("msgspec", reason="needs the [acceptance] extra")
pytest.importorskip("scipy", reason="needs the [acceptance] extra")

from dataclasses import replace

from msgspec import structs

from otel_specdecode.acceptance.gates.machine import swap_episodes
from otel_specdecode.acceptance.gates.policy import Bound, Gate
from otel_specdecode.acceptance.gates.policy_file import preset_policy
from otel_specdecode.acceptance.gates.stretches import longest
from otel_specdecode.acceptance.gates.validity import validity_of
from otel_specdecode.thresholds import thresholds
from tests.acceptance.fakes import arms, fake_run, prompts
from tests.acceptance.gates.cases import K4, NOW

MIDDLE, WIDE = (1.0, 0.5, 1.5), (0.0, -0.3, 0.2)


@pytest.mark.parametrize(
    ("bound", "number", "estimate", "by_value", "by_interval"),
    [
        ("at_most", 1.0, MIDDLE, True, False),
        ("at_most", 1.5, MIDDLE, True, True),
        ("below", 1.0, MIDDLE, False, False),
        ("below", 1.2, MIDDLE, True, False),
        ("below", 1.6, MIDDLE, True, True),
        ("at_least", 1.0, MIDDLE, True, False),
        ("at_least", 0.5, MIDDLE, True, True),
        ("above", 1.0, MIDDLE, False, False),
        ("above", 0.5, MIDDLE, True, False),
        ("above", 0.4, MIDDLE, True, True),
        ("within", 0.25, WIDE, True, False),
        ("within", 0.3, WIDE, True, True),
        ("within", 0.25, (0.0, -0.2, 0.3), True, False),
    ],
)
def test_a_bound_holds_for_the_value_or_for_the_whole_interval(
    bound: Bound, number: float, estimate: tuple[float, float, float], by_value: bool, by_interval: bool
) -> None:
    gate = structs.replace(Gate(measure="steady"), **{bound: number})

    assert gate.holds(*estimate) is by_value
    assert structs.replace(gate, by="interval").holds(*estimate) is by_interval


def test_without_an_interval_only_the_value_can_be_held_against_a_bound() -> None:
    gate = Gate(measure="steady", at_least=1)

    assert gate.holds(2.0, None, None) is True
    assert structs.replace(gate, by="interval").holds(2.0, None, None) is None


def test_a_soak_that_is_a_moment_too_short_is_too_short() -> None:
    soak = fake_run(arms([4]), prompts(4), kind="soak")
    lasted = longest(soak, K4)

    for seconds, status in ((lasted, "held"), (lasted + 0.01, "broken")):
        policy = structs.replace(preset_policy("balanced").validity, soak=seconds)
        found = {each.id: each.status for each in validity_of(policy, soak, None, K4, NOW)}
        assert found["soak"] == status


def test_swapping_that_goes_on_is_one_episode_and_one_after_a_quiet_while_another() -> None:
    run = fake_run(arms([4]), prompts(40), repeats=2)
    quiet = int(thresholds()["host"]["swap_quiet"] / 5)  # samples
    busy = {50, 51, 52 + quiet - 1, 52 + 2 * quiet + 1}
    swapped, host = 0, []
    for number, each in enumerate(run.host):
        swapped += 4096 * (number in busy)
        host.append(replace(each, swapped_out=swapped))
    episodes, days = swap_episodes([replace(run, host=tuple(host))])

    assert episodes == 2
    assert days == pytest.approx((run.results[-1].ended_at - run.results[0].started_at) / 86_400)
