"""What requests without a draft take: enough of them, none too old, and numbers only."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from otel_specdecode.guard.baseline import (
    MOST_CONDITIONS,
    MOST_REQUESTS,
    Baseline,
    Conditions,
    Usual,
    as_rows,
    band_of,
    from_rows,
    quantile,
)
from otel_specdecode.guard.baseline_file import BaselineError, read_baseline

HERE = Conditions("mlx", "target", "chat", "short")


def filled(count: int = 20, *, at: float = 0.0, seconds: float = 0.026) -> Baseline:
    baseline = Baseline(20, 100.0)
    for _ in range(count):
        baseline.add_passes(HERE, 10, 10 * seconds, at)
        baseline.add_request(HERE, seconds, 0.3, at)
    return baseline


def test_it_is_thin_until_there_are_enough_requests() -> None:
    assert filled(19).thin(HERE, 0.0)
    baseline = filled(20)
    assert baseline.requests(HERE, 0.0) == Usual(pytest.approx(0.026), 0.026, 0.026, 0.3, None, 20)
    assert baseline.round_seconds(HERE, 0.0) == pytest.approx(0.026)


def test_other_conditions_are_not_comparable() -> None:
    baseline = filled()
    for field, value in HERE._asdict().items():
        assert baseline.thin(HERE._replace(**{field: f"{value}x"}), 0.0)


def test_requests_that_are_too_old_count_no_more() -> None:
    baseline = filled()
    assert not baseline.thin(HERE, 100.0)
    assert baseline.thin(HERE, 100.1)
    assert baseline.all(100.1) == {}


def test_old_passes_leave_the_mean() -> None:
    baseline = filled(at=0.0, seconds=0.5)
    for _ in range(20):
        baseline.add_passes(HERE, 10, 0.26, 90.0)
        baseline.add_request(HERE, 0.026, 0.3, 90.0)
    assert baseline.round_seconds(HERE, 101.0) == pytest.approx(0.026)


def test_it_holds_only_the_newest_of_each_and_only_so_many_conditions() -> None:
    baseline = filled(MOST_REQUESTS * 3)
    assert baseline.all(0.0)[HERE].requests == MOST_REQUESTS
    for number in range(MOST_CONDITIONS):
        baseline.add_request(HERE._replace(model=f"m{number}"), 0.1, 0.1, 0.0)
    assert baseline.thin(HERE, 0.0)


@pytest.mark.parametrize("nonsense", [math.nan, math.inf, -math.inf, -1.0])
def test_what_is_no_duration_changes_nothing(nonsense: float) -> None:
    baseline = filled()
    before = baseline.all(0.0)[HERE]
    baseline.add_passes(HERE, 10, nonsense, 0.0)
    baseline.add_request(HERE, nonsense, nonsense, 0.0)
    after = baseline.all(0.0)[HERE]
    assert after == Usual(before.round_seconds, 0.026, 0.026, 0.3, None, 21)


def test_a_fixed_one_learns_nothing() -> None:
    baseline = Baseline(20, 100.0, {HERE: Usual(0.02)})
    baseline.add_passes(HERE, 10, 9.0, 0.0)
    baseline.add_request(HERE, 9.0, 9.0, 0.0)
    assert baseline.round_seconds(HERE, 1e9) == 0.02
    assert baseline.all(1e9) == {HERE: Usual(0.02)}


def test_rows_of_a_file_are_what_was_written() -> None:
    known = {HERE: Usual(0.02, 0.02, 0.03, 0.4, 55.0, 21), HERE._replace(model=None): Usual()}
    assert from_rows(as_rows(known)) == known


@pytest.mark.parametrize(
    "rows",
    [
        None,
        3,
        {},
        [None],
        [{}],
        [{**as_rows({HERE: Usual()})[0], "round_seconds": "fast"}],
        [{**as_rows({HERE: Usual()})[0], "round_seconds": math.nan}],
        [{**as_rows({HERE: Usual()})[0], "round_seconds": -1}],
        [{**as_rows({HERE: Usual()})[0], "requests": 10**400}],
        [{**as_rows({HERE: Usual()})[0], "round_seconds": True}],
        [{**as_rows({HERE: Usual()})[0], "tier": []}],
        [{**as_rows({HERE: Usual()})[0], "provider": None}],
    ],
)
def test_what_is_no_baseline_is_refused(rows: Any) -> None:
    with pytest.raises(ValueError, match="row"):
        from_rows(rows)


@pytest.mark.parametrize(
    ("running", "band"), [(0, "1"), (1, "1"), (2, "2"), (3, "2"), (4, "4"), (7, "4"), (8, "8"), (90, "8")]
)
def test_bands_of_concurrency(running: int, band: str) -> None:
    assert band_of(running) == band


def test_a_quantile_is_one_of_the_values() -> None:
    values = list(range(1, 21))
    assert [quantile(values, share) for share in (0.0, 0.05, 0.5, 0.95, 1.0)] == [1, 1, 10, 19, 20]
    assert quantile([7.0], 0.95) == 7.0


def test_a_file_that_is_nested_too_deeply_is_no_baseline(tmp_path: Path) -> None:
    (tmp_path / "baseline.json").write_text("[" * 100_000)
    with pytest.raises(BaselineError, match=r"baseline\.json is no JSON"):
        read_baseline(tmp_path / "baseline.json")
