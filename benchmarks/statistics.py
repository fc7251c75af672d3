"""Medians, ratios and differences of paired samples with bootstrap intervals, and verdicts against a bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

RESAMPLES = 2_000
CONFIDENCE = 0.95
SEED = 20_240_607

Array = Any
"""A NumPy array of float; samples of one variant, one a repetition."""

Verdict = Literal["met", "missed", "unresolved"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and the 95 % bootstrap interval around it."""

    value: float
    low: float
    high: float

    def scaled(self, factor: float) -> Estimate:
        """Return the same estimate in another unit; factor > 0."""
        return Estimate(self.value * factor, self.low * factor, self.high * factor)


@dataclass(frozen=True, slots=True)
class Target:
    """A bound that an estimate is held against."""

    bound: float
    side: Literal["at most", "at least"] = "at most"

    def verdict(self, estimate: Estimate) -> Verdict:
        """Return met or missed where the whole interval lies on one side of the bound, else unresolved."""
        if self.side == "at most":
            inside, outside = estimate.high <= self.bound, estimate.low > self.bound
        else:
            inside, outside = estimate.low >= self.bound, estimate.high < self.bound
        return "met" if inside else "missed" if outside else "unresolved"


def median(samples: Sequence[float]) -> Estimate:
    """Return the median."""
    return _estimate(lambda rows: np.median(rows[0], axis=-1), samples)


def ratio(samples: Sequence[float], base: Sequence[float]) -> Estimate:
    """Return the ratio of the medians of paired samples: repetitions are drawn, each with both of its samples."""
    return _estimate(lambda rows: np.median(rows[0], axis=-1) / np.median(rows[1], axis=-1), samples, base)


def difference(samples: Sequence[float], base: Sequence[float]) -> Estimate:
    """Return the median of the differences within repetitions."""
    return median(np.asarray(samples, float) - np.asarray(base, float))


def quantile_difference(samples: Array, base: Array, share: float) -> Estimate:
    """Return the difference of a quantile of all values between two variants.

    Args:
        samples: Values by repetition and place, `[repetitions, values]`.
        base: Values of the other variant, paired by repetition.
        share: Which quantile, in (0, 1).
    """
    rows = np.asarray(samples, float), np.asarray(base, float)

    def between(drawn: Array) -> float:
        return float(np.quantile(rows[0][drawn], share) - np.quantile(rows[1][drawn], share))

    count = len(rows[0])
    drawn = [between(picks) for picks in _draws(count, RESAMPLES // 4)]
    return _interval(between(np.arange(count)), np.asarray(drawn))


def _estimate(statistic: Callable[[list[Array]], Array], *samples: Sequence[float]) -> Estimate:
    rows = [np.asarray(each, float) for each in samples]
    draws = _draws(len(rows[0]), RESAMPLES)
    return _interval(float(statistic(rows)), statistic([row[draws] for row in rows]))


def _draws(count: int, resamples: int) -> Array:
    return np.random.default_rng(SEED).integers(0, count, (resamples, count))


def _interval(value: float, resampled: Array) -> Estimate:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(resampled, (tail, 1 - tail))
    return Estimate(value, float(low), float(high))
