"""Export over OTLP, where the environment or the caller names an endpoint."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from otel_specdecode.telemetry.setup import exporters, flush_providers

if TYPE_CHECKING:
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider

TookSpans = Callable[[Sequence["ReadableSpan"]], None]
"""Is told the spans that the endpoint took."""

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"

_FLUSH_SECONDS = 6.0
_SHUTDOWN_SECONDS = 2.0
_INTERVAL_MS = 5_000
_NOISY = ("opentelemetry.exporter", "opentelemetry.sdk", "urllib3")


class Export:
    """What is sent to the endpoint, and whether it arrived. Without an endpoint it does nothing.

    Attributes:
        endpoint: The endpoint, None if there is none.
    """

    def __init__(self, default: str | None = None) -> None:
        """Read the endpoint from the environment.

        Args:
            default: The endpoint where the environment names none: that of the exporters themselves.
        """
        self.endpoint = os.environ.get(ENDPOINT, "").strip() or default
        self._watched: list[_Watched] = []
        if self.endpoint is not None:
            for name in _NOISY:
                logging.getLogger(name).setLevel(logging.CRITICAL)  # one line at the end tells what they would repeat

    def metric_readers(self) -> list[MetricReader]:
        """Return readers that export the metrics every few seconds."""
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        interval = None if os.environ.get("OTEL_METRIC_EXPORT_INTERVAL") else _INTERVAL_MS
        return [
            PeriodicExportingMetricReader(exporter, export_interval_millis=interval)  # type: ignore[arg-type]
            for exporter in self._exporters("metrics")
        ]

    def attach(
        self, tracer_provider: TracerProvider, logger_provider: LoggerProvider, took_spans: TookSpans | None = None
    ) -> None:
        """Add exporting processors to providers.

        Args:
            tracer_provider: Gives spans.
            logger_provider: Gives events.
            took_spans: Is told the spans that were taken, on the exporting thread.
        """
        from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        for exporter in self._exporters("traces"):
            exporter.took = took_spans
            tracer_provider.add_span_processor(BatchSpanProcessor(exporter))  # type: ignore[arg-type]
        for exporter in self._exporters("logs"):
            logger_provider.add_log_record_processor(BatchLogRecordProcessor(exporter))  # type: ignore[arg-type]

    def finish(self, *providers: Any) -> bool:
        """Send what is left and shut the providers down, within bounded time.

        Returns:
            Whether every export so far was taken.
        """
        taken = flush_providers(_FLUSH_SECONDS, providers) if self.endpoint is not None else True
        taken = taken and not any(exporter.failed for exporter in self._watched)
        closing = threading.Thread(target=_shut_down, args=(providers,), name="otel-specdecode-demo-end", daemon=True)
        closing.start()
        closing.join(_SHUTDOWN_SECONDS)
        return taken

    def _exporters(self, signal: str) -> list[_Watched]:
        found = [_Watched(exporter) for exporter in exporters(signal)] if self.endpoint is not None else []
        self._watched += found
        return found


class _Watched:
    """An exporter that remembers whether an export failed: the SDK tells nobody but the log.

    Attributes:
        failed: Whether one did.
        took: Is told each batch that was taken.
    """

    def __init__(self, exporter: Any) -> None:
        self.failed = False
        self.took: Callable[[Any], None] | None = None
        self._exporter = exporter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._exporter, name)

    def export(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            result = self._exporter.export(batch, *args, **kwargs)
        except Exception:
            self.failed = True
            raise
        taken = getattr(result, "name", None) == "SUCCESS"
        self.failed |= not taken
        if taken and self.took is not None:
            self.took(batch)
        return result


def _shut_down(providers: tuple[Any, ...]) -> None:
    for provider in providers:
        provider.shutdown()
