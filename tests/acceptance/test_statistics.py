from __future__ import annotations

import pytest

pytest.importorskip("scipy", reason="needs the [acceptance] extra")

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from otel_specdecode.acceptance.statistics import (
    ENOUGH,
    Estimate,
    mean,
    median,
    quantile,
    ratio_of_quantiles,
    ratio_of_sums,
    slope,
)

numbers = st.lists(st.floats(0.001, 1000), min_size=1, max_size=40)


def test_the_worked_example() -> None:
    found = ratio_of_sums([4.0, 6.0], [2.0, 3.0])
    assert found == Estimate(2.0, None, None, 2)
    assert quantile([1.0, 2.0, 3.0, 4.0], 0.5) == Estimate(2.5, None, None, 4)
    assert mean([1.0, 2.0, 3.0]) == Estimate(2.0, None, None, 3)


def test_nothing_comes_of_nothing() -> None:
    assert ratio_of_sums([], []) is None
    assert ratio_of_sums([1.0], [0.0]) is None
    assert quantile([], 0.5) is None
    assert mean([]) is None
    assert slope([1.0] * 10, [1.0] * 10) is None


@given(numbers)
def test_an_interval_holds_its_estimate_and_needs_enough_samples(values: list[float]) -> None:
    for found in (mean(values), median(values), ratio_of_sums(values, values[::-1])):
        assert found is not None
        assert found.samples == len(values)
        if len(values) < ENOUGH:
            assert found.low is None
            assert found.high is None
        for low, high in ((found.low, found.value), (found.value, found.high)):
            if low is not None and high is not None:
                assert low <= high * (1 + 1e-9)


@pytest.mark.parametrize("share", [0.5, 0.95, 0.99])
def test_a_quantile_interval_covers_the_truth_about_as_often_as_it_says(share: float) -> None:
    rng = np.random.default_rng(3)
    truth = -np.log(1 - share)
    covered = 0
    for _ in range(300):
        found = quantile(rng.exponential(1.0, 800), share)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= truth <= found.high
    assert 0.92 <= covered / 300 <= 0.995


def test_a_high_quantile_of_few_samples_has_no_upper_end() -> None:
    found = quantile([float(each) for each in range(50)], 0.99)
    assert found is not None
    assert found.high is None


def test_a_ratio_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(200):
        base = rng.lognormal(0, 0.3, 40)
        found = ratio_of_sums(base * 1.2 * rng.lognormal(0, 0.05, 40), base)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 1.2 * np.exp(0.05**2 / 2) <= found.high
    assert 0.88 <= covered / 200 <= 0.99


def test_pairs_that_belong_together_are_resampled_together() -> None:
    base = [1.0, 100.0, 3.0, 40.0, 7.0, 9.0]
    found = ratio_of_sums([each * 2 for each in base], base)
    assert found == Estimate(2.0, pytest.approx(2.0), pytest.approx(2.0), 6)


def test_the_ratio_of_quantiles_of_the_worked_example() -> None:
    """Medians of 1, 2, 3, 4 and of 1, 1, 2, 2, however the samples lie in the prompts."""
    assert ratio_of_quantiles([[1.0, 2.0], [3.0, 4.0]], [[1.0, 1.0], [2.0, 2.0]], 0.5) == Estimate(
        2.5 / 1.5, None, None, 2
    )
    assert ratio_of_quantiles([], [], 0.5) is None
    assert ratio_of_quantiles([[1.0]], [[0.0]], 0.5) is None


def test_samples_of_one_prompt_are_resampled_together_with_those_beside_them() -> None:
    """Prompts differ by far more than the sides do: unpaired, the interval would reach from 0.1 to 10."""
    base = [[each, each * 1.1] for each in (1.0, 100.0, 3.0, 40.0, 7.0, 9.0)]
    found = ratio_of_quantiles([[each * 2 for each in prompt] for prompt in base], base, 0.95)
    assert found == Estimate(pytest.approx(2.0), pytest.approx(2.0), pytest.approx(2.0), 6)


def test_an_interval_of_a_ratio_of_medians_covers_the_truth_about_as_often_as_it_says() -> None:
    """Three repeats of a prompt say little more than one: what is resampled are prompts."""
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(100):
        base = rng.lognormal(0, 0.5, (40, 1)) * np.ones((1, 3))
        found = ratio_of_quantiles(base * 1.2 * rng.lognormal(0, 0.1, (40, 1)), base, 0.5)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 1.2 <= found.high
    assert covered / 100 >= 0.88


def test_equal_samples_have_a_narrow_interval_and_no_warning() -> None:
    assert mean([3.0] * 10) == Estimate(3.0, 3.0, 3.0, 10)


def test_the_same_samples_give_the_same_interval() -> None:
    values = list(np.random.default_rng(1).normal(10, 2, 30))
    assert mean(values) == mean(values)


def test_a_slope_is_not_moved_by_outliers() -> None:
    times = [float(each) for each in range(100)]
    values = [5.0 + 2.0 * each for each in times]
    values[17] = values[60] = 1e9
    found = slope(times, values)
    assert found is not None
    assert found.value == pytest.approx(2.0)
    assert found.low == pytest.approx(2.0, abs=0.1)


def test_noise_without_a_slope_is_not_told_from_none() -> None:
    rng = np.random.default_rng(7)
    found = slope(list(range(200)), list(rng.normal(1000, 10, 200)))
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0 < found.high


def test_a_median_interval_is_that_of_the_tables() -> None:
    """Of 20 samples the 6th and the 15th, which hold the median with a chance of 0.959."""
    found = quantile([float(each) for each in range(1, 21)], 0.5)
    assert found == Estimate(10.5, 6.0, 15.0, 20)
