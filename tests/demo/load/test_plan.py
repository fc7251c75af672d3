"""What is asked for is decided beforehand, by a seed."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from otel_specdecode.demo.load.plan import DRAFT_LENGTHS, NOISY_TENANT, TENANTS, Arrival, Way, arrivals, load_of
from otel_specdecode.demo.needs import DemoError

ALL: tuple[Way, ...] = ("alone", "draft k=4", "draft k=2", "prompt lookup", "draft k=0", "bad draft")


def test_every_way_with_a_draft_model_has_the_length_that_its_name_says() -> None:
    assert set(DRAFT_LENGTHS) == set(ALL) - {"alone", "prompt lookup"}
    for way, length in DRAFT_LENGTHS.items():
        assert way in {f"draft k={length}", "bad draft"}


def planned(seconds: float = 600, rate: float = 2, seed: int = 1, ways: tuple[Way, ...] = ALL) -> list[Arrival]:
    return list(arrivals(load_of(seconds, rate, seed), "mlx", ways))


def test_the_same_seed_asks_the_same_and_another_does_not() -> None:
    assert planned(seed=3) == planned(seed=3)
    assert planned(seed=3) != planned(seed=4)


def test_two_engines_are_asked_different_things() -> None:
    load = load_of(60, 2, 1)
    assert list(arrivals(load, "mlx", ALL)) != list(arrivals(load, "llama_cpp", ALL))


def test_requests_come_in_order_at_the_rate_and_in_waves() -> None:
    found = planned(seconds=1500)
    assert all(one.at <= other.at for one, other in pairwise(found))
    assert found[-1].at < 1500
    assert len(found) == pytest.approx(3000, rel=0.1)
    halves = Counter(int(each.at % 150 // 75) for each in found)
    assert halves[0] > 1.3 * halves[1]


def test_a_short_run_already_has_every_way_of_an_engine() -> None:
    before = [each for each in planned(rate=1) if each.at < 300][:20]
    assert {each.way for each in before} == set(ALL) - {"bad draft"}


def test_what_an_engine_has_not_runs_with_the_draft() -> None:
    found = planned(ways=("alone", "draft k=4", "bad draft"))
    assert {each.way for each in found} == {"alone", "draft k=4", "bad draft"}


def test_about_1_in_100_fails_and_some_are_long_closed_slowly_read_and_sampled() -> None:
    found = [each for each in planned(seconds=3000) if each.way != "bad draft"]
    assert sum(each.fails for each in found) / len(found) == pytest.approx(0.01, abs=0.003)
    for some in ("long", "close_after", "pause", "temperature"):
        share = sum(bool(getattr(each, some)) for each in found) / len(found)
        assert 0 < share < 0.6, some
    assert {each.tenant for each in found} == set(TENANTS)


def test_in_the_burst_alone_the_draft_is_bad_and_one_tenant_sends_most_of_it() -> None:
    load = load_of(600, 5, 1)
    assert (load.burst.start, load.burst.seconds) == (300, 20)
    found = list(arrivals(load, "mlx", ALL))
    bad = [each for each in found if each.way == "bad draft"]
    during = [each for each in found if 300 <= each.at < 320]
    assert all(each in during for each in bad)
    assert len(bad) / len(during) == pytest.approx(0.85, abs=0.1)
    assert {each.tenant for each in bad} == {NOISY_TENANT}
    assert {each.tenant for each in during if each.way != "bad draft"} <= set(TENANTS) - {NOISY_TENANT}


def test_a_burst_can_be_placed_or_left_out() -> None:
    assert {each.way for each in arrivals(load_of(60, 5, 1, 10, 0), "mlx", ALL)} == set(ALL) - {"bad draft"}
    moved = [each.at for each in arrivals(load_of(60, 5, 1, 10, 5), "mlx", ALL) if each.way == "bad draft"]
    assert 10 <= min(moved) < max(moved) < 15


def test_a_burst_that_does_not_fit_is_refused() -> None:
    with pytest.raises(DemoError, match="from 50 to 70 s does not fit into 60 s"):
        load_of(60, 1, 1, 50, 20)
