"""Telemetry as this library declares it, emitted through the real SDK, as SDK objects or as OTLP JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from google.protobuf.json_format import MessageToDict
from opentelemetry._logs import LogRecord
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk import _logs as sdk_logs
from opentelemetry.sdk._logs import export as log_export
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, Status, StatusCode

from otel_specdecode.telemetry.names import SCHEMA_URL, Attr, Event, Metric, Metrics

OPERATION, MODEL = "text_completion", "target"

IDENTITY = {
    Attr.GEN_AI_OPERATION_NAME: OPERATION,
    Attr.GEN_AI_PROVIDER_NAME: "mlx",
    Attr.GEN_AI_REQUEST_MODEL: MODEL,
}
STATE = {
    Attr.SPECDECODE_HOST_POWER_MODE: "automatic",
    Attr.SPECDECODE_HOST_POWER_SOURCE: "ac",
    Attr.SPECDECODE_HOST_THERMAL_STATE: "nominal",
    Attr.SPECDECODE_HOST_MEMORY_PRESSURE: "unknown",
}
SURROUNDINGS = {
    **STATE,
    Attr.SPECDECODE_PROCESS_PEAK_RSS: 1000,
    Attr.SPECDECODE_PROCESS_PEAK_RSS_LIFETIME: 1200,
    Attr.SPECDECODE_MACHINE_PROFILE: "macos-apple-m3-max-128g",
    Attr.SPECDECODE_TENANT_ID: "acme",
}
TIMES = dict.fromkeys(
    (
        Attr.SPECDECODE_TIME_TO_FIRST_TOKEN,
        Attr.SPECDECODE_PREFILL_DURATION,
        Attr.SPECDECODE_DECODE_DURATION,
        Attr.SPECDECODE_CONSUMER_DURATION,
        Attr.SPECDECODE_DECODE_TOKENS_PER_SECOND,
        Attr.SPECDECODE_INTER_TOKEN_LATENCY_P50,
        Attr.SPECDECODE_INTER_TOKEN_LATENCY_P95,
        Attr.SPECDECODE_INTER_TOKEN_LATENCY_P99,
    ),
    0.5,
)
SPECULATIVE: dict[str, Any] = {
    **IDENTITY,
    **SURROUNDINGS,
    **TIMES,
    Attr.GEN_AI_RESPONSE_FINISH_REASONS: ("stop",),
    Attr.GEN_AI_USAGE_INPUT_TOKENS: 20,
    Attr.GEN_AI_USAGE_OUTPUT_TOKENS: 27,
    Attr.GEN_AI_REQUEST_TOP_K: 40.0,
    Attr.SPECDECODE_MODE: "speculative",
    Attr.SPECDECODE_REQUESTED_MODE: "speculative",
    Attr.SPECDECODE_METHOD: "draft_model",
    Attr.SPECDECODE_COHORT: "normal",
    Attr.SPECDECODE_DRAFT_MODEL: "draft",
    Attr.SPECDECODE_DRAFT_MAX_TOKENS: 4,
    Attr.SPECDECODE_DRAFT_PASSES: 32,
    Attr.SPECDECODE_DRAFT_CALLS: 8,
    Attr.SPECDECODE_DRAFT_PREFILL_PASSES: 1,
    Attr.SPECDECODE_DRAFT_PROPOSED_TOKENS: 32,
    Attr.SPECDECODE_DRAFT_ACCEPTED_TOKENS: 18,
    Attr.SPECDECODE_DRAFT_REJECTED_TOKENS: 14,
    Attr.SPECDECODE_DRAFT_UNVERIFIED_TOKENS: 0,
    Attr.SPECDECODE_VERIFY_PASSES: 8,
    Attr.SPECDECODE_DECODE_PASSES: 8,
    Attr.SPECDECODE_PREFILL_PASSES: 1,
    Attr.SPECDECODE_ROLLBACKS: 7,
    Attr.SPECDECODE_ROLLBACKS_PER_MINUTE: 840.0,
    Attr.SPECDECODE_ACCEPT_RATE: 0.5625,
    Attr.SPECDECODE_ACCEPTANCE_LENGTH: 3.25,
    Attr.SPECDECODE_HAZARD_IDS: ("processors_with_draft",),
}
NO_DRAFT = {key: 0 for key in SPECULATIVE if key.startswith(Attr.SPECDECODE_DRAFT_CALLS.rpartition(".")[0])} | {
    Attr.SPECDECODE_VERIFY_PASSES: 0,
    Attr.SPECDECODE_ROLLBACKS: 0,
    Attr.SPECDECODE_ROLLBACKS_PER_MINUTE: 0.0,
    Attr.SPECDECODE_ACCEPTANCE_LENGTH: 1.0,
}
AUTOREGRESSIVE: dict[str, Any] = {
    key: value
    for key, value in {
        **SPECULATIVE,
        **NO_DRAFT,
        Attr.SPECDECODE_MODE: "autoregressive",
        Attr.SPECDECODE_REQUESTED_MODE: "autoregressive",
        Attr.SPECDECODE_METHOD: "none",
    }.items()
    if key not in (Attr.SPECDECODE_DRAFT_MODEL, Attr.SPECDECODE_ACCEPT_RATE)
}
BATCHED: dict[str, Any] = {
    **IDENTITY,
    **SURROUNDINGS,
    Attr.SPECDECODE_BATCH_SIZE: 2,
    Attr.SPECDECODE_DECODE_PASSES: 8,
    Attr.SPECDECODE_PREFILL_PASSES: 1,
}
SERVED: dict[str, Any] = {
    Attr.HTTP_REQUEST_METHOD: "POST",
    Attr.HTTP_ROUTE: "/v1/completions",
    Attr.HTTP_RESPONSE_STATUS_CODE: 200,
    Attr.URL_PATH: "/v1/completions",
    Attr.URL_SCHEME: "http",
}
LABELS: dict[str, Any] = {
    **IDENTITY,
    Attr.SPECDECODE_MODE: "speculative",
    Attr.SPECDECODE_REQUESTED_MODE: "speculative",
    Attr.SPECDECODE_METHOD: "draft_model",
    Attr.SPECDECODE_COHORT: "normal",
    Attr.SPECDECODE_DRAFT_LENGTH: "4",
    Attr.SPECDECODE_CONTEXT_TIER: "short",
    Attr.SPECDECODE_DRAFT_OUTCOME: "accepted",
    Attr.SPECDECODE_ROUND_OUTCOME: "cut",
    Attr.SPECDECODE_DRAFT_POSITION: "16+",
    Attr.SPECDECODE_HAZARD_ID: "nothing_proposed",
    Attr.SPECDECODE_FALLBACK_REASON: "break_even",
    Attr.GEN_AI_TOKEN_TYPE: "input",
    Attr.GEN_AI_TOKEN_MODALITY: "text",
    Attr.ERROR_TYPE: "ValueError",
    Attr.SPECDECODE_TENANT_ID: "acme",
    Attr.SPECDECODE_ENGINE_MEMORY_STATE: "active",
    Attr.SPECDECODE_MANIFEST_ID: "9f2c1b7a4d3e8f60",
    Attr.SPECDECODE_DRAFT_MODEL: "draft",
    Attr.SPECDECODE_ENGINE_VERSION: "0.32.2",
    Attr.SPECDECODE_ENGINE_RUNTIME_VERSION: "none",
    Attr.SPECDECODE_POLICY_HASH: "none",
    Attr.SPECDECODE_GUARD_STATE: "open",
    Attr.SPECDECODE_GUARD_PREVIOUS_STATE: "limited",
    Attr.SPECDECODE_GUARD_TRIGGER: "break_even",
    Attr.SPECDECODE_GUARD_OBJECTIVE: "tokens_per_second",
    Attr.SPECDECODE_CANARY_OUTCOME: "pass",
    Attr.SYSTEM_PAGING_DIRECTION: "in",
    Attr.SYSTEM_PAGING_STATE: "used",
    Attr.HW_ID: "battery",
    Attr.HTTP_REQUEST_METHOD: "POST",
    Attr.HTTP_RESPONSE_STATUS_CODE: 200,
    Attr.HTTP_ROUTE: "/v1/completions",
    Attr.NETWORK_PROTOCOL_VERSION: "1.1",
    Attr.URL_SCHEME: "http",
    **STATE,
}


@dataclass(frozen=True)
class SpanShape:
    """A span to emit."""

    attributes: Mapping[str, Any]
    name: str = f"{OPERATION} {MODEL}"
    kind: SpanKind = SpanKind.INTERNAL
    failed: bool = False


@dataclass(frozen=True)
class PointShape:
    """A metric with one data point to emit."""

    metric: Metric
    labels: Mapping[str, Any]
    value: float = 1


@dataclass(frozen=True)
class Emission:
    """Telemetry to emit. What is not given is left out."""

    scope: str = "otel_specdecode"
    schema_url: str = SCHEMA_URL
    spans: tuple[SpanShape, ...] = ()
    points: tuple[PointShape, ...] = ()
    events: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    conventions: Literal["released", "latest", "both"] = "released"


def spans_of(emission: Emission) -> list[Any]:
    """The emission's spans, as the SDK's in-memory exporter hands them out."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer(emission.scope, "1", emission.schema_url)
    for shape in emission.spans:
        span = tracer.start_span(shape.name, kind=shape.kind, attributes=shape.attributes)
        if shape.failed:
            span.set_status(Status(StatusCode.ERROR))
        span.end()
    return list(exporter.get_finished_spans())


