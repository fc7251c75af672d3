"""Buckets are fine enough for the rules that read quantiles from them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from statistics import NormalDist

import pytest
from registrykit.buckets import fine_steps

from otel_specdecode.telemetry.names import Metric, Metrics

FINE = {
    Metrics.SPECDECODE_ROUND_DURATION: (0.001, 0.25),
    Metrics.SPECDECODE_DECODE_TIME_PER_TOKEN: (0.001, 0.25),
    Metrics.GEN_AI_SERVER_TIME_PER_OUTPUT_TOKEN: (0.001, 0.25),
    Metrics.GEN_AI_SERVER_TIME_TO_FIRST_TOKEN: (0.05, 3.0),
}
"""The metrics that relative rules read, with the range in s where their steps are fine."""

PER_TOKEN = (0.045, 0.052, 0.068, 0.12)
TO_FIRST_TOKEN = (0.85, 0.9)


def bounds_of(metric: Metric) -> tuple[float, ...]:
    """The bounds of a histogram."""
    assert metric.buckets is not None
    return metric.buckets


def histogram_quantile(quantile: float, values: Sequence[float], bounds: Sequence[float]) -> float:
    """The quantile as PromQL reads it from buckets: linear within the bucket it falls into."""
    counts = [0] * (len(bounds) + 1)
    for value in values:
        counts[bisect_left(bounds, value)] += 1
    rank, below = quantile * len(values), 0
    for index, count in enumerate(counts):
        if below + count >= rank:
            lower = bounds[index - 1] if index else 0.0
            return lower + (bounds[index] - lower) * (rank - below) / count
        below += count
    raise AssertionError("no bucket holds the quantile")


def spread(median: float) -> list[float]:
    """Durations around ``median`` as an engine gives them: 15 % wide, skewed to the right."""
    normal, count = NormalDist(0, 0.15), 2000
    return [median * 2.718281828 ** normal.inv_cdf((index + 0.5) / count) for index in range(count)]


@pytest.mark.parametrize("metric", FINE, ids=lambda metric: metric.name)
@pytest.mark.parametrize("quantile", [0.5, 0.95])
def test_a_shift_of_15_percent_is_measured_within_3_percent(metric: Metric, quantile: float) -> None:
    """The ratio of two quantiles read from the buckets is the injected ratio, wherever in the range they lie."""
    low, high = FINE[metric]
    bounds = bounds_of(metric)
    for step in range(20):
        median = low * 1.6 * (high / 2.6 / low) ** (step / 19)
        before = histogram_quantile(quantile, spread(median), bounds)
        after = histogram_quantile(quantile, spread(median * 1.15), bounds)

        assert after / before == pytest.approx(1.15, rel=0.03)


@pytest.mark.parametrize("metric", FINE, ids=lambda metric: metric.name)
def test_steps_grow_by_at_most_10_percent_where_rules_read(metric: Metric) -> None:
    """Within the fine range no bound is more than 1.1 times the one before."""
    low, high = FINE[metric]
    inside = [bound for bound in bounds_of(metric) if low <= bound <= high]

    assert (low, high) == (inside[0], inside[-1])
    assert all(right / left <= 1.10 for left, right in pairwise(inside))


@pytest.mark.parametrize("metric", FINE, ids=lambda metric: metric.name)
def test_thresholds_are_bounds_themselves(metric: Metric) -> None:
    """A count below a threshold can be read without interpolation."""
    held = TO_FIRST_TOKEN if metric is Metrics.GEN_AI_SERVER_TIME_TO_FIRST_TOKEN else PER_TOKEN

    assert set(held) <= set(bounds_of(metric))


@pytest.mark.parametrize(
    "metric",
    [metric for metric in vars(Metrics).values() if isinstance(metric, Metric) and metric.buckets],
    ids=lambda metric: metric.name,
)
def test_bounds_ascend(metric: Metric) -> None:
    """Bounds of every histogram are strictly ascending."""
    assert all(left < right for left, right in pairwise(bounds_of(metric)))


def test_fine_steps_are_rounded_to_four_digits_and_repeatable() -> None:
    """The same description gives the same short numbers."""
    steps = fine_steps(0.001, 0.25, 1.10, PER_TOKEN)

    assert steps == fine_steps(0.001, 0.25, 1.10, reversed(PER_TOKEN))  # type: ignore[arg-type]
    assert all(float(f"{bound:.4g}") == bound for bound in steps)
