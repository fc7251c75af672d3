"""Everything this library emits, kept in memory: for users' tests and ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler

import otel_specdecode
from otel_specdecode.instrumentors import instrumentors
from otel_specdecode.telemetry.listener import Listener, recorder

try:
    from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter
except ImportError:
    from opentelemetry.sdk._logs.export import InMemoryLogExporter as InMemoryLogRecordExporter

DRAIN_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Point:
    """One metric point.

    Attributes:
        metric: Name of the metric.
        labels: Its attributes.
        value: Of a sum or gauge; the number of values of a histogram.
        total: Sum of the values of a histogram.
        exemplars: Exemplars of a histogram or sum.
    """

    metric: str
    labels: dict[str, Any]
    value: float
    total: float | None
    exemplars: tuple[Any, ...] = field(compare=False)


class Telemetry:
    """Providers that keep what they get in memory.

    Attributes:
        tracer_provider: For `instrument(tracer_provider=...)`.
        meter_provider: Likewise.
        logger_provider: Likewise.
    """

    def __init__(self, sampler: Sampler = ALWAYS_ON) -> None:
        """Make the providers.

        Args:
            sampler: Decides which spans are recorded.
        """
        self._listeners: list[Listener] = []
        self._spans = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self._logs = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call]
        self.tracer_provider = TracerProvider(sampler=sampler)
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self._spans))
        self.meter_provider = MeterProvider([self._reader])
        self.logger_provider = LoggerProvider()
        self.logger_provider.add_log_record_processor(SimpleLogRecordProcessor(self._logs))

    def listener(self) -> Listener:
        """Return an observer that records into these providers, for hooks or fake generations."""
        listener = Listener(self.tracer_provider, self.meter_provider, self.logger_provider)
        self._listeners.append(listener)
        return listener

    def spans(self) -> tuple[ReadableSpan, ...]:
        """Return every ended span, once everything so far is recorded."""
        _drain()
        return tuple(self._spans.get_finished_spans())

    def span(self) -> ReadableSpan:
        """Return the one ended span.

        Raises:
            AssertionError: If there is not exactly one.
        """
        spans = self.spans()
        if len(spans) != 1:
            raise AssertionError(f"{len(spans)} spans, expected 1")
        return spans[0]

    def logs(self) -> tuple[Any, ...]:
        """Return every log record as the SDK exports it: `.log_record` with its scope and resource."""
        _drain()
        return tuple(self._logs.get_finished_logs())

    def events(self, *names: str) -> list[Any]:
        """Return the log records with these event names."""
        records = [exported.log_record for exported in self.logs()]
        return [record for record in records if record.event_name in names]

    def metrics_data(self) -> Any:
        """Return the SDK's MetricsData of this moment, None if nothing was recorded."""
        _drain()
        return self._reader.get_metrics_data()

    def points(self, metric: str | None = None) -> list[Point]:
        """Return every point, or those of one metric."""
        data = self.metrics_data()
        return [
            _point(each.name, point)
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for each in scope.metrics
            if metric in (None, each.name)
            for point in each.data.data_points
        ]

    def total(self, metric: str, **labels: object) -> float:
        """Return the sum of a metric's points over all label sets that hold these values (dots as underscores).

        Raises:
            LookupError: If there is no such point: a series that is absent is not a 0.
        """
        wanted = {key.replace("_", "."): value for key, value in labels.items()}
        values = [
            point.value
            for point in self.points(metric)
            if all(_held(point.labels, key) == value for key, value in wanted.items())
        ]
        if not values:
            raise LookupError(f"no point of {metric} with {labels}")
        return sum(values)

    def clear(self) -> None:
        """Forget the spans and log records so far; metrics are cumulative."""
        _drain()
        self._spans.clear()
        self._logs.clear()

    def shutdown(self) -> None:
        """Shut the providers down."""
        _drain()
        for listener in self._listeners:
            listener.close()
        for provider in (self.tracer_provider, self.meter_provider, self.logger_provider):
            provider.shutdown()


@contextmanager
def capture() -> Iterator[Telemetry]:
    """Instrument the engines into memory for the length of a block.

    Raises:
        RuntimeError: If they are instrumented already: what they emit would go elsewhere.
    """
    if any(instrumentor.is_instrumented_by_opentelemetry for instrumentor in instrumentors().values()):
        raise RuntimeError("the engines are instrumented already; call otel_specdecode.uninstrument() first")
    telemetry = Telemetry()
    otel_specdecode.instrument(
        tracer_provider=telemetry.tracer_provider,
        meter_provider=telemetry.meter_provider,
        logger_provider=telemetry.logger_provider,
    )
    try:
        yield telemetry
    finally:
        otel_specdecode.uninstrument()
        telemetry.shutdown()


def _drain() -> None:
    if not recorder.drain(DRAIN_SECONDS):
        raise TimeoutError(f"recording did not end within {DRAIN_SECONDS:.0f} s")


def _held(labels: dict[str, Any], key: str) -> object:
    return next((value for name, value in labels.items() if name.replace("_", ".").endswith(key)), None)


def _point(metric: str, point: Any) -> Point:
    value = getattr(point, "value", None)
    return Point(
        metric,
        dict(point.attributes),
        point.count if value is None else value,
        point.sum if value is None else None,
        tuple(point.exemplars),
    )
