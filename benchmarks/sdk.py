"""A real OpenTelemetry SDK as a service sets it up, with exporters that discard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from benchmarks.measuring import drain
from otel_specdecode.telemetry.listener import Listener
from otel_specdecode.thresholds import thresholds

EXPORT_MILLISECONDS = 10_000
"""Metrics are exported as often as this library's configure() has it."""

NOBODY = Listener()
"""Finds no provider but the API's own stand-ins."""

RESOURCE = Resource({"service.name": "chat", "service.version": "1.4.0", "host.name": "studio"})


class DiscardedSpans(SpanExporter):
    """Takes spans and keeps nothing."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:  # noqa: ARG002
        return SpanExportResult.SUCCESS


class DiscardedMetrics(MetricExporter):
    """Takes collected metrics and keeps nothing."""

    def export(self, metrics_data: Any, timeout_millis: float = 0, **kwargs: Any) -> MetricExportResult:  # noqa: ARG002
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 0) -> bool:  # noqa: ARG002
        return True

    def shutdown(self, timeout_millis: float = 0, **kwargs: Any) -> None:
        pass


class SDK:
    """Providers with a batching span processor and a periodic metric reader.

    Attributes:
        tracer_provider: Takes spans.
        meter_provider: Takes metrics.
        listener: Records into both.
    """

    def __init__(self, export_milliseconds: float = EXPORT_MILLISECONDS) -> None:
        self.tracer_provider = TracerProvider(resource=RESOURCE)
        self.tracer_provider.add_span_processor(BatchSpanProcessor(DiscardedSpans()))
        reader = PeriodicExportingMetricReader(DiscardedMetrics(), export_milliseconds)
        self.meter_provider = MeterProvider([reader], RESOURCE)
        self.listener = Listener(self.tracer_provider, self.meter_provider)

    def shutdown(self) -> None:
        drain()
        self.listener.close()
        self.tracer_provider.shutdown()
        self.meter_provider.shutdown()


@contextmanager
def sdk(export_milliseconds: float = EXPORT_MILLISECONDS) -> Iterator[SDK]:
    """Give an SDK for the length of a block."""
    running = SDK(export_milliseconds)
    try:
        yield running
    finally:
        running.shutdown()


@contextmanager
def values_per_second(rate: float | None) -> Iterator[None]:
    """Have the series that begin in this block record about this many values a second; None: as they are shipped."""
    recording = thresholds()["recording"]
    before = dict(recording)
    if rate is not None:
        recording.update(dict.fromkeys(before, rate))
    try:
        yield
    finally:
        recording.update(before)
