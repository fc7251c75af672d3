"""What a window says: exact sums, nothing that is not known, and no number that a stalled clock made."""

from __future__ import annotations

import math

import pytest

from otel_specdecode.generation.counts import Counts
from otel_specdecode.guard.baseline import Baseline, Conditions, Usual
from otel_specdecode.guard.windows import LONGEST_PASS, Closed, RequestWindow, RoundWindow

HERE = Conditions("mlx", "target", "chat", "short")
ELSEWHERE = HERE._replace(tier="long")
USUAL = Usual(0.02, 0.02, 0.025, 0.5, None, 200)
KNOWN = Baseline(1, 60.0, {HERE: USUAL})


def of_rounds(*emitted: int, proposed: int = 4) -> Counts:
    counts = Counts()
    for each in emitted:
        counts.add_round(proposed, each, True)
    return counts


def closed_rounds(window: RoundWindow, baseline: Baseline = KNOWN) -> Closed:
    return window.close(baseline, 0.0)


def test_accept_rate_is_accepted_over_compared_tokens() -> None:
    window = RoundWindow()
    window.add(of_rounds(1, 3), [], 4, HERE, 0.0)
    window.add(of_rounds(5), [], 4, HERE, 7.0)
    closed = closed_rounds(window)
    assert closed.values["accept_rate"] == 6 / 12
    assert closed.values["all_rejected"] == 1 / 3
    assert (closed.samples, closed.seconds, dict(closed.lengths)) == (3, 7.0, {4: 12})


def test_tokens_that_the_stream_ended_before_comparing_are_in_no_rate() -> None:
    counts = Counts()
    counts.add_round(4, 1, False)
    window = RoundWindow()
    window.add(counts, [], 4, HERE, 0.0)
    assert "all_rejected" not in closed_rounds(window).values
    assert closed_rounds(window).values["accept_rate"] == 1.0


def test_break_even_is_the_time_without_a_draft_over_the_time_that_was_taken() -> None:
    window = RoundWindow()
    window.add(of_rounds(2, 2), [30_000_000, 30_000_000], 4, HERE, 0.0)
    assert closed_rounds(window).values["break_even"] == pytest.approx(4 * 0.02 / 0.06)


def test_a_mix_of_tiers_moves_nothing_where_each_tier_is_as_it_was() -> None:
    slow = Baseline(1, 60.0, {HERE: USUAL, ELSEWHERE: Usual(0.2, None, None, None, None, 200)})
    for short, long in ((9, 1), (1, 9)):
        window = RoundWindow()
        window.add(of_rounds(*[2] * short), [40_000_000] * short, 4, HERE, 0.0)
        window.add(of_rounds(*[2] * long), [400_000_000] * long, 4, ELSEWHERE, 0.0)
        assert closed_rounds(window, slow).values["break_even"] == pytest.approx(1.0)


@pytest.mark.parametrize(("comparable", "known"), [(79, False), (80, True)])
def test_a_window_is_comparable_from_four_fifths_on(comparable: int, known: bool) -> None:
    window = RoundWindow()
    for count, conditions in ((comparable, HERE), (100 - comparable, ELSEWHERE)):
        window.add(of_rounds(*[2] * count), [30_000_000] * count, 4, conditions, 0.0)
    assert ("break_even" in closed_rounds(window).values) is known


def test_without_a_baseline_nothing_relative_is_known() -> None:
    window, requests = RoundWindow(), RequestWindow()
    window.add(of_rounds(2), [30_000_000], 4, HERE, 0.0)
    assert "break_even" not in closed_rounds(window, Baseline(1, 60.0)).values
    add(requests, baseline=Baseline(1, 60.0))
    assert requests.close(Baseline(1, 60.0), None).values == {"nothing_proposed": 0.0}


@pytest.mark.parametrize("seconds", [LONGEST_PASS * 2, 86_400.0, 1e30])
def test_a_pass_in_which_the_process_stood_still_is_not_timed(seconds: float) -> None:
    window = RoundWindow()
    window.add(of_rounds(2), [30_000_000], 4, HERE, 0.0)
    window.add(of_rounds(2), [int(seconds * 1e9)], 4, HERE, 0.0)
    assert closed_rounds(window).values["break_even"] == pytest.approx(2 * 0.02 / 0.03)


def test_a_window_is_stale_when_its_first_round_is_too_old() -> None:
    window = RoundWindow()
    assert not window.is_stale(1e9, 60.0)
    window.add(of_rounds(2), [], 4, HERE, 100.0)
    window.add(of_rounds(2), [], 4, HERE, 150.0)
    assert not window.is_stale(160.0, 60.0)
    assert window.is_stale(160.1, 60.0)


def add(
    window: RequestWindow,
    count: int = 1,
    *,
    baseline: Baseline = KNOWN,
    per_token: float | None = 0.01,
    first: float | None = 0.5,
    queued: float | None = None,
    proposed: int | None = 4,
    conditions: Conditions = HERE,
) -> None:
    for _ in range(count):
        window.add(
            conditions,
            baseline,
            0.0,
            proposed=proposed,
            queued=queued,
            time_per_token=per_token,
            time_to_first_token=first,
        )


def test_each_request_is_held_against_the_baseline_of_its_own_conditions() -> None:
    baseline = Baseline(1, 60.0, {HERE: USUAL, ELSEWHERE: Usual(0.1, 0.2, 0.25, 5.0, None, 200)})
    window = RequestWindow()
    add(window, 10, baseline=baseline, per_token=0.01)
    add(window, 10, baseline=baseline, per_token=0.1, conditions=ELSEWHERE)
    closed = window.close(baseline, None)
    assert closed.values["speedup"] == pytest.approx(2.0)
    assert closed.values["time_per_token"] == pytest.approx(0.01 / 0.025)


