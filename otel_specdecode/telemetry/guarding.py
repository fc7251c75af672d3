"""The guard's transitions and baselines as counter and events, and its scopes when metrics are collected."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from opentelemetry._logs import Logger, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Observation

from otel_specdecode.generation.comparison import BaselineChange
from otel_specdecode.generation.transition import Lane, State, Transition
from otel_specdecode.identity.declared import declared
from otel_specdecode.telemetry.events import emit
from otel_specdecode.telemetry.labels import OTHER
from otel_specdecode.telemetry.names import Attr, Enum, Event, Metric, Metrics

_PASS, _FAIL = Enum.SPECDECODE_CANARY_OUTCOME


class GuardView(NamedTuple):
    """What is to be seen of the guard of this process.

    Attributes:
        scopes: Returns how many scopes are in each state.
        without_baseline: Returns how many could not be compared with anything.
        enforces: Whether it changes how requests run.
        degraded_slo: What is promised while it keeps requests from speculation, by objective.
    """

    scopes: Callable[[], Mapping[State, int]]
    without_baseline: Callable[[], int]
    enforces: bool = False
    degraded_slo: Mapping[str, float] = MappingProxyType({})


_view: GuardView | None = None
_disabled = False


def show_guard(view: GuardView | None) -> None:
    """Observe the guard of this process from now on; None: there is none."""
    global _view, _disabled
    _view, _disabled = view, False


def show_disabled() -> None:
    """Tell from now on that a guard was asked for and cannot run, until one does."""
    global _disabled
    _disabled = True


def guard_observers() -> dict[Metric, Callable[[CallbackOptions], Iterable[Observation]]]:
    """Return what observes each metric of a guard, nothing while there is none."""
    return {
        Metrics.SPECDECODE_GUARD_DISABLED: _observe_disabled,
        Metrics.SPECDECODE_GUARD_SCOPES: _observe_scopes,
        Metrics.SPECDECODE_GUARD_SCOPES_WITHOUT_BASELINE: _observe_without_baseline,
        Metrics.SPECDECODE_GUARD_ENFORCING: _observe_enforcing,
        Metrics.SPECDECODE_GUARD_DEGRADED_SLO: _observe_degraded_slo,
    }


def transition_labels(transition: Transition) -> dict[str, str]:
    """Return the labels that a transition counts under."""
    return {
        Attr.SPECDECODE_GUARD_PREVIOUS_STATE: transition.before,
        Attr.SPECDECODE_GUARD_STATE: transition.after,
        Attr.SPECDECODE_GUARD_TRIGGER: transition.trigger,
    }


def canary_labels(passed: bool) -> dict[str, str]:
    """Return the labels that a canary's result counts under."""
    return {Attr.SPECDECODE_CANARY_OUTCOME: _PASS if passed else _FAIL}


def emit_transition(logger: Logger, transition: Transition) -> None:
    """Tell of a transition. It belongs to no trace."""
    attributes: dict[str, Any] = {
        **transition_labels(transition),
        **_of(transition.lane),
        Attr.SPECDECODE_GUARD_PREVIOUS_RUNG: transition.rung_before,
        Attr.SPECDECODE_GUARD_RUNG: transition.rung_after,
        Attr.SPECDECODE_GUARD_POLICY: transition.policy,
        Attr.SPECDECODE_GUARD_OBSERVE_ONLY: transition.observe_only,
        Attr.SPECDECODE_GUARD_SAMPLES: transition.samples,
        Attr.SPECDECODE_GUARD_WINDOW: transition.window_seconds,
        Attr.SPECDECODE_GUARD_VALUE: transition.value,
        Attr.SPECDECODE_GUARD_THRESHOLD: transition.threshold,
        Attr.SPECDECODE_GUARD_TRACE_ID: transition.trace_id,
        Attr.SPECDECODE_FALLBACK_REASON: transition.reason,
    }
    severity = SeverityNumber.WARN if transition.reason is not None else SeverityNumber.INFO
    emit(logger, Context(), Event.SPECDECODE_GUARD_TRANSITION, severity, attributes, transition.at)


def emit_baseline(logger: Logger, change: BaselineChange) -> None:
    """Tell that a scope has lost its baseline, or found one. It belongs to no trace."""
    attributes: dict[str, Any] = {
        Attr.SPECDECODE_GUARD_BASELINE_STATE: change.standing,
        Attr.SPECDECODE_GUARD_BASELINE_REQUESTS: change.requests,
        **_of(change.lane),
        Attr.GEN_AI_OPERATION_NAME: change.operation,
        Attr.SPECDECODE_CONTEXT_TIER: change.tier,
        Attr.SPECDECODE_GUARD_BASELINE_AT_ONCE: change.at_once,
        Attr.SPECDECODE_HOST_POWER_MODE: change.power_mode,
        Attr.SPECDECODE_HOST_THERMAL_STATE: change.thermal_state,
        Attr.SPECDECODE_GUARD_POLICY: change.policy,
        Attr.SPECDECODE_GUARD_OBSERVE_ONLY: change.observe_only,
    }
    is_lack = change.standing != "known" and not change.observe_only
    severity = SeverityNumber.WARN if is_lack else SeverityNumber.INFO
    emit(logger, Context(), Event.SPECDECODE_GUARD_BASELINE, severity, attributes, change.at)


def _of(lane: Lane) -> dict[str, Any]:
    """Return what an event says of whom it is about."""
    of_machine = lane.provider is None
    return {
        Attr.SPECDECODE_GUARD_SCOPE: lane.scope,
        Attr.GEN_AI_PROVIDER_NAME: lane.provider,
        Attr.GEN_AI_REQUEST_MODEL: None if of_machine else lane.model or OTHER,
        Attr.SPECDECODE_METHOD: lane.method,
        Attr.SPECDECODE_TENANT_ID: lane.key if lane.scope == "tenant" else None,
        Attr.SPECDECODE_SESSION_ID: lane.key if lane.scope == "session" else None,
        Attr.SPECDECODE_RUN_ID: declared().run_id,
    }


def _observe_disabled(_: CallbackOptions) -> Iterable[Observation]:
    return [Observation(1)] if _disabled else []


def _observe_scopes(_: CallbackOptions) -> Iterable[Observation]:
    view = _view
    if view is None:
        return []
    return [Observation(count, {Attr.SPECDECODE_GUARD_STATE: state}) for state, count in view.scopes().items()]


def _observe_without_baseline(_: CallbackOptions) -> Iterable[Observation]:
    view = _view
    return [] if view is None else [Observation(view.without_baseline())]


def _observe_enforcing(_: CallbackOptions) -> Iterable[Observation]:
    view = _view
    return [] if view is None else [Observation(int(view.enforces))]


def _observe_degraded_slo(_: CallbackOptions) -> Iterable[Observation]:
    promised = {} if _view is None else _view.degraded_slo
    return [Observation(value, {Attr.SPECDECODE_GUARD_OBJECTIVE: name}) for name, value in promised.items()]
