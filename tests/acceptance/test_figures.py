from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("msgspec", reason="needs the [acceptance] extra")
pytest.importorskip("scipy", reason="needs the [acceptance] extra")

from otel_specdecode.acceptance.figures import (
    accept_rate,
    arm_figures,
    break_even_margin,
    busy_seconds,
    paired,
    pairs,
    speed_up,
    steady,
    steady_speed_up,
    tokens_per_second,
)
from otel_specdecode.acceptance.gates.stretches import longest, stretches
from otel_specdecode.acceptance.records import Arm, Measured, Passes, Run
from tests.acceptance.fakes import World, arms, fake_run, prompts

DRAFTED = Arm(4)
RUN = fake_run(arms([4]), prompts(6, max_tokens=700), World(noise=0.0), repeats=2)


def request(at: float, seconds: float, queued: float | None = None) -> Measured:
    return Measured(f"{at}", "ar", "p", "code", 0, "measured", at, queued=queued, duration=seconds)


def test_busy_seconds_count_what_overlaps_once_and_gaps_not_at_all() -> None:
    assert busy_seconds([request(100, 10), request(105, 10), request(102, 1), request(200, 5)]) == 20
    assert busy_seconds([]) == 0


def test_a_request_that_waited_ran_after_its_wait() -> None:
    assert request(100, 10, queued=7).ended_at == 117
    assert busy_seconds([request(100, 10), request(100, 10, queued=10)]) == 20


def test_a_stretch_lasts_to_the_end_of_a_request_that_waited() -> None:
    (first, *_, last) = RUN.of(DRAFTED)
    waited = replace(RUN, results=tuple(replace(each, queued=50.0) if each == last else each for each in RUN.results))

    assert stretches(waited)[0].end == pytest.approx(last.started_at + 50 + last.duration)
    assert longest(waited, DRAFTED) == pytest.approx(last.started_at + 50 + last.duration - first.started_at)


@pytest.mark.parametrize("concurrency", [1, 4])
def test_what_is_emitted_a_second_does_not_fall_with_the_number_of_other_arms(concurrency: int) -> None:
    few, many = (
        fake_run(arms(lengths, concurrency=concurrency), prompts(20), repeats=2) for lengths in ([4], [2, 3, 4, 6])
    )
    arm = Arm(4, concurrency=concurrency)
    one, other = arm_figures(few, arm).emitted_per_second, arm_figures(many, arm).emitted_per_second

    assert one == pytest.approx(other, rel=0.1)


def test_requests_that_warm_up_count_nowhere() -> None:
    warm = tuple(
        replace(each, id=f"w{each.id}", phase="warm_up", error=error, accepted=0, time_per_token=9.0)
        for each in RUN.results
        for error in (None, "MemoryError")
    )
    for arm in RUN.head.arms:
        assert arm_figures(replace(RUN, results=(*warm, *RUN.results)), arm) == arm_figures(RUN, arm)


def test_failed_requests_are_counted_where_they_belong() -> None:
    results = tuple(replace(each, error="MemoryError") if each.prompt == "short-1" else each for each in RUN.results)
    run = Run(RUN.head, results)

    assert arm_figures(run, DRAFTED).failed == 2
    assert arm_figures(run, DRAFTED, lambda each: each.prompt != "short-1").failed == 0


def test_prompts_for_which_nothing_was_proposed_take_no_interval_away() -> None:
    silent = prompts(20, name="silent")
    blank = fake_run([DRAFTED], silent)
    nothing = [replace(each, accepted=0, rejected=0, rounds=0) for each in blank.results]
    found = accept_rate([*RUN.of(DRAFTED), *nothing])

    assert found == accept_rate(RUN.of(DRAFTED))
    assert accept_rate(nothing) is None


def test_a_prompt_that_weighs_more_counts_more_in_each_figure_over_prompts() -> None:
    """The last prompt is as slow with a draft as without; its weight leaves next to nothing of the others."""

    def changed(each: Measured) -> Measured:
        if each.prompt != "short-5":
            return each
        if each.arm == "ar":
            return replace(each, weight=1e6)
        plain = next(other for other in RUN.of("ar") if (other.prompt, other.repeat) == (each.prompt, each.repeat))
        return replace(plain, arm=each.arm, weight=1e6, rounds=1, accepted=0, rejected=1)

    run = replace(RUN, results=tuple(changed(each) for each in RUN.results))

    for read, alone in ((speed_up, 1.0), (steady_speed_up, 1.0), (break_even_margin, 0.0)):
        found = read(run, DRAFTED)
        assert found is not None
        assert found.value == pytest.approx(alone, abs=0.001)
    rate, accepted = tokens_per_second(run.of(DRAFTED)), accept_rate(run.of(DRAFTED))
    assert rate is not None
    assert rate.value == pytest.approx(1 / 0.026, rel=1e-3)
    assert accepted is not None
    assert accepted.value < 0.01


