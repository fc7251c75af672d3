"""The output of the whole service, by how many requests run at once."""

from __future__ import annotations

import pytest

from otel_specdecode.guard.service import ENOUGH_SECONDS, FORGETS_AFTER, ServiceMeter


def run(meter: ServiceMeter, began: float, seconds: float, a_second: int, *, requests: int, speculating: int) -> float:
    """Run requests at once for some seconds; return when they ended."""
    meter.change(requests, speculating, began)
    for second in range(1, int(seconds) + 1):
        meter.add(a_second, began + second)
    meter.change(-requests, -speculating, began + seconds)
    return began + seconds


def test_the_output_without_speculation_is_known_after_enough_seconds() -> None:
    meter = ServiceMeter()
    at = run(meter, 0.0, ENOUGH_SECONDS - 1, 100, requests=8, speculating=0)
    assert meter.tokens_per_second("8") is None
    run(meter, at + 500, 1, 100, requests=8, speculating=0)
    assert meter.tokens_per_second("8") == pytest.approx(100)
    assert meter.tokens_per_second("1") is None


def test_a_draft_that_wins_each_request_and_loses_the_batch_is_seen_as_such() -> None:
    meter = ServiceMeter()
    at = run(meter, 0.0, ENOUGH_SECONDS, 200, requests=8, speculating=0)
    mark = meter.mark()
    run(meter, at, 30, 60, requests=8, speculating=8)
    assert meter.speedup(mark, {}) == pytest.approx(0.3)
    assert meter.speedup(mark, {"8": 40.0}) == pytest.approx(1.5)


def test_bands_count_at_their_own_share() -> None:
    meter = ServiceMeter()
    at = run(meter, 0.0, 20, 50, requests=2, speculating=1)
    run(meter, at, 10, 400, requests=8, speculating=2)
    assert meter.speedup({}, {"2": 25.0, "8": 200.0}) == pytest.approx(2.0)


def test_each_lane_reads_from_its_own_mark() -> None:
    meter = ServiceMeter()
    at = run(meter, 0.0, 20, 50, requests=2, speculating=1)
    mark = meter.mark()
    run(meter, at, 20, 25, requests=2, speculating=1)
    assert meter.speedup({}, {"2": 25.0}) == pytest.approx(1.5)
    assert meter.speedup(mark, {"2": 25.0}) == pytest.approx(1.0)
    assert meter.speedup(mark, {"2": 25.0}) == pytest.approx(1.0)


def test_too_short_a_time_and_too_little_that_is_comparable_say_nothing() -> None:
    meter = ServiceMeter()
    at = run(meter, 0.0, 9, 50, requests=2, speculating=1)
    assert meter.speedup({}, {"2": 25.0}) is None
    run(meter, at, 9, 50, requests=4, speculating=1)
    assert meter.speedup({}, {"2": 25.0}) is None
    assert meter.speedup({}, {"2": 25.0, "4": 25.0}) == pytest.approx(2.0)


def test_tokens_of_a_long_request_do_not_all_count_for_the_moment_it_runs_alone() -> None:
    """One request of 60 s without speculation; for all but its last second another one speculates."""
    meter = ServiceMeter()
    meter.change(1, 0, 0.0)
    meter.change(1, 1, 0.0)
    for second in range(1, 60):
        meter.add(40, float(second))
    meter.change(-1, -1, 59.0)
    meter.add(40, 60.0)
    meter.change(-1, 0, 60.0)
    assert meter._plain["1"].tokens == 40
    assert meter._plain["1"].seconds == 1.0


def test_time_without_requests_counts_for_nothing() -> None:
    meter = ServiceMeter()
    at = run(meter, 0.0, 20, 50, requests=2, speculating=1)
    run(meter, at + 1e5, 20, 50, requests=2, speculating=1)
    assert meter.speedup({}, {"2": 50.0}) == pytest.approx(1.0)


@pytest.mark.parametrize("jump", [86_400.0 * 3, -86_400.0 * 3])
def test_a_jump_of_the_clock_counts_for_nothing(jump: float) -> None:
    meter = ServiceMeter()
    meter.change(1, 1, 1e6)
    for second in range(1, 21):
        meter.add(50, 1e6 + second)
    meter.add(50, 1e6 + 20 + jump)
    assert meter._speculative["1"].seconds == 20.0


def test_more_ends_than_beginnings_are_none() -> None:
    meter = ServiceMeter()
    meter.change(-3, -3, 0.0)
    assert (meter.running, meter.speculating) == (0, 0)
    meter.add(10, 1.0)
    assert not meter._plain


def test_what_was_long_ago_counts_less() -> None:
    meter = ServiceMeter()
    at = run(meter, 0.0, FORGETS_AFTER, 10, requests=1, speculating=0)
    run(meter, at, FORGETS_AFTER, 100, requests=1, speculating=0)
    assert 60 < (meter.tokens_per_second("1") or 0) < 100
    assert meter._plain["1"].seconds <= FORGETS_AFTER


def test_a_request_that_runs_alone_has_no_batch_to_lose() -> None:
    meter = ServiceMeter()
    at = run(meter, 0.0, 20, 10, requests=1, speculating=1)
    assert meter.speedup({}, {"1": 50.0, "2": 50.0}) is None
    run(meter, at, 20, 100, requests=2, speculating=2)
    assert meter.speedup({}, {"1": 50.0, "2": 50.0}) == pytest.approx(2.0)
