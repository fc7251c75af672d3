"""What is to be seen of a guard when metrics are collected."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from otel_specdecode.telemetry.guarding import GuardView, show_guard
from otel_specdecode.testing.capture import Telemetry


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    telemetry = Telemetry()
    telemetry.listener().admit()
    try:
        yield telemetry
    finally:
        show_guard(None)
        telemetry.shutdown()


def points(telemetry: Telemetry, name: str) -> list[tuple[dict[str, object], float]]:
    return [(dict(point.labels), point.value) for point in telemetry.points(name)]


@pytest.mark.parametrize("enforces", [False, True])
def test_whether_a_guard_enforces_is_told(telemetry: Telemetry, enforces: bool) -> None:
    show_guard(GuardView(dict, lambda: 0, enforces))
    assert points(telemetry, "specdecode.guard.enforcing") == [({}, int(enforces))]


def test_each_promise_is_told_by_its_objective_and_none_that_is_not_made(telemetry: Telemetry) -> None:
    show_guard(GuardView(dict, lambda: 0, degraded_slo={"time_per_token_p95": 0.1, "tokens_per_second": 20.0}))
    assert points(telemetry, "specdecode.guard.degraded_slo") == [
        ({"specdecode.guard.objective": "time_per_token_p95"}, 0.1),
        ({"specdecode.guard.objective": "tokens_per_second"}, 20.0),
    ]


def test_without_a_guard_nothing_is_told(telemetry: Telemetry) -> None:
    show_guard(GuardView(dict, lambda: 0, enforces=True, degraded_slo={"tokens_per_second": 20.0}))
    show_guard(None)
    for name in ("enforcing", "degraded_slo", "scopes", "scopes_without_baseline"):
        assert points(telemetry, f"specdecode.guard.{name}") == []
