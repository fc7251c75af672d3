"""A share of requests, and sessions that keep what they were chosen for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_specdecode.guard.choosing import Chooser


@given(st.floats(0.001, 1.0), st.integers(1, 3000))
def test_any_number_of_requests_holds_its_share_to_within_one(share: float, requests: int) -> None:
    chooser = Chooser(10)
    chosen = sum(chooser.chooses("x", share, None) for _ in range(requests))
    assert abs(chosen - share * requests) <= 1


def test_the_first_one_is_chosen_only_where_that_is_wanted() -> None:
    assert not Chooser(10).chooses("control", 0.2, None)
    assert Chooser(10).chooses("probe", 0.05, None, first=True)
    assert [Chooser(10).chooses("all", 1.0, None) for _ in range(3)] == [True] * 3


def test_after_the_first_one_the_share_is_held() -> None:
    chooser = Chooser(10)
    chosen = [place for place in range(100) if chooser.chooses("probe", 0.05, None, first=True)]
    assert chosen == [0, 20, 40, 60, 80]


def test_a_session_keeps_what_it_was_chosen_for() -> None:
    chooser = Chooser(100)
    first = {f"s{number}": chooser.chooses("x", 0.1, f"s{number}") for number in range(50)}
    assert sum(first.values()) == 5
    for _ in range(3):
        assert {session: chooser.chooses("x", 0.1, session) for session in first} == first


def test_purposes_do_not_disturb_each_other() -> None:
    chooser = Chooser(100)
    chosen = [chooser.chooses(purpose, 0.5, "s") for purpose in ("a", "b")]
    assert chosen == [False, False]
    assert chooser.chooses("c", 1.0, "s")


@pytest.mark.parametrize("sessions", [True, False])
def test_memory_is_bounded(sessions: bool) -> None:
    chooser = Chooser(100)
    for number in range(5000):
        chooser.chooses(("probe", number), 0.5, f"s{number}" if sessions else None)
    assert len(chooser._sessions) <= 100
    assert len(chooser._due) <= 100