def metrics_of(emission: Emission) -> Any:
    """The emission's metrics, as the SDK's in-memory reader collects them."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    meter = provider.get_meter(emission.scope, "1", emission.schema_url)
    for point in emission.points:
        metric, labels = point.metric, dict(point.labels)
        if metric.instrument == "counter":
            meter.create_counter(metric.name, metric.unit, metric.brief).add(point.value, labels)
        elif metric.instrument == "updowncounter":
            meter.create_up_down_counter(metric.name, metric.unit, metric.brief).add(point.value, labels)
        elif metric.instrument == "gauge":
            meter.create_gauge(metric.name, metric.unit, metric.brief).set(point.value, labels)
        else:
            meter.create_histogram(metric.name, metric.unit, metric.brief).record(point.value, labels)
    return reader.get_metrics_data()


def logs_of(emission: Emission) -> list[Any]:
    """The emission's log records, as the SDK's in-memory exporter hands them out."""
    memory = getattr(log_export, "InMemoryLogRecordExporter", None) or log_export.InMemoryLogExporter
    exporter = memory()
    provider = sdk_logs.LoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(log_export.SimpleLogRecordProcessor(exporter))
    logger = provider.get_logger(emission.scope, "1", emission.schema_url)
    for name, attributes in emission.events:
        logger.emit(LogRecord(event_name=name, attributes=dict(attributes)))
    return list(exporter.get_finished_logs())


def as_sdk(emission: Emission) -> dict[str, Any]:
    """The checker's arguments for SDK objects."""
    return {"spans": spans_of(emission), "metrics": metrics_of(emission), "logs": logs_of(emission)}


