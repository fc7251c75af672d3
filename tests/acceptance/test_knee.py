from __future__ import annotations

import pytest

pytest.importorskip("msgspec", reason="needs the [acceptance] extra")
pytest.importorskip("scipy", reason="needs the [acceptance] extra")

from otel_specdecode.acceptance.knee import Candidate, knee
from otel_specdecode.acceptance.records import Arm
from otel_specdecode.acceptance.statistics import Estimate
from tests.acceptance.fakes import World, arms, fake_run, prompts


@pytest.mark.parametrize(
    ("low", "high", "pays"),
    [
        (1.01, 1.2, True),
        (1.0, 1.2, None),  # the interval holds 1
        (0.9, 1.2, None),
        (0.9, 1.0, None),
        (0.8, 0.99, False),
        (None, None, None),
    ],
)
def test_an_arm_pays_where_its_whole_interval_is_above_one(
    low: float | None, high: float | None, pays: bool | None
) -> None:
    assert Candidate(Arm(4), Estimate(1.0, low, high, 20), None).pays is pays


def test_too_few_prompts_advise_to_stay_however_fast_they_were() -> None:
    found = knee(fake_run(arms([4]), prompts(4), World(accept=0.95), repeats=20))

    assert found.stay
    assert "and too few prompts to tell" in found.why
    assert not knee(fake_run(arms([4]), prompts(5), World(accept=0.95), repeats=20)).stay


def test_the_best_is_one_of_those_that_differ_in_their_draft_alone() -> None:
    at_once, sampled = arms([4], concurrency=4), arms([4], temperature=0.7)
    run = fake_run((*arms([1]), *at_once, *sampled), prompts(10), World(accept=0.95))

    assert {each.arm for each in knee(run).candidates} == {Arm(1)}
    assert {each.arm for each in knee(run, at_once).candidates} == {at_once[1]}
    assert {each.arm for each in knee(fake_run(at_once, prompts(10))).candidates} == {at_once[1]}
