"""A service that tells of its generations over OTLP: fake engine, the library's real recording, the SDK's exporters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_specdecode.generation.request import Request
from otel_specdecode.telemetry.host_metrics import Watch, watch
from otel_specdecode.telemetry.listener import Listener, recorder
from otel_specdecode.testing.fake import FakeClock, Script, fake_stream

Protocol = Literal["grpc", "http/protobuf"]

NEVER_MS = 3_600_000
"""Between exports that come by themselves: a test exports when it wants to."""


class Service:
    """One process of a service.

    Attributes:
        tracer_provider: For spans of the service's own.
        meter_provider: Likewise for metrics.
        logger_provider: Likewise for log records.
        listener: Records generations.
        kept: Every span that ended, as the exporter got it.
    """

    def __init__(
        self, endpoint: str, protocol: Protocol, name: str, instance: str, watching: Watch = watch, **resource: str
    ) -> None:
        """Export to an endpoint.

        Args:
            endpoint: Base address of a collector.
            protocol: What to speak to it.
            name: `service.name`.
            instance: `service.instance.id`; empty for none.
            watching: Watches the machine it runs on.
            resource: Further attributes of the resource, `_` for `.`.
        """
        more = {key.replace("_", "."): value for key, value in resource.items()}
        said = {"service.name": name, "service.instance.id": instance, **more}
        made = Resource({key: value for key, value in said.items() if value})
        spans, metrics, logs = _exporters(endpoint, protocol)
        self._memory = InMemorySpanExporter()
        self.tracer_provider = TracerProvider(resource=made)
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self._memory))
        self.tracer_provider.add_span_processor(BatchSpanProcessor(spans, schedule_delay_millis=NEVER_MS))
        self.meter_provider = MeterProvider([PeriodicExportingMetricReader(metrics, NEVER_MS)], resource=made)
        self.logger_provider = LoggerProvider(resource=made)
        self.logger_provider.add_log_record_processor(BatchLogRecordProcessor(logs, schedule_delay_millis=NEVER_MS))
        self.listener = Listener(self.tracer_provider, self.meter_provider, self.logger_provider, watch=watching)

    def generate(self, script: Script, request: Request | None = None) -> None:
        """Run a fake generation to its end, or to its failure."""
        try:
            list(fake_stream(self.listener, script, FakeClock(), request))
        except Exception as error:
            if error is not script.failure:
                raise

    def export(self) -> None:
        """Hand over all that is recorded, once more for metrics that have not changed.

        Raises:
            AssertionError: It was not possible in time.
        """
        assert recorder.drain(30)
        for provider in (self.tracer_provider, self.meter_provider, self.logger_provider):
            assert provider.force_flush(30_000)

    def spans(self) -> tuple[ReadableSpan, ...]:
        """Return every span that ended so far."""
        assert recorder.drain(30)
        return self._memory.get_finished_spans()

    def sums(self, *attributes: str) -> Mapping[str, float]:
        """Return for each attribute the sum over the spans that have it."""
        spans = [span.attributes or {} for span in self.spans()]
        return {name: sum(_number(each.get(name, 0)) for each in spans) for name in attributes}

    def close(self) -> None:
        """Shut down, which exports what is left."""
        recorder.drain(30)
        self.listener.close()
        for provider in (self.tracer_provider, self.meter_provider, self.logger_provider):
            provider.shutdown()


@contextmanager
def service(
    endpoint: str, name: str = "chat", instance: str = "one", protocol: Protocol = "grpc", **resource: str
) -> Iterator[Service]:
    """Run a service for the length of a block."""
    made = Service(endpoint, protocol, name, instance, **resource)
    try:
        yield made
    finally:
        made.close()


def _exporters(endpoint: str, protocol: Protocol) -> tuple[Any, Any, Any]:
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogs
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetrics
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpans

        return GrpcSpans(endpoint), GrpcMetrics(endpoint), GrpcLogs(endpoint)
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return (
        OTLPSpanExporter(f"{endpoint}/v1/traces"),
        OTLPMetricExporter(f"{endpoint}/v1/metrics"),
        OTLPLogExporter(f"{endpoint}/v1/logs"),
    )


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
