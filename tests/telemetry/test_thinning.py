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


@given(st.lists(st.tuples(st.integers(0, 400), st.floats(0, 2)), max_size=30))
def test_no_more_than_the_rate_and_nothing_invented(stretches: list[tuple[int, float]]) -> None:
    """Over any stretches: at most the rate times the time (and one), and only values that were measured."""
    thinner, recorded, seconds = Thinner(128), 0, 0.0
    source = random.Random(1)
    for count, took in stretches:
        values = [source.randrange(10**9) for _ in range(count)]
        chosen = thinner.choose(values, took)
        assert len(set(chosen)) <= len(chosen) <= len(values)
        assert set(chosen) <= set(values)
        recorded += len(chosen)
        seconds += took
    assert recorded <= 128 * seconds + 1 + len(stretches)


@pytest.mark.parametrize("share", [0.5, 0.95, 0.99])
def test_quantiles_stay_right(share: float) -> None:
    """Of 100,000 heavy-tailed values at 1,000 a second an eighth is recorded; its quantiles are within 2 %."""
    source = random.Random(3)
    thinner = Thinner(128)
    values = [int(source.lognormvariate(13, 0.6)) for _ in range(100_000)]
    chosen: list[int] = []
    for start in range(0, len(values), 256):
        chosen += thinner.choose(values[start : start + 256], 0.256)
    assert len(chosen) == pytest.approx(12_800, rel=0.01)
    exact, thinned = sorted(values)[int(share * len(values))], sorted(chosen)[int(share * len(chosen))]
    assert thinned == pytest.approx(exact, rel=0.02)
    assert sum(chosen) / len(chosen) == pytest.approx(sum(values) / len(values), rel=0.01)


def test_unused_time_is_not_saved_up() -> None:
    """A slow hour does not buy a flood: the credit carries one value at most."""
    thinner = Thinner(128)
    thinner.choose([1], 3_600.0)
    assert len(thinner.choose(list(range(256)), 0.0)) <= 1
