"""Makes speculative decoding on MLX-LM and llama.cpp observable with OpenTelemetry.

    import otel_specdecode
    otel_specdecode.configure()     # for programs without an OpenTelemetry SDK of their own
    otel_specdecode.instrument()

Importing this package imports no engine and no SDK.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from otel_specdecode.identity.declared import declare
from otel_specdecode.version import __version__

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["__version__", "configure", "declare", "flush", "instrument", "uninstrument"]


def instrument(
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    logger_provider: LoggerProvider | None = None,
) -> None:
    """Instrument every supported engine that is installed, imported already or later.

    Instrumented engines stay as they are; given providers then take the place of the ones before.

    Args:
        tracer_provider: Takes the spans; the global one if not given, also if it is set later.
        meter_provider: Takes the metrics; likewise.
        logger_provider: Takes the events; likewise.
    """
    from otel_specdecode.instrumentors import instrumentors

    given = any(provider is not None for provider in (tracer_provider, meter_provider, logger_provider))
    for module, instrumentor in instrumentors().items():
        if find_spec(module) is None:
            continue
        if instrumentor.is_instrumented_by_opentelemetry:
            if not given:
                continue
            instrumentor.uninstrument()
        instrumentor.instrument(
            tracer_provider=tracer_provider, meter_provider=meter_provider, logger_provider=logger_provider
        )


def uninstrument() -> None:
    """Restore the engines. What has begun is still recorded; flush() delivers it."""
    from otel_specdecode.instrumentors import instrumentors

    for instrumentor in instrumentors().values():
        if instrumentor.is_instrumented_by_opentelemetry:
            instrumentor.uninstrument()


def configure(*, service_name: str | None = None) -> None:
    """Set up an OpenTelemetry SDK that exports over OTLP, as the standard OTEL_* variables say.

    Providers that are set already stay. Metrics are exported every 10 s unless OTEL_METRIC_EXPORT_INTERVAL says
    otherwise.

    Args:
        service_name: Name of the service where OTEL_SERVICE_NAME is not set.

    Raises:
        ImportError: If the SDK or the exporter is not installed; the text names the extra to install.
    """
    from otel_specdecode.telemetry.setup import configure as configure_sdk

    configure_sdk(service_name=service_name)


def flush(timeout: float = 30.0) -> bool:
    """Record and export everything so far; for batch jobs and before a process is frozen or killed.

    Args:
        timeout: The longest wait, in seconds.

    Returns:
        Whether everything was recorded and handed to the exporters in time. Some of them drop what they cannot deliver
        and tell the log alone, so True does not prove that it arrived.
    """
    from otel_specdecode.telemetry.flushing import flush as flush_all

    return flush_all(timeout)
