"""The statistics behind the benchmarks' verdicts, on samples whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import statistics

pytestmark = pytest.mark.source

CHANCE = np.random.default_rng(11)


def test_a_ratio_of_paired_samples_is_not_blurred_by_what_hits_both() -> None:
    """Noise that doubles both samples of a repetition leaves their ratio sharp."""
    base = CHANCE.lognormal(0.0, 0.3, 400)
    found = statistics.ratio(base * 1.5, base)
    assert found.value == pytest.approx(1.5)
    assert found.low == pytest.approx(1.5)
    assert found.high == pytest.approx(1.5)


def test_a_difference_is_taken_within_repetitions() -> None:
    base = CHANCE.normal(100.0, 30.0, 200)
    found = statistics.difference(base + 4.0, base)
    assert (found.value, found.low, found.high) == pytest.approx((4.0, 4.0, 4.0))


def test_an_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    """95 % intervals of a median: of 200 of them at least 180 and not all hold the true one."""
    held = 0
    for _ in range(200):
        found = statistics.median(CHANCE.normal(5.0, 1.0, 41))
        held += found.low <= 5.0 <= found.high
    assert 180 <= held < 200


def test_a_quantile_difference_sees_the_tail_alone() -> None:
    base = CHANCE.normal(1.0, 0.01, (10, 1_000))
    slow = base.copy()
    slow[:, ::50] += 3.0
    assert statistics.quantile_difference(slow, base, 0.5).value == pytest.approx(0.0, abs=0.01)
    tail = statistics.quantile_difference(slow, base, 0.99)
    assert tail.low > 2.5


@pytest.mark.parametrize(
    ("low", "high", "side", "verdict"),
    [
        (1.0, 1.9, "at most", "met"),
        (1.9, 2.1, "at most", "unresolved"),
        (2.1, 3.0, "at most", "missed"),
        (2.1, 3.0, "at least", "met"),
        (1.9, 2.1, "at least", "unresolved"),
        (1.0, 1.9, "at least", "missed"),
    ],
)
def test_a_verdict_needs_the_whole_interval(low: float, high: float, side: str, verdict: str) -> None:
    estimate = statistics.Estimate((low + high) / 2, low, high)
    assert statistics.Target(2.0, side).verdict(estimate) == verdict
