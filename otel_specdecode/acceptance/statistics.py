"""Estimates with intervals, by SciPy; none from fewer samples than it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
ENOUGH = 5
"""Samples, or pairs, that an interval is made of at least: of fewer, resampling says less than it seems to."""

_RESAMPLES = 2_000
_SEED = 20_260_101


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number, and what it is known to.

    Attributes:
        value: The estimate.
        low, high: Ends of its 95 % interval; both None where too few samples tell.
        samples: What it is made of, counted in what was resampled: prompts, requests or rounds.
    """

    value: float
    low: float | None
    high: float | None
    samples: int


def ratio_of_sums(numerators: Sequence[float], denominators: Sequence[float]) -> Estimate | None:
    """Return a ratio of two sums whose terms belong together, one pair a prompt; None where there is none.

    Prompts are resampled: those of one run say little of those that a service will get, and less the fewer there are.
    """
    if not len(numerators) or not sum(denominators) > 0:
        return None
    pairs = np.asarray([numerators, denominators], dtype=float)
    value = float(pairs[0].sum() / pairs[1].sum())
    return _with_interval(value, pairs[0], pairs[1], statistic=_ratio)


def median(values: Sequence[float]) -> Estimate | None:
    """Return the median; None of no values."""
    return quantile(values, 0.5)


def mean(values: Sequence[float]) -> Estimate | None:
    """Return the mean; None of no values."""
    if not len(values):
        return None
    array = np.asarray(values, dtype=float)
    return _with_interval(float(array.mean()), array, statistic=np.mean)


def quantile(values: Sequence[float] | np.ndarray, share: float) -> Estimate | None:
    """Return a quantile, with the interval of order statistics that the binomial distribution gives.

    It needs no shape of the distribution. Where the samples do not reach as far as the interval would have to, which
    for a quantile of 0.99 takes several hundred, that end is None.

    Args:
        values: Samples, in any order.
        share: Between 0 and 1, such as 0.95.
    """
    if not len(values):
        return None
    ordered = np.sort(np.asarray(values, dtype=float))
    count = len(ordered)
    value = float(np.quantile(ordered, share))
    low_rank, high_rank = stats.binom.ppf([(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], count, share).astype(int)
    low = float(ordered[low_rank - 1]) if count >= ENOUGH and low_rank >= 1 else None
    high = float(ordered[high_rank]) if count >= ENOUGH and high_rank < count else None
    return Estimate(value, low, high, count)


def ratio_of_quantiles(
    numerators: Sequence[Sequence[float]], denominators: Sequence[Sequence[float]], share: float
) -> Estimate | None:
    """Return a quantile over that of other samples that belong to the same prompts; None where there is none.

    Prompts are resampled, each with all its samples of both sides.

    Args:
        numerators: The samples of each prompt.
        denominators: Those beside them, in the same order of prompts.
        share: Between 0 and 1, such as 0.95.
    """
    upper, lower = ([np.asarray(each, dtype=float) for each in side] for side in (numerators, denominators))
    if not upper or not min(float(each.min()) for each in lower) > 0:
        return None

    def ratio(prompts: Any) -> float:
        above, below = (np.concatenate([side[each] for each in prompts]) for side in (upper, lower))
        return float(np.quantile(above, share) / np.quantile(below, share))

    every = np.arange(len(upper))
    return _with_interval(ratio(every), every, statistic=ratio, vectorized=False)


def slope(times: Sequence[float], values: Sequence[float]) -> Estimate | None:
    """Return how fast values rise, in their unit a unit of time: Theil and Sen's, which outliers do not move."""
    if len(times) < ENOUGH or max(times) <= min(times):
        return None
    found = stats.theilslopes(np.asarray(values, dtype=float), np.asarray(times, dtype=float), CONFIDENCE)
    return Estimate(float(found.slope), float(found.low_slope), float(found.high_slope), len(times))


def _ratio(numerators: Any, denominators: Any, axis: int = -1) -> Any:
    return numerators.sum(axis=axis) / denominators.sum(axis=axis)


def _with_interval(value: float, *samples: Any, statistic: Any, vectorized: bool = True) -> Estimate:
    count = len(samples[0])
    if count < ENOUGH:
        return Estimate(value, None, None, count)
    if all(np.ptp(sample) == 0 for sample in samples):
        return Estimate(value, value, value, count)
    found = stats.bootstrap(
        samples,
        statistic,
        paired=True,
        vectorized=vectorized,
        n_resamples=_RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        random_state=np.random.default_rng(_SEED),
    ).confidence_interval
    return Estimate(value, float(found.low), float(found.high), count)
