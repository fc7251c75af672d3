"""Identical field names for autoregressive and speculative runs, as the registry declares them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mlx_lm
import pytest

from otel_specdecode.telemetry.names import CORE_ATTRIBUTES, MODE_ONLY_ATTRIBUTES, Attr, Enum, Metrics
from otel_specdecode.testing.capture import Point, Telemetry, capture
from otel_specdecode.testing.checker import assert_conformant
from tests.engines.mlx_lm.conftest import SPLITS_PREFILL, Pair, step_functions

pytestmark = pytest.mark.mlx


def run(pair: Pair, **options: Any) -> None:
    """Stream to the end."""
    list(mlx_lm.stream_generate(pair.target, pair.tokenizer, [301, 302, 303], max_tokens=20, **options))


def keys_of(telemetry: Telemetry) -> list[set[str]]:
    """The attribute keys of every span so far."""
    return [set(span.attributes or {}) for span in telemetry.spans()]


def shapes(telemetry: Telemetry) -> set[tuple[str, frozenset[str]]]:
    """Metric names with the label keys of their points."""
    return {(point.metric, frozenset(point.labels)) for point in telemetry.points()}


def test_span_keys_differ_by_two(telemetry: Telemetry, cycle: Pair) -> None:
    """A speculative span has the keys of an autoregressive one, and draft.model and accept_rate."""
    run(cycle)
    run(cycle, draft_model=cycle.draft, num_draft_tokens=3)
    autoregressive, speculative = keys_of(telemetry)
    assert speculative - autoregressive == set(MODE_ONLY_ATTRIBUTES)
    assert autoregressive - speculative == (set() if SPLITS_PREFILL else {Attr.SPECDECODE_PREFILL_DURATION})
    assert set(CORE_ATTRIBUTES) <= autoregressive


def test_metric_names_and_label_keys_are_equal(cycle: Pair) -> None:
    """One autoregressive request alone, and one speculative alone, make the same metrics with the same label keys."""
    with capture() as autoregressive:
        run(cycle)
        one = shapes(autoregressive)
    with capture() as speculative:
        run(cycle, draft_model=cycle.draft)
        other = shapes(speculative)
    missing = {name for name, _ in one - other}
    assert other <= one
    assert missing == (set() if SPLITS_PREFILL else {Metrics.SPECDECODE_PREFILL_DURATION.name})


def by_label(points: list[Point], label: str) -> dict[Any, float]:
    """Values by one label's value."""
    return {point.labels[label]: point.value for point in points}


@pytest.mark.parametrize("k", [None, 3])
def test_every_counter_series_is_there_from_the_first_request(k: int | None, telemetry: Telemetry, cycle: Pair) -> None:
    """Closed labels exist with 0 from the first request on: outcomes, positions below k, hazards, reasons."""
    run(cycle, **({"draft_model": cycle.draft, "num_draft_tokens": k} if k else {}))
    outcomes = by_label(telemetry.points(Metrics.SPECDECODE_DRAFT_TOKENS.name), Attr.SPECDECODE_DRAFT_OUTCOME)
    rounds = by_label(telemetry.points(Metrics.SPECDECODE_VERIFY_PASSES.name), Attr.SPECDECODE_ROUND_OUTCOME)
    hazards = by_label(telemetry.points(Metrics.SPECDECODE_HAZARDS.name), Attr.SPECDECODE_HAZARD_ID)
    reasons = by_label(telemetry.points(Metrics.SPECDECODE_FALLBACKS.name), Attr.SPECDECODE_FALLBACK_REASON)
    assert set(outcomes) == set(Enum.SPECDECODE_DRAFT_OUTCOME)
    assert set(rounds) == set(Enum.SPECDECODE_ROUND_OUTCOME)
    assert hazards == dict.fromkeys(Enum.SPECDECODE_HAZARD_ID, 0)
    assert reasons == dict.fromkeys(Enum.SPECDECODE_FALLBACK_REASON, 0)
    for metric in (Metrics.SPECDECODE_DRAFT_PROPOSED_BY_POSITION, Metrics.SPECDECODE_DRAFT_ACCEPTED_BY_POSITION):
        assert list(by_label(telemetry.points(metric.name), Attr.SPECDECODE_DRAFT_POSITION)) == [
            str(place) for place in range(k or 1)
        ]
    for name in ("rollbacks", "draft.passes", "draft.calls", "decode.passes", "decode.tokens"):
        assert len(telemetry.points(f"specdecode.{name}")) == 1
    if not k:
        assert sum(outcomes.values()) == sum(rounds.values()) == 0


def test_k_of_zero_is_a_fallback(telemetry: Telemetry, cycle: Pair) -> None:
    """A draft with k = 0: asked for speculation, entered autoregressive decoding, and the reason says so."""
    run(cycle, draft_model=cycle.draft, num_draft_tokens=0)
    found = dict(telemetry.span().attributes or {})
    assert found[Attr.SPECDECODE_MODE] == "autoregressive"
    assert found[Attr.SPECDECODE_REQUESTED_MODE] == "speculative"
    assert found[Attr.SPECDECODE_FALLBACK_REASON] == "zero_draft_length"
    assert found[Attr.SPECDECODE_DRAFT_MAX_TOKENS] == 0
    assert found[Attr.SPECDECODE_DRAFT_PASSES] == 0
    assert found[Attr.SPECDECODE_DRAFT_PREFILL_PASSES] == SPLITS_PREFILL
    assert telemetry.total("specdecode.fallbacks", fallback_reason="zero_draft_length") == 1
    assert found[Attr.SPECDECODE_DECODE_PASSES] == found[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] - 1


def every_kind(pair: Pair) -> Iterator[None]:
    """One call of every kind, and every ending."""
    import mlx.core as mx

    step = step_functions()
    run(pair)
    yield run(pair, draft_model=pair.draft)
    yield run(pair, draft_model=pair.draft, num_draft_tokens=20)
    yield run(pair, draft_model=pair.draft, num_draft_tokens=0)
    mlx_lm.generate(pair.target, pair.tokenizer, "hello", max_tokens=1)
    list(step.generate_step(mx.array([301]), pair.target, max_tokens=3))
    list(step.speculative_generate_step(mx.array([301]), pair.target, pair.draft, max_tokens=3))
    closed = mlx_lm.stream_generate(pair.target, pair.tokenizer, [301], draft_model=pair.draft)
    next(closed)
    yield closed.close()
    with pytest.raises(TypeError):
        run(pair, colour="red")


@pytest.mark.parametrize("convention", ["released", "latest", "both"])
def test_everything_emitted_conforms(convention: Any, cycle: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names, kinds, types, units, texts, labels and requirement levels, for every kind of call and ending."""
    monkeypatch.setenv("OTEL_SPECDECODE_GENAI_METRICS", convention)
    with capture() as telemetry:
        list(every_kind(cycle))
        assert_conformant(
            spans=telemetry.spans(),
            metrics=telemetry.metrics_data(),
            logs=telemetry.logs(),
            genai_metrics=convention,
        )


def test_exemplars_link_to_the_span(telemetry: Telemetry, cycle: Pair) -> None:
    """Each histogram point carries an exemplar of the request's trace and span."""
    run(cycle, draft_model=cycle.draft)
    context = telemetry.span().context
    histograms = [point for point in telemetry.points() if point.total is not None]
    assert len(histograms) >= 10
    for point in histograms:
        exemplars = {(exemplar.trace_id, exemplar.span_id) for exemplar in point.exemplars}
        assert exemplars == {(context.trace_id, context.span_id)}, point.metric
