"""Recording a value for every token without paying for every token."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_specdecode.telemetry.thinning import Thinner

SECOND = 1.0


def test_below_the_rate_every_value_is_recorded() -> None:
    """26 ms a token are 38 values a second: all of them."""
    thinner = Thinner(128)
    for _ in range(50):
        values = [26] * 38
        assert list(thinner.choose(values, SECOND)) == values


@pytest.mark.parametrize("tokens", [1, 5, 31, 1000])
@pytest.mark.parametrize("seconds", [1e-3, 1e-6])
def test_a_series_is_there_from_the_first_request_on_however_fast_that_is(tokens: int, seconds: float) -> None:
    """Else a mode that is fast would lack a metric that another one has."""
    for rate in (8, 32):
        assert Thinner(rate).choose(range(tokens), seconds)


def test_a_stretch_after_the_first_may_have_no_value() -> None:
    thinner = Thinner(8)
    recorded = sum(len(thinner.choose(range(31), 1e-3)) for _ in range(1000))
    assert recorded < 1000 * 31 / 1000


@given(st.lists(st.tuples(st.integers(0, 400), st.floats(0, 2)), max_size=30))
def test_nothing_is_invented(stretches: list[tuple[int, float]]) -> None:
    """Over any stretches only values that were measured are recorded, each at most once."""
    thinner, source = Thinner(128), random.Random(1)
    for count, took in stretches:
        values = [source.randrange(10**9) for _ in range(count)]
        chosen = thinner.choose(values, took)
        assert len(set(chosen)) == len(chosen) <= len(values) or len(set(values)) < len(values)
        assert set(chosen) <= set(values)


def thinned(phases: list[tuple[int, list[int]]], seconds_of: float = 1e-9) -> tuple[list[int], list[int]]:
    """Feed repeated phases of values, each value being its own duration in ns; return all values and the recorded."""
    thinner, values, chosen = Thinner(128), [], []
    for repeats, phase in phases:
        for _ in range(repeats):
            values += phase
            chosen += thinner.choose(phase, sum(phase) * seconds_of)
    return values, chosen


def quantile(values: list[int], share: float) -> int:
    """The value of a rank."""
    return sorted(values)[int(share * len(values))]


@pytest.mark.parametrize("share", [0.5, 0.95, 0.99])
def test_quantiles_stay_right(share: float) -> None:
    """Of heavy-tailed values at about 1,000 a second one in 8 is recorded; quantiles and mean are within 3 %."""
    source = random.Random(3)
    stretch = [[int(source.lognormvariate(13.8, 0.6)) for _ in range(256)] for _ in range(400)]
    values, chosen = thinned([(1, phase) for phase in stretch])
    assert len(values) / 33 < len(chosen) <= len(values) / 7
    assert quantile(chosen, share) == pytest.approx(quantile(values, share), rel=0.03)
    assert sum(chosen) / len(chosen) == pytest.approx(sum(values) / len(values), rel=0.03)


@pytest.mark.parametrize("share", [0.5, 0.95, 0.99])
def test_a_slow_phase_has_no_greater_share(share: float) -> None:
    """Fast rounds of 1 ms with now and then a slow phase of 100 ms: recorded quantiles are those of all rounds."""
    millisecond = 1_000_000
    fast, slow = [millisecond] * 256, [100 * millisecond] * 10
    values, chosen = thinned([(40, fast), (1, slow)] * 30)
    assert quantile(chosen, share) == quantile(values, share)
    assert sum(chosen) / len(chosen) == pytest.approx(sum(values) / len(values), rel=0.2)


def test_the_pace_settles_below_the_rate() -> None:
    """At a steady 10,000 values a second between an eighth of the rate and the rate itself are recorded."""
    thinner = Thinner(128)
    recorded = sum(len(thinner.choose(list(range(256)), 0.0256)) for _ in range(2_000))
    assert 128 / 8 <= recorded / 51.2 <= 128
