"""Conditions are kept of requests that run, and of each model the last that speculated, of so many at most."""

from __future__ import annotations

import pytest

from otel_specdecode.generation.plan import Ask
from otel_specdecode.generation.request import Request
from otel_specdecode.guard import meeting
from otel_specdecode.guard.baseline import Conditions
from otel_specdecode.guard.meeting import Met


def request(model: str = "target") -> Request:
    return Request("chat", "mlx", model)


def ask(model: str = "target") -> Ask:
    return Ask("mlx", model, "draft_model", 4)


def conditions(tier: str = "short") -> Conditions:
    return Conditions("mlx", "target", "chat", tier, "1", "normal", "nominal")


def test_a_request_has_the_last_conditions_that_it_met_until_it_ends() -> None:
    met, runs = Met(), request()
    met.meet(runs, conditions("short"))
    met.meet(runs, conditions("mid"))
    assert met.running == 1
    assert met.end(runs) == conditions("mid")
    assert (met.end(runs), met.running) == (None, 0)


def test_two_requests_that_are_equal_are_two() -> None:
    met, one, other = Met(), request(), request()
    met.meet(one, conditions("short"))
    met.meet(other, conditions("mid"))
    assert (met.end(one), met.end(other)) == (conditions("short"), conditions("mid"))


def test_a_model_has_the_conditions_of_its_last_speculation() -> None:
    met = Met()
    met.meet(request(), conditions())
    assert met.latest(ask()) is None
    met.speculate(request(), conditions("short"))
    met.speculate(request(), conditions("mid"))
    assert (met.latest(ask()), met.latest(ask("another"))) == (conditions("mid"), None)


def test_of_more_requests_than_can_run_the_newest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "MOST_RUNNING", 2)
    met, runs = Met(), [request() for _ in range(3)]
    for each in runs:
        met.meet(each, conditions())
    assert [met.end(each) for each in runs] == [None, conditions(), conditions()]


def test_of_more_models_than_a_process_has_none_is_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "MOST_MODELS", 2)
    met = Met()
    for number in range(7):
        met.speculate(request(str(number)), conditions())
    assert sum(met.latest(ask(str(number))) is not None for number in range(7)) <= 2


def test_the_child_of_a_fork_knows_of_no_request_but_of_models() -> None:
    met, runs = Met(), request()
    met.meet(runs, conditions())
    met.speculate(runs, conditions())
    met.forget_running()
    assert (met.running, met.end(runs), met.latest(ask())) == (0, None, conditions())
