"""Quantiles of waits."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_specdecode.generation.waits import EXACT_WAITS, Waits


def test_few_waits_give_the_nearest_rank() -> None:
    """Of ten waits the median is the fifth, and p95 and p99 the last."""
    waits = Waits()
    waits.extend([10, 20, 30, 40, 50, 60, 70, 80, 90, 100])
    assert waits.quantiles((0.5, 0.95, 0.99, 1.0)) == (50, 100, 100, 100)


@given(st.lists(st.integers(0, 10**10), min_size=1, max_size=300), st.floats(0.001, 1.0))
def test_quantiles_are_exact_up_to_the_limit(values: list[int], share: float) -> None:
    """Up to 4,096 waits a quantile is one of the waits: the one of that rank."""
    waits = Waits()
    waits.extend(values)
    assert waits.quantile(share) == sorted(values)[math.ceil(share * len(values)) - 1]


def test_many_waits_are_within_half_a_percent() -> None:
    """Above the limit memory stays bounded and a quantile is within 0.5 % of the exact one."""
    source = random.Random(7)
    values = [int(source.lognormvariate(16, 1.5)) for _ in range(5 * EXACT_WAITS)]
    waits = Waits()
    for start in range(0, len(values), 256):
        waits.extend(values[start : start + 256])
    ranked = sorted(values)
    for share in (0.01, 0.5, 0.95, 0.99, 0.999, 1.0):
        exact = ranked[math.ceil(share * len(values)) - 1]
        assert waits.quantile(share) == pytest.approx(exact, rel=0.0051)
    assert len(waits) == len(values)


def test_zero_waits_survive_the_buckets() -> None:
    """Waits of 0, as within a burst on a coarse clock, stay 0 above the limit."""
    waits = Waits()
    waits.extend([0] * (EXACT_WAITS + 1) + [1_000])
    assert waits.quantile(0.5) == 0.0


@pytest.mark.parametrize("share", [0.0, -0.1, 1.1])
def test_a_share_outside_its_range_is_refused(share: float) -> None:
    """A quantile needs a share in (0, 1]."""
    waits = Waits()
    waits.extend([1])
    with pytest.raises(ValueError, match="share"):
        waits.quantile(share)


def test_no_wait_has_no_quantile() -> None:
    """Without a wait there is nothing to rank."""
    with pytest.raises(ValueError, match="at least one"):
        Waits().quantile(0.5)
