"""The end of one service's telemetry: providers that export, and what was really taken of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from otel_specdecode.demo.export import Export
from otel_specdecode.demo.load.sums import Sums
from otel_specdecode.telemetry.names import Event


class Outlet:
    """Providers of one service.

    Attributes:
        resource: Says which.
        sums: Of the spans that the endpoint took.
        bursts: Attributes of each event that tells of a burst.
        ended: Spans that ended, whether they were taken or not.
    """

    def __init__(self, resource: Resource, endpoint: str) -> None:
        """Make the providers.

        Args:
            resource: Says which service.
            endpoint: Where it goes if the environment does not say: that of the exporters themselves.

        Raises:
            ValueError: If the SDK does not take what a variable says.
        """
        self.resource = resource
        self.sums = Sums()
        self.bursts: list[dict[str, Any]] = []
        self.ended = 0
        self._export = Export(endpoint)
        self.tracer_provider = TracerProvider(ALWAYS_ON, resource, shutdown_on_exit=False)
        self.tracer_provider.add_span_processor(_Counting(self))
        self.meter_provider = MeterProvider(self._export.metric_readers(), resource, shutdown_on_exit=False)
        self.logger_provider = LoggerProvider(resource, shutdown_on_exit=False)
        sink = cast(Any, _BurstSink(self.bursts))
        self.logger_provider.add_log_record_processor(SimpleLogRecordProcessor(sink))
        try:
            self._export.attach(self.tracer_provider, self.logger_provider, self.sums.add)
        except ValueError:
            self.finish()  # the metrics are being sent already
            raise

    @property
    def providers(self) -> tuple[TracerProvider, MeterProvider, LoggerProvider]:
        """All three."""
        return self.tracer_provider, self.meter_provider, self.logger_provider

    def finish(self) -> bool:
        """Send what is left and shut down, within bounded time.

        Returns:
            Whether every export was taken.
        """
        return self._export.finish(*self.providers)


class _Counting(SpanProcessor):
    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet

    def on_end(self, span: ReadableSpan) -> None:  # noqa: ARG002 - the shape is the SDK's
        self._outlet.ended += 1  # spans end on the one recording thread

    def force_flush(self, timeout_millis: int = 30_000) -> bool:  # noqa: ARG002 - the shape is the SDK's
        """Nothing waits. The default of older SDKs is None, which keeps processors behind it from being flushed."""
        return True


class _BurstSink:
    """An exporter of log records by shape alone: the SDK renamed its base class."""

    def __init__(self, bursts: list[dict[str, Any]]) -> None:
        self._bursts = bursts

    def export(self, batch: Sequence[Any]) -> None:
        records = [exported.log_record for exported in batch]
        self._bursts += [
            dict(record.attributes) for record in records if record.event_name == Event.SPECDECODE_ROLLBACK_BURST
        ]

    def shutdown(self) -> None:
        """Nothing is held open."""

    def force_flush(self, timeout_millis: int = 0) -> bool:  # noqa: ARG002 - the shape is the SDK's
        """Nothing waits."""
        return True
