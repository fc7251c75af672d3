"""How far the quantiles of thinned values are from those of all values, by shape, pace and rate."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.results import Comparison, Row, Section
from benchmarks.statistics import Array, Estimate
from otel_specdecode.generation.timeline import CHUNK_TOKENS, FLUSH_NS
from otel_specdecode.telemetry.thinning import Thinner
from otel_specdecode.thresholds import thresholds

QUANTILES = (0.5, 0.95, 0.99)
PACES_MS = (26.0, 5.0, 1.0)
RATES = (8.0, 128.0)
"""Values a second that are tried beside the library's own."""

STREAMS = 10

Shape = Callable[[np.random.Generator, int], Array]
"""Draws so many values around 1, in the order in which they come."""


def drift(chance: np.random.Generator, count: int) -> Array:
    """Grows evenly by half, as a context grows; 2 % noise."""
    return np.linspace(1.0, 1.5, count) * chance.normal(1.0, 0.02, count)


def bimodal(chance: np.random.Generator, count: int) -> Array:
    """Nine in ten near 1, one in ten near 3: rounds with and without a rollback."""
    return np.where(chance.random(count) < 0.9, 1.0, 3.0) * chance.normal(1.0, 0.05, count)


def heavy_tail(chance: np.random.Generator, count: int) -> Array:
    """Pareto with shape 2.5: one value in a hundred is above 6."""
    return 1.0 + chance.pareto(2.5, count)


def late_burst(chance: np.random.Generator, count: int) -> Array:
    """Slow rounds, three times as long: 3 % of the stream, in one run near its end."""
    values = chance.normal(1.0, 0.05, count)
    begin = int(count * 0.9)
    values[begin : begin + 3 * count // 100] *= 3.0
    return values


SHAPES: dict[str, Shape] = {
    "drift": drift,
    "bimodal": bimodal,
    "heavy tail": heavy_tail,
    "late burst": late_burst,
}


def thinning(*, tokens: int = 4_000, draws: int = 100) -> Section:
    """Compare quantiles of ten streams of one series together, as a dashboard shows them."""
    section = Section(
        "Thinning",
        f"recorded values against all values of {STREAMS} streams of {tokens:,} tokens: share recorded and error of "
        f"quantiles; median and 95 % range over {draws} draws",
    )
    own: float = thresholds()["recording"]["round_durations_per_second"]
    for pace in PACES_MS:
        for rate in sorted((*RATES, own)):
            if rate * pace >= 1_000:
                continue  # every value is recorded
            case = f"{pace:g} ms a token, {rate:g} values/s"
            section.rows += [_compared(case, name, pace, rate, tokens, draws) for name in SHAPES]
    return section


def _compared(case: str, name: str, pace: float, rate: float, tokens: int, draws: int) -> Row:
    errors, shares = np.empty((draws, len(QUANTILES))), np.empty(draws)
    for seed in range(draws):
        chance, thinner = np.random.default_rng(seed), Thinner(rate)
        streams = [(SHAPES[name](chance, tokens) * pace * 1e6).astype(int) for _ in range(STREAMS)]
        everything, recorded = np.concatenate(streams), np.concatenate([recorded_of(thinner, each) for each in streams])
        exact, thinned = (np.quantile(each, QUANTILES, method="inverted_cdf") for each in (everything, recorded))
        errors[seed] = (thinned / exact - 1) * 100
        shares[seed] = len(recorded) / len(everything) * 100
    by_quantile = zip(QUANTILES, errors.T, strict=True)
    told = tuple(Comparison(f"p{share * 100:g}", _range(column), unit="%") for share, column in by_quantile)
    return Row(case, name, _range(shares), "% recorded", told)


def recorded_of(thinner: Thinner, values: Array) -> Array:
    """Return what is recorded of one stream's values (ns), handed over as the token loop does."""
    recorded: list[int] = []
    stretch: list[int] = []
    passed = 0
    for value in values.tolist():
        stretch.append(value)
        passed += value
        if passed >= FLUSH_NS or len(stretch) == CHUNK_TOKENS:
            recorded += thinner.choose(stretch, passed / 1e9)
            stretch, passed = [], 0
    recorded += thinner.choose(stretch, passed / 1e9)
    return np.asarray(recorded)


def _range(values: Array) -> Estimate:
    low, middle, high = np.quantile(values, (0.025, 0.5, 0.975))
    return Estimate(float(middle), float(low), float(high))
