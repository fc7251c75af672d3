"""The checker lets conformant telemetry pass and finds each deviation, in SDK objects and in OTLP JSON alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.trace import SpanKind

from otel_specdecode.telemetry.names import Attr, Event, Metric, Metrics
from otel_specdecode.testing.checker import Finding, assert_conformant, check
from tests.testing.emission import (
    AUTOREGRESSIVE,
    BATCHED,
    CLEAN,
    DECLARED,
    EVENT,
    IDENTITY,
    SPECULATIVE,
    Emission,
    SpanShape,
    as_otlp,
    as_sdk,
    point,
)

GENERATION = "span.specdecode.generation"
BATCH = "span.specdecode.batch"

FORMS = [pytest.param(as_sdk, id="sdk"), pytest.param(as_otlp, id="otlp")]
Form = Callable[[Emission], dict[str, Any]]


def without(attributes: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """The attributes but for some keys."""
    return {key: value for key, value in attributes.items() if key not in keys}


def span(attributes: Mapping[str, Any] | None = None, /, **changes: Any) -> Emission:
    """One speculative generation span, with other attributes or other properties."""
    return Emission(spans=(replace(SpanShape({**SPECULATIVE, **(attributes or {})}), **changes),))


def metric_point(metric: Metric, **changes: Any) -> Emission:
    """One data point of a metric, but for the changes."""
    return Emission(points=(point(metric, **changes),))


def event(name: str, attributes: Mapping[str, Any]) -> Emission:
    """One log record."""
    return Emission(events=((name, attributes),))


ROLLBACKS, ROUND = Metrics.SPECDECODE_ROLLBACKS, Metrics.SPECDECODE_ROUND_DURATION
ACTIVE = Metrics.SPECDECODE_REQUEST_ACTIVE
HAZARD = Event.SPECDECODE_HAZARD_DETECTED
LATEST = Metrics.GEN_AI_CLIENT_INFERENCE_DURATION
FOREIGN = replace(ROLLBACKS, name="specdecode.regrets")
LENGTH = Attr.SPECDECODE_DRAFT_LENGTH
ROLLBACK_LABELS = point(ROLLBACKS).labels

BROKEN: dict[str, tuple[Emission, str, str]] = {
    "span of no kind": (Emission(spans=(SpanShape(IDENTITY, name="x"),)), "unknown_span", "x"),
    "span kind": (span(kind=SpanKind.CLIENT), "span_kind_mismatch", GENERATION),
    "span name": (span(name="generate"), "span_name_mismatch", GENERATION),
    "span schema URL": (replace(span(), schema_url="https://x/1"), "schema_url_mismatch", GENERATION),
    "unknown attribute": (span({"specdecode.mood": "good"}), "unknown_attribute", f"{GENERATION}/specdecode.mood"),
    "attribute of another span": (
        span({Attr.SPECDECODE_BATCH_SIZE: 2}),
        "unexpected_attribute",
        f"{GENERATION}/{Attr.SPECDECODE_BATCH_SIZE}",
    ),
    "int for double": (span({Attr.SPECDECODE_ACCEPT_RATE: 1}), "type_mismatch", Attr.SPECDECODE_ACCEPT_RATE),
    "double for int": (span({Attr.SPECDECODE_ROLLBACKS: 7.0}), "type_mismatch", Attr.SPECDECODE_ROLLBACKS),
    "bool for int": (span({Attr.SPECDECODE_ROLLBACKS: True}), "type_mismatch", Attr.SPECDECODE_ROLLBACKS),
    "string for list": (span({Attr.SPECDECODE_HAZARD_IDS: "a"}), "type_mismatch", Attr.SPECDECODE_HAZARD_IDS),
    "string for boolean": (span({Attr.GEN_AI_REQUEST_STREAM: "yes"}), "type_mismatch", Attr.GEN_AI_REQUEST_STREAM),
    "int for string": (span({Attr.SPECDECODE_DRAFT_MODEL: 1}), "type_mismatch", Attr.SPECDECODE_DRAFT_MODEL),
    "value outside its enum": (span({Attr.SPECDECODE_COHORT: "vip"}), "unknown_value", Attr.SPECDECODE_COHORT),
    "required attribute": (
        Emission(spans=(SpanShape(without(SPECULATIVE, Attr.SPECDECODE_METHOD)),)),
        "missing_attribute",
        Attr.SPECDECODE_METHOD,
    ),
    "conditionally required attribute": (
        Emission(spans=(SpanShape(without(SPECULATIVE, Attr.SPECDECODE_ACCEPT_RATE)),)),
        "missing_attribute",
        Attr.SPECDECODE_ACCEPT_RATE,
    ),
    "error without a type": (span(failed=True), "missing_attribute", Attr.ERROR_TYPE),
    "error type without an error": (span({Attr.ERROR_TYPE: "E"}), "forbidden_attribute", Attr.ERROR_TYPE),
    "fallback without a reason": (
        span({Attr.SPECDECODE_REQUESTED_MODE: "autoregressive"}),
        "missing_attribute",
        Attr.SPECDECODE_FALLBACK_REASON,
    ),
    "reason without a fallback": (
        span({Attr.SPECDECODE_FALLBACK_REASON: "queue"}),
        "forbidden_attribute",
        Attr.SPECDECODE_FALLBACK_REASON,
    ),
    "accept rate in autoregressive mode": (
        Emission(spans=(SpanShape({**AUTOREGRESSIVE, Attr.SPECDECODE_ACCEPT_RATE: 0.0}),)),
        "forbidden_attribute",
        Attr.SPECDECODE_ACCEPT_RATE,
    ),
    "required attribute of a batch": (
        Emission(spans=(SpanShape(without(BATCHED, Attr.SPECDECODE_DECODE_PASSES)),)),
        "missing_attribute",
        f"{BATCH}/{Attr.SPECDECODE_DECODE_PASSES}",
    ),
    "unknown metric": (metric_point(FOREIGN), "unknown_metric", FOREIGN.name),
    "instrument": (
        metric_point(replace(ROLLBACKS, instrument="gauge")),
        "instrument_mismatch",
        ROLLBACKS.name,
    ),
    "counter that may fall": (
        metric_point(replace(ROLLBACKS, instrument="updowncounter")),
        "instrument_mismatch",
        ROLLBACKS.name,
    ),
    "unit": (metric_point(replace(ROUND, unit="ms")), "unit_mismatch", ROUND.name),
    "description": (metric_point(replace(ROUND, brief="Time.")), "description_mismatch", ROUND.name),
    "value type": (metric_point(ROLLBACKS, value=1.0), "value_type_mismatch", ROLLBACKS.name),
    "metric schema URL": (
        replace(metric_point(ROUND), schema_url="https://x/1"),
        "schema_url_mismatch",
        ROUND.name,
    ),
    "missing label": (
        metric_point(ROLLBACKS, labels=without(ROLLBACK_LABELS, LENGTH)),
        "missing_label",
        f"{ROLLBACKS.name}/{LENGTH}",
    ),
    "label too many": (
        metric_point(ACTIVE, labels={**point(ACTIVE).labels, LENGTH: "4"}),
        "unexpected_label",
        f"{ACTIVE.name}/{LENGTH}",
    ),
    "label value": (
        metric_point(ROLLBACKS, labels={**ROLLBACK_LABELS, LENGTH: "17"}),
        "unknown_value",
        f"{ROLLBACKS.name}/{LENGTH}",
    ),
    "metric that the collector emits": (
        metric_point(Metrics.SPECDECODE_BRIDGE_ROUNDS),
        "other_emitter",
        Metrics.SPECDECODE_BRIDGE_ROUNDS.name,
    ),
    "renamed metric under released names": (metric_point(LATEST), "other_convention", LATEST.name),
    "released metric under latest names": (
        replace(metric_point(Metrics.GEN_AI_CLIENT_TOKEN_USAGE), conventions="latest"),
        "other_convention",
        Metrics.GEN_AI_CLIENT_TOKEN_USAGE.name,
    ),
    "unknown event": (event("specdecode.surprise", EVENT), "unknown_event", "specdecode.surprise"),
    "event without a name": (event("", EVENT), "unknown_event", "log record"),
    "event without its attribute": (
        event(HAZARD, without(EVENT, Attr.SPECDECODE_HAZARD_ID)),
        "missing_attribute",
        f"{HAZARD}/{Attr.SPECDECODE_HAZARD_ID}",
    ),
    "event with another's attribute": (
        event(HAZARD, {**EVENT, Attr.SPECDECODE_COHORT: "normal"}),
        "unexpected_attribute",
        f"{HAZARD}/{Attr.SPECDECODE_COHORT}",
    ),
    "event schema URL": (replace(event(HAZARD, EVENT), schema_url=""), "schema_url_mismatch", HAZARD),
}


def violations(emission: Emission, form: Form) -> list[Finding]:
    """What the checker holds against the emission."""
    found = check(**form(emission), genai_metrics=emission.conventions)
    return [finding for finding in found if finding.severity == "violation"]


@pytest.mark.parametrize("form", FORMS)
def test_conformant_telemetry_passes(form: Form) -> None:
    """Every declared span, metric and event passes where it is emitted as declared."""
    assert_conformant(**form(CLEAN))


@pytest.mark.parametrize("form", FORMS)
def test_renamed_metrics_pass_where_they_are_expected(form: Form) -> None:
    """Under `both`, the metrics of both sets of GenAI names pass."""
    everything = replace(CLEAN, points=tuple(point(metric) for metric in DECLARED))

    assert_conformant(**form(everything), genai_metrics="both")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", BROKEN)
def test_each_deviation_is_found_and_nothing_else(form: Form, case: str) -> None:
    """A break in one place gives exactly that finding."""
    emission, ident, where = BROKEN[case]
    (finding,) = violations(emission, form)

    assert finding.id == ident
    assert finding.where.endswith(where)


@pytest.mark.parametrize(
    ("metric", "number", "negative"),
    [(ROLLBACKS, '"asInt": "1"', '"asInt": "-1"'), (ROUND, '"sum": 1.0', '"sum": -1.0')],
    ids=["counter", "histogram"],
)
def test_a_negative_sum_is_found(metric: Metric, number: str, negative: str) -> None:
    """What can only grow is not below 0. Only OTLP JSON can tell: the SDK itself refuses to record less."""
    lines = [line.replace(number, negative) for line in as_otlp(metric_point(metric))["otlp"]]

    assert [finding.id for finding in check(otlp=lines)] == ["negative_value"]


@pytest.mark.parametrize("form", FORMS)
def test_other_scopes_are_left_alone(form: Form) -> None:
    """Telemetry of another instrumentation is not ours to judge, a sub-scope of ours is."""
    foreign = span({"anything": 1})

    assert violations(replace(foreign, scope="otel_specdecoder"), form) == []
    assert len(violations(replace(foreign, scope="otel_specdecode.host"), form)) == 1


def test_what_is_only_recommended_is_no_violation() -> None:
    """An absent recommended attribute is reported as an improvement and fails nothing."""
    emission = Emission(spans=(SpanShape(without(SPECULATIVE, Attr.GEN_AI_RESPONSE_FINISH_REASONS)),))
    improvements = {finding.where: finding.severity for finding in check(**as_sdk(emission))}

    assert improvements[f"{GENERATION}/{Attr.GEN_AI_RESPONSE_FINISH_REASONS}"] == "improvement"
    assert_conformant(**as_sdk(emission))


def test_a_known_deviation_is_let_through() -> None:
    """A deviation that is declared does not fail, an undeclared one beside it does."""
    known = [("span_kind_mismatch", GENERATION)]

    assert_conformant(**as_sdk(span(kind=SpanKind.CLIENT)), known=known)
    with pytest.raises(AssertionError, match=f"violation span_name_mismatch on {GENERATION}: is 'x'"):
        assert_conformant(**as_sdk(span(kind=SpanKind.CLIENT, name="x")), known=known)


def test_a_known_deviation_that_has_gone_fails() -> None:
    """A declaration that nothing matches any more has to be removed."""
    with pytest.raises(AssertionError, match=f"known deviation span_kind_mismatch on {GENERATION} has gone"):
        assert_conformant(**as_sdk(span()), known=[("span_kind_mismatch", GENERATION)])


def test_equal_findings_are_told_once() -> None:
    """Many spans with one fault give one finding."""
    shapes = span(kind=SpanKind.CLIENT).spans * 3

    assert len(violations(Emission(spans=shapes), as_sdk)) == 1


def test_a_finding_reads_as_a_sentence() -> None:
    """The text tells what is wrong, where, what was seen and what was expected."""
    (finding,) = violations(span({Attr.SPECDECODE_ROLLBACKS: 7.0}), as_sdk)

    assert (
        str(finding) == f"violation type_mismatch on {GENERATION}/{Attr.SPECDECODE_ROLLBACKS}: holds 7.0, expected int"
    )