def test_tokens_before_the_first_pass_that_is_timed_are_part_of_where_a_window_begins() -> None:
    late = replace(RUN.results[0], output_tokens=700, passes=Passes((1,) * 100, (10_000,) * 100))
    found = steady([late])

    assert found is not None
    assert found.value == pytest.approx(100)


@pytest.mark.parametrize(("tokens", "is_enough"), [(575, False), (576, True)])
def test_so_many_tokens_have_to_lie_in_the_window(tokens: int, is_enough: bool) -> None:
    passes = Passes((1,) * (tokens - 1), (10_000,) * (tokens - 1))

    assert (steady([replace(RUN.results[0], output_tokens=tokens, passes=passes)]) is not None) is is_enough


def test_a_pair_has_the_same_prompt_and_the_same_repeat() -> None:
    found = pairs(RUN, DRAFTED)

    assert len(found) == 12
    assert all((one.arm, other.arm) == ("ar", "k=4") for one, other in found)
    assert all((one.prompt, one.repeat) == (other.prompt, other.repeat) for one, other in found)


def test_an_answer_of_just_enough_tokens_counts() -> None:
    assert speed_up(RUN, DRAFTED, least_tokens=700) == speed_up(RUN, DRAFTED)
    assert speed_up(RUN, DRAFTED, least_tokens=701) is None


def test_the_worked_example() -> None:
    """Accepted per round [2, 3, 1, 4, 2, 0, 3, 3] of four, in 0.42 s; another request has one more round, cut."""
    first = RUN.of(DRAFTED)[0]
    whole = replace(first, accepted=18, rejected=14, rounds=8, finished_rounds=8, rollbacks=7, decode=0.42)
    cut = replace(whole, id="cut", accepted=22, rounds=9)
    found, both = arm_figures(Run(RUN.head, (whole,)), DRAFTED), arm_figures(Run(RUN.head, (whole, cut)), DRAFTED)

    assert found.acceptance_length == 3.25
    assert found.accept_rate is not None
    assert found.accept_rate.value == 18 / 32
    assert found.rollbacks_per_minute == pytest.approx(1000)
    assert both.acceptance_length == (18 + 8 + 22 + 8) / 17
    assert arm_figures(RUN, Arm(0)).acceptance_length == 1


def test_each_token_of_a_pass_counts_for_break_even() -> None:
    """Rounds of [3, 4, 2, 5, 3, 1, 4, 4] tokens take two passes without a draft each: 3.25 / 2 - 1."""
    passes = Passes((3, 4, 2, 5, 3, 1, 4, 4), (52_000,) * 8)
    results = tuple(
        replace(each, passes=passes if each.arm == "k=4" else Passes((1,) * 26, (26_000,) * 26)) for each in RUN.results
    )
    found = break_even_margin(replace(RUN, results=results), DRAFTED)

    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((0.625, 0.625, 0.625))


def test_what_requests_waited_for_others_stands_apart_from_the_first_token() -> None:
    run = fake_run(arms([4]), prompts(20))
    waiting = replace(run, results=tuple(replace(each, queued=3.0) for each in run.results))

    assert arm_figures(run, Arm(4)).queued_p95 is None
    found = arm_figures(waiting, Arm(4))
    assert found.queued_p95 is not None
    assert found.queued_p95.value == 3.0
    assert found.time_to_first_token_p50 == arm_figures(run, Arm(4)).time_to_first_token_p50


def test_what_is_in_one_arm_alone_is_left_out_of_both() -> None:
    results = tuple(each for each in RUN.results if (each.arm, each.prompt, each.repeat) != ("ar", "short-1", 1))
    run = paired(replace(RUN, results=results), DRAFTED)

    assert [len(run.of(arm)) for arm in RUN.head.arms] == [11, 11]
    assert pairs(run, DRAFTED) == pairs(replace(RUN, results=results), DRAFTED)
    assert run.head == RUN.head