def test_one_request_in_twenty_may_be_as_slow_as_it_likes() -> None:
    window = RequestWindow()
    add(window, 19)
    add(window, per_token=9.0)
    assert window.close(KNOWN, None).values["time_per_token"] == pytest.approx(0.01 / 0.025)


def test_medians_of_first_tokens_count_less_what_their_prompts_may_do() -> None:
    """A median of 20 is known to about 2 / sqrt(20) of itself."""
    window = RequestWindow()
    add(window, 20, first=1.0)
    assert window.close(KNOWN, None).values["time_to_first_token"] == pytest.approx(2 - 2 * math.sqrt(1 / 20 + 1 / 200))


@pytest.mark.parametrize("nonsense", [math.nan, math.inf, -1.0])
def test_what_is_no_duration_is_not_known(nonsense: float) -> None:
    window = RequestWindow()
    add(window, 20, per_token=nonsense, first=nonsense, queued=nonsense)
    assert window.close(KNOWN, None).values == {"nothing_proposed": 0.0}


def test_queue_and_proposals_are_known_only_where_requests_wait_and_a_draft_costs_something() -> None:
    window = RequestWindow()
    add(window, 10, proposed=None)
    assert window.close(KNOWN, None).values.keys().isdisjoint({"queue", "nothing_proposed"})
    window = RequestWindow()
    add(window, 18, queued=0.1)
    add(window, 2, queued=3.0, proposed=0)
    assert window.close(KNOWN, 0.7).values["queue"] == 3.0
    assert window.close(KNOWN, 0.7).values["nothing_proposed"] == 0.1
    assert window.close(KNOWN, 0.7).values["service_speedup"] == 0.7


def learned(*controls: tuple[float, float]) -> Baseline:
    """A baseline of usual passes of 20 ms, and of later control requests: when, and seconds a pass."""
    baseline = Baseline(1, 1e6)
    for _ in range(100):
        baseline.add_passes(HERE, 50, 1.0, 0.0)
        baseline.add_request(HERE, 0.02, 0.5, 0.0)
    for at, seconds in controls:
        baseline.add_passes(HERE, 50, 50 * seconds, at)
        for _ in range(2):
            baseline.add_request(HERE, seconds, 0.5, at)
    return baseline


def slow_rounds() -> RoundWindow:
    window = RoundWindow()
    for at in (1000.0, 1030.0):
        window.add(of_rounds(2, 2), [60_000_000, 60_000_000], 4, HERE, at)
    return window


def test_what_looks_bad_is_not_known_until_control_requests_of_the_same_time_tell() -> None:
    for controls in ((), ((999.0, 0.02),)):
        closed = slow_rounds().close(learned(*controls), 1030.0)
        assert closed.suspect
        assert "break_even" not in closed.values


def test_a_target_that_is_slow_for_all_is_no_fault_of_the_draft() -> None:
    closed = slow_rounds().close(learned((1010.0, 0.04)), 1030.0)
    assert not closed.suspect
    assert closed.values["break_even"] == pytest.approx(4 / 3, rel=0.01)


def test_a_target_that_is_as_ever_confirms_that_a_draft_does_not_pay() -> None:
    closed = slow_rounds().close(learned((1010.0, 0.02)), 1030.0)
    assert closed.values["break_even"] == pytest.approx(2 / 3, rel=0.01)


def test_slow_requests_are_held_against_those_of_the_same_time_too() -> None:
    for controls, known in (((), False), (((5.0, 0.04),), True)):
        window, baseline = RequestWindow(), learned(*controls)
        for at in range(20):
            window.add(
                HERE,
                baseline,
                1.0 + at,
                proposed=4,
                queued=None,
                time_per_token=0.025,
                time_to_first_token=2.0,
            )
        closed = window.close(baseline, 0.9)
        assert closed.suspect is not known
        assert (
            {"speedup", "time_per_token", "time_to_first_token", "service_speedup"} <= closed.values.keys()
        ) is known
        if known:
            assert closed.values["speedup"] == pytest.approx(1.6, rel=0.02)
            assert closed.values["service_speedup"] == pytest.approx(1.8, rel=0.02)


def test_requests_in_which_the_draft_was_not_asked_have_no_say_in_how_often_it_proposed_nothing() -> None:
    window = RequestWindow()
    add(window, 10, proposed=None)
    add(window, 8)
    add(window, 2, proposed=0)
    assert window.close(KNOWN, None).values["nothing_proposed"] == 0.2


@pytest.mark.parametrize(("asked", "known"), [(4, False), (5, True)])
def test_a_quarter_of_a_window_must_have_asked_the_draft(asked: int, known: bool) -> None:
    window = RequestWindow()
    add(window, 20 - asked, proposed=None)
    add(window, asked, proposed=0)
    assert ("nothing_proposed" in window.close(KNOWN, None).values) is known


def test_a_window_that_one_delivery_filled_took_as_long_as_its_passes() -> None:
    window = RoundWindow()
    window.add(of_rounds(2, 2), [3_000_000_000, 4_000_000_000], 4, HERE, 100.0)
    assert closed_rounds(window).seconds == 7.0
    window.add(of_rounds(2), [1_000_000_000], 4, HERE, 102.0)
    assert closed_rounds(window).seconds == 9.0
    window.add(of_rounds(2), [int(LONGEST_PASS * 2e9)], 4, HERE, 103.0)
    assert closed_rounds(window).seconds == 10.0
