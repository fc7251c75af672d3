"""What is to be seen of a guard when metrics are collected, and its event about baselines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from otel_specdecode.generation.comparison import BaselineChange, Standing
from otel_specdecode.generation.transition import Lane
from otel_specdecode.telemetry.guarding import GuardView, show_guard
from otel_specdecode.telemetry.listener import tell_baseline
from otel_specdecode.telemetry.names import Attr, Event
from otel_specdecode.testing.capture import Telemetry
from otel_specdecode.testing.checker import check

THIN = BaselineChange(
    at=1_800_000_000_000_000_000,
    lane=Lane("tenant", "acme", "mlx", "target", "draft_model"),
    standing="thin",
    operation="chat",
    tier="short",
    at_once=2,
    power_mode="low",
    thermal_state="nominal",
    requests=7,
    policy="sha256:0",
    observe_only=False,
)


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


def told(telemetry: Telemetry, change: BaselineChange) -> Any:
    """The event of a change, which is as the registry has it."""
    tell_baseline(change)
    (event,) = telemetry.events(Event.SPECDECODE_GUARD_BASELINE)
    assert [each for each in check(logs=telemetry.logs()) if each.severity == "violation"] == []
    return event


def test_a_scope_that_lost_its_baseline_is_told_of_with_why(telemetry: Telemetry) -> None:
    event = told(telemetry, THIN)
    assert dict(event.attributes) == {
        Attr.SPECDECODE_GUARD_BASELINE_STATE: "thin",
        Attr.SPECDECODE_GUARD_BASELINE_REQUESTS: 7,
        Attr.SPECDECODE_GUARD_BASELINE_AT_ONCE: 2,
        Attr.SPECDECODE_GUARD_SCOPE: "tenant",
        Attr.SPECDECODE_TENANT_ID: "acme",
        Attr.GEN_AI_PROVIDER_NAME: "mlx",
        Attr.GEN_AI_REQUEST_MODEL: "target",
        Attr.GEN_AI_OPERATION_NAME: "chat",
        Attr.SPECDECODE_METHOD: "draft_model",
        Attr.SPECDECODE_CONTEXT_TIER: "short",
        Attr.SPECDECODE_HOST_POWER_MODE: "low",
        Attr.SPECDECODE_HOST_THERMAL_STATE: "nominal",
        Attr.SPECDECODE_GUARD_POLICY: "sha256:0",
        Attr.SPECDECODE_GUARD_OBSERVE_ONLY: False,
    }
    assert (event.timestamp, event.severity_text, event.trace_id) == (THIN.at, "WARN", 0)


@pytest.mark.parametrize(("standing", "observes"), [("known", False), ("missing", True)])
def test_a_baseline_that_is_back_and_one_that_an_observer_lacks_are_no_warnings(
    telemetry: Telemetry, standing: Standing, observes: bool
) -> None:
    assert told(telemetry, replace(THIN, standing=standing, observe_only=observes)).severity_text == "INFO"


def test_a_model_without_a_name_is_other(telemetry: Telemetry) -> None:
    lane = Lane("process", None, "llama_cpp", None, "prompt_lookup")
    event = told(telemetry, replace(THIN, lane=lane))
    assert event.attributes[Attr.GEN_AI_REQUEST_MODEL] == "_OTHER"
    assert Attr.SPECDECODE_TENANT_ID not in event.attributes
