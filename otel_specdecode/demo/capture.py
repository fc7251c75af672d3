"""The demo's own end of the telemetry: SDK providers whose spans, metrics and events are kept in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    HistogramDataPoint,
    InMemoryMetricReader,
    MetricsData,
    NumberDataPoint,
)
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from otel_specdecode.demo.export import Export
from otel_specdecode.demo.needs import DemoError
from otel_specdecode.demo.otlp import json_line
from otel_specdecode.telemetry.listener import recorder
from otel_specdecode.telemetry.names import Attr, Metric, Metrics

SERVICE = "otel-specdecode-demo"

_RECORD_SECONDS = 30.0


@dataclass(frozen=True)
class Taken:
    """The telemetry of one request.

    Attributes:
        attributes: Attributes of its span.
        start, end: Wall clock of the span, in ns.
        rounds: Round durations it recorded: on a fast engine a sample of them.
        accepted_by_position: Accepted tokens by 0-based place in the draft.
    """

    attributes: dict[str, Any]
    start: int
    end: int
    rounds: Recorded
    accepted_by_position: dict[int, int]


@dataclass(frozen=True)
class Recorded:
    """Values that a histogram took: how many, and their sum in s."""

    count: int = 0
    total: float = 0.0


class Capture:
    """Providers to instrument with, and what has come out of them.

    Attributes:
        lines: OTLP JSON lines by signal: `traces`, `metrics`, `logs`.
        metric_names: Names of metrics by provider and mode of their points, as of the last snapshot.
    """

    def __init__(self, export: Export) -> None:
        """Make providers that also export where the environment says so."""
        name = {} if os.environ.get("OTEL_SERVICE_NAME") else {SERVICE_NAME: SERVICE}
        resource = Resource.create(name)
        self.lines: dict[str, list[str]] = {"traces": [], "metrics": [], "logs": []}
        self.metric_names: dict[tuple[str, str], set[str]] = {}
        self._spans: list[ReadableSpan] = []
        self._cumulative = InMemoryMetricReader()
        delta = AggregationTemporality.DELTA
        self._since_last = InMemoryMetricReader(preferred_temporality={Counter: delta, Histogram: delta})
        self.tracer_provider = TracerProvider(ALWAYS_ON, resource, shutdown_on_exit=False)
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(_SpanSink(self._spans, self.lines["traces"])))
        self.meter_provider = MeterProvider(
            [self._cumulative, self._since_last, *export.metric_readers()], resource, shutdown_on_exit=False
        )
        self.logger_provider = LoggerProvider(resource, shutdown_on_exit=False)
        sink = cast(Any, _LogSink(self.lines["logs"]))
        self.logger_provider.add_log_record_processor(SimpleLogRecordProcessor(sink))
        export.attach(self.tracer_provider, self.logger_provider)

    def take(self) -> Taken:
        """Return the telemetry of the one request since the last call."""
        recorder.drain(_RECORD_SECONDS)
        if len(self._spans) != 1:
            raise DemoError(
                f"one request gave {len(self._spans)} spans instead of one: is the engine instrumented elsewhere "
                "already, for example by opentelemetry-instrument?"
            )
        span = self._spans.pop()
        return _taken(span, self._since_last.get_metrics_data())

    def snapshot(self) -> None:
        """Add the metrics as they stand now."""
        data = self._cumulative.get_metrics_data()
        if data is None:
            return
        self.lines["metrics"].append(json_line(encode_metrics(data)))
        for metric, point in _points(data):
            provider, mode = (point.attributes.get(key) for key in (Attr.GEN_AI_PROVIDER_NAME, Attr.SPECDECODE_MODE))
            if provider and mode:
                self.metric_names.setdefault((provider, mode), set()).add(metric)


class _SpanSink(SpanExporter):
    def __init__(self, spans: list[ReadableSpan], lines: list[str]) -> None:
        self._spans = spans
        self._lines = lines

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self._spans.extend(spans)
        self._lines.append(json_line(encode_spans(spans)))
        return SpanExportResult.SUCCESS


class _LogSink:
    """An exporter of log records by shape alone: the SDK renamed its base class."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines

    def export(self, batch: Sequence[Any]) -> None:
        self._lines.append(json_line(encode_logs(batch)))

    def shutdown(self) -> None:
        """Nothing is held open."""

    def force_flush(self, timeout_millis: int = 0) -> bool:  # noqa: ARG002 - the shape is the SDK's
        """Nothing waits."""
        return True


def _taken(span: ReadableSpan, data: MetricsData | None) -> Taken:
    accepted: dict[int, int] = {}
    for point in _points_of(data, Metrics.SPECDECODE_DRAFT_ACCEPTED_BY_POSITION):
        place = (point.attributes or {}).get(Attr.SPECDECODE_DRAFT_POSITION)
        if isinstance(point, NumberDataPoint) and isinstance(place, str) and place.isdecimal() and point.value:
            accepted[int(place)] = accepted.get(int(place), 0) + int(point.value)
    rounds = Recorded()
    for point in _points_of(data, Metrics.SPECDECODE_ROUND_DURATION):
        if isinstance(point, HistogramDataPoint) and point.count:
            rounds = Recorded(point.count, point.sum)
    return Taken(dict(span.attributes or {}), span.start_time or 0, span.end_time or 0, rounds, accepted)


def _points_of(data: MetricsData | None, wanted: Metric) -> list[Any]:
    return [point for name, point in _points(data) if name == wanted.name]


def _points(data: MetricsData | None) -> Iterator[tuple[str, Any]]:
    """Yield every point with the name of its metric."""
    for resource in data.resource_metrics if data else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    yield metric.name, point
