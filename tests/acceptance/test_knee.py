from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("msgspec", reason="needs the [acceptance] extra")
pytest.importorskip("scipy", reason="needs the [acceptance] extra")

from otel_specdecode.acceptance.knee import Candidate, knee, knees, told_by_level
from otel_specdecode.acceptance.records import Arm, Run
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


def at_levels(*levels: int) -> Run:
    """A run in which drafts are the worse the more requests there are at once."""
    accept = {1: 0.85, 2: 0.7, 4: 0.05}
    runs = [fake_run(arms([2, 4], concurrency=each), prompts(10), World(accept=accept[each])) for each in levels]
    head = replace(runs[0].head, arms=tuple(arm for run in runs for arm in run.head.arms))
    return replace(runs[0], head=head, results=tuple(each for run in runs for each in run.results))


def test_each_number_of_requests_at_once_has_a_best_of_its_own() -> None:
    run = at_levels(4, 1)
    found = knees(run)

    assert list(found) == [1, 4]
    assert found[1] == knee(run)
    assert found[4] == knee(run, arms([2, 4], concurrency=4))
    assert [each.best.arm for each in found.values() if each.best] == [Arm(4), Arm(2, concurrency=4)]


def test_the_best_of_a_level_is_greedy_where_it_can_be() -> None:
    sampled = arms([2], temperature=0.7, concurrency=2)
    run = fake_run((*arms([1], concurrency=2), *sampled, *arms([2], temperature=0.7, concurrency=3)), prompts(10))
    found = knees(run)

    assert {each.arm for each in found[2].candidates} == {Arm(1, concurrency=2)}
    assert {each.arm for each in found[3].candidates} == {Arm(2, temperature=0.7, concurrency=3)}


def test_each_level_above_one_has_a_sentence() -> None:
    run = at_levels(1, 2, 4)
    two, four = told_by_level(knee(run), knees(run))

    assert two.startswith("With 2 requests at once, take k=4 c=2: ")
    assert four.startswith("With 4 requests at once, stay on autoregressive decoding: the best arm, k=2 c=4, is only ")
    alone = fake_run(arms([4]), prompts(10))
    assert told_by_level(knee(alone), knees(alone)) == ()


def test_a_level_that_the_first_sentence_is_of_is_not_told_twice() -> None:
    for levels, told in (((2,), 0), ((2, 4), 1)):
        run = at_levels(*levels)
        assert knee(run).why.startswith("Take k=4 c=2: ")
        assert len(told_by_level(knee(run), knees(run))) == told


def test_a_level_without_a_pair_says_so_beside_level_one() -> None:
    run = at_levels(1, 2)
    run = replace(run, results=tuple(each for each in run.results if each.arm != "ar c=2"))

    assert told_by_level(knee(run), knees(run)) == (
        "With 2 requests at once, stay on autoregressive decoding: no speculative request could be compared with it.",
    )