def as_otlp(emission: Emission) -> dict[str, Any]:
    """The checker's arguments for the same telemetry as lines of OTLP JSON."""
    metrics, logs = metrics_of(emission), logs_of(emission)
    requests = [encode_spans(spans_of(emission))]
    requests += [encode_metrics(metrics)] if metrics else []
    requests += [encode_logs(logs)] if logs else []
    return {"otlp": [json.dumps(MessageToDict(request)) for request in requests]}


def point(metric: Metric, **changes: Any) -> PointShape:
    """A conformant data point of a metric, but for the changes."""
    value = 1.0 if metric.value_type == "double" else 1
    return replace(PointShape(metric, {key: LABELS[key] for key in metric.labels}, value), **changes)


MESSAGE = {"role": "user", "parts": [{"type": "text", "content": "hi"}]}
EVENT = {key: LABELS[key] for key in (Attr.SPECDECODE_HAZARD_ID, Attr.SPECDECODE_MODE, *IDENTITY)}
MANIFEST = {
    Attr.GEN_AI_PROVIDER_NAME: "mlx",
    Attr.GEN_AI_REQUEST_MODEL: MODEL,
    Attr.SPECDECODE_MANIFEST_ID: "9f2c1b7a4d3e8f60",
    Attr.SPECDECODE_MANIFEST_DOCUMENT: "{}",
    Attr.SPECDECODE_MACHINE_PROFILE: "macos-apple-m3-max-128g",
}
BURST = {
    Attr.GEN_AI_PROVIDER_NAME: "mlx",
    Attr.GEN_AI_REQUEST_MODEL: MODEL,
    Attr.SPECDECODE_METHOD: "draft_model",
    Attr.SPECDECODE_BURST_START_TIME: 1.5,
    Attr.SPECDECODE_BURST_END_TIME: 21.5,
    Attr.SPECDECODE_BURST_ROUNDS: 520,
    Attr.SPECDECODE_BURST_ROLLBACKS: 505,
    Attr.SPECDECODE_BURST_ROLLBACKS_PER_MINUTE: 1533.0,
    Attr.SPECDECODE_BURST_PEAK_REJECTED: 2890.0,
    Attr.SPECDECODE_BURST_PEAK_ALL_REJECTED: 0.81,
    Attr.SPECDECODE_BURST_REQUESTS: 12,
    Attr.SPECDECODE_BURST_TRACE_IDS: ("4bf92f3577b34da6a3ce929d0e0e4736",),
}
DECLARED = [
    metric for metric in vars(Metrics).values() if isinstance(metric, Metric) and metric.emitted_by == "library"
]
CLEAN = Emission(
    spans=(
        SpanShape(SPECULATIVE),
        SpanShape(AUTOREGRESSIVE),
        SpanShape({**AUTOREGRESSIVE, Attr.ERROR_TYPE: "ValueError"}, failed=True),
        SpanShape(BATCHED),
        SpanShape(SERVED, "POST /v1/completions", SpanKind.SERVER),
    ),
    points=tuple(point(metric) for metric in DECLARED if metric.convention != "latest"),
    events=(
        (Event.SPECDECODE_HAZARD_DETECTED, EVENT),
        (Event.SPECDECODE_MANIFEST, MANIFEST),
        (Event.SPECDECODE_ROLLBACK_BURST, BURST),
        (Event.GEN_AI_CLIENT_INFERENCE_OPERATION_DETAILS, {**IDENTITY, Attr.GEN_AI_INPUT_MESSAGES: [MESSAGE]}),
    ),
)
