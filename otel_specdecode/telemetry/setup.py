"""Sets up the OpenTelemetry SDK for programs that have none, and flushes whatever providers are in place.

The standard `OTEL_*` variables decide; an argument speaks where its variable is silent, so that whoever runs a program
can point it elsewhere. The SDK and the exporters are imported inside functions only: they come with the extra `otlp`,
and a program that brings its own SDK never needs them.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from opentelemetry import _logs, metrics, trace

if TYPE_CHECKING:
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

__all__ = [
    "Configured",
    "Protocol",
    "configure",
    "exporters",
    "flush_providers",
    "protocol_of",
    "service_resource",
]

Protocol: TypeAlias = Literal["grpc", "http/protobuf"]
ResourceAttributes: TypeAlias = Mapping[str, str | bool | int | float]

_logger = logging.getLogger(__name__)

_MISSING_SDK = 'configure() needs the OpenTelemetry SDK and its OTLP exporters: pip install "otel-specdecode[otlp]"'
_EXPORT_INTERVAL_MS = 10_000
_HTTP_PORT = 4318
_EXPORTERS: dict[str, str] = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}


@dataclass(frozen=True)
class Configured:
    """The providers that `configure()` built; None for a signal that is switched off or already had a provider.

    The SDK shuts them down at exit. `shutdown()` is for programs that want it earlier.
    """

    tracer_provider: TracerProvider | None
    meter_provider: MeterProvider | None
    logger_provider: LoggerProvider | None

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Exports what these providers hold; as `flush_providers`."""
        return flush_providers(timeout_s, self._built())

    def shutdown(self) -> None:
        """Shuts these providers down. Telemetry recorded later is lost, and `configure()` does not bring it back."""
        for provider in self._built():
            provider.shutdown()

    def _built(self) -> list[Any]:
        providers = (self.tracer_provider, self.meter_provider, self.logger_provider)
        return [provider for provider in providers if provider is not None]


@dataclass(frozen=True)
class _Target:
    """Where to send if the environment does not say."""

    endpoint: str | None
    protocol: Protocol | None


_lock = threading.Lock()
_called = False
_configured: Configured | None = None


def configure(
    *,
    service_name: str | None = None,
    endpoint: str | None = None,
    protocol: Protocol | None = None,
    resource_attributes: ResourceAttributes | None = None,
) -> Configured | None:
    """Gives this process an OpenTelemetry SDK that exports traces, metrics and logs.

    Read from the environment: `OTEL_EXPORTER_OTLP_*` (endpoint, protocol, headers, timeout; for all signals or for
    one), `OTEL_TRACES_EXPORTER`, `OTEL_METRICS_EXPORTER` and `OTEL_LOGS_EXPORTER` (`otlp`, `console`, `none`; `otlp` if
    unset), `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_SAMPLER`, `OTEL_METRIC_EXPORT_INTERVAL` (10 s
    if unset), `OTEL_SDK_DISABLED`. A value that is not known is warned about and passed over. A signal that has a
    provider keeps it: a program's own SDK is never replaced. Nothing waits for the endpoint here. At exit the SDK shuts
    down by itself, and may then try an endpoint that does not answer for as long as `OTEL_EXPORTER_OTLP_TIMEOUT` says.

    Args:
        service_name: `service.name` of the resource, where the environment names none.
        endpoint: base URL of the collector, such as `http://localhost:4318`, for the signals whose endpoint is not set.
        protocol: `grpc` or `http/protobuf`, where no variable says. If nobody does, it is `http/protobuf` for an
            endpoint on port 4318, the port of OTLP over HTTP, and for any other `grpc`, OpenTelemetry Python's default.
        resource_attributes: more attributes of the resource; one that the environment sets keeps that value.

    Returns:
        The providers that were built; None if `OTEL_SDK_DISABLED` is true or every signal already had a provider.
        Further calls return the same and change nothing.

    Raises:
        ImportError: the extra `otlp` is not installed.
        ValueError: `protocol` is none of the two.
    """
    global _called, _configured
    if protocol is not None and protocol not in _EXPORTERS:
        raise ValueError(f"protocol must be one of {sorted(_EXPORTERS)}, not {protocol!r}")
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    with _lock:
        if not _called:
            _configured = _build(_Target(endpoint, protocol), service_name, resource_attributes or {})
            _called = True
        return _configured


def _build(target: _Target, service_name: str | None, resource_attributes: ResourceAttributes) -> Configured | None:
    """Builds a provider for each signal that has none and makes it the global one."""
    free = {
        "traces": _is_unset(trace.get_tracer_provider()),
        "metrics": _is_unset(metrics.get_meter_provider()),
        "logs": _is_unset(_logs.get_logger_provider()),
    }
    taken = [signal for signal, unset in free.items() if not unset]
    if taken:
        _logger.warning("configure() leaves the provider that is already set for: %s", ", ".join(taken))
    if not any(free.values()):
        return None
    try:
        resource = service_resource(service_name, resource_attributes)
        exporters = {signal: _exporters(signal, target) for signal, unset in free.items() if unset}
    except ModuleNotFoundError as error:
        raise ImportError(_MISSING_SDK) from error
    return Configured(
        tracer_provider=_traces(exporters.get("traces"), resource),
        meter_provider=_metrics(exporters.get("metrics"), resource),
        logger_provider=_log_records(exporters.get("logs"), resource),
    )


def _is_unset(provider: object) -> bool:
    """Whether this is the API's stand-in for a provider nobody has set. Only one of its three classes is public."""
    return type(provider).__name__.lstrip("_").startswith("Proxy")


def service_resource(service_name: str | None, more: ResourceAttributes) -> Resource:
    """Who sends this, and from what machine. The environment wins over the caller, and both over what we detect."""
    from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, OTELResourceDetector, Resource

    from otel_specdecode.telemetry.resource import MachineResourceDetector, ProcessResource

    said = dict(more) if service_name is None else {**more, SERVICE_NAME: service_name}
    found = Resource.create({**said, **OTELResourceDetector().detect().attributes})
    detected = {SERVICE_INSTANCE_ID: str(uuid.uuid4()), **MachineResourceDetector().detect().attributes}
    return ProcessResource({**detected, **found.attributes})


def _traces(exporters: list[Any] | None, resource: Resource) -> TracerProvider | None:
    """The tracer provider, or None where nothing is to be exported."""
    if not exporters:
        return None
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=resource)
    for exporter in exporters:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return provider


def _metrics(exporters: list[Any] | None, resource: Resource) -> MeterProvider | None:
    """The meter provider, or None where nothing is to be exported."""
    if not exporters:
        return None
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    interval = None if os.environ.get("OTEL_METRIC_EXPORT_INTERVAL") else _EXPORT_INTERVAL_MS
    readers = [PeriodicExportingMetricReader(exporter, export_interval_millis=interval) for exporter in exporters]
    provider = MeterProvider(metric_readers=readers, resource=resource)
    metrics.set_meter_provider(provider)
    return provider


def _log_records(exporters: list[Any] | None, resource: Resource) -> LoggerProvider | None:
    """The logger provider, or None where nothing is to be exported."""
    if not exporters:
        return None
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

    provider = LoggerProvider(resource=resource)
    for exporter in exporters:
        provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    _logs.set_logger_provider(provider)
    return provider


def exporters(signal: str) -> list[Any]:
    """The exporters that the environment names for a signal, for programs that build their own providers.

    Args:
        signal: `traces`, `metrics` or `logs`.

    Raises:
        ModuleNotFoundError: an OTLP exporter is wanted and not installed.
    """
    return _exporters(signal, _Target(None, None))


def _exporters(signal: str, target: _Target) -> list[Any]:
    """The exporters of a signal, by the names in its variable. One that cannot be built is left out with a warning."""
    variable = f"OTEL_{signal.upper()}_EXPORTER"
    built = []
    for name in (os.environ.get(variable) or "otlp").split(","):
        wanted = name.strip().lower()
        if wanted in ("", "none"):
            continue
        arguments: dict[str, str] = {}
        if wanted == "otlp":
            wanted, arguments = _otlp(signal, target)
        found = list(entry_points(group=f"opentelemetry_{signal}_exporter", name=wanted))
        if not found and wanted in _EXPORTERS.values():
            raise ModuleNotFoundError(f"no exporter {wanted} is installed")
        if not found:
            _logger.warning("%s names %r, an exporter that is not installed: it is passed over", variable, name.strip())
            continue
        exporter = found[0].load()
        try:
            built.append(exporter(**arguments))
        except Exception as error:  # a bad header or certificate must not stop the program; the text may hold a secret
            _logger.warning("The %s exporter for %s cannot be built (%s)", wanted, signal, type(error).__name__)
    return built


def _otlp(signal: str, target: _Target) -> tuple[str, dict[str, str]]:
    """The OTLP exporter of a signal, as an entry point name, and the arguments it is built with."""
    said = _variable(signal, "ENDPOINT")
    protocol = _protocol(signal, target, said or target.endpoint or "")
    if said or target.endpoint is None:
        return _EXPORTERS[protocol], {}  # the exporter reads the environment by itself
    if protocol == "grpc":
        return _EXPORTERS[protocol], {"endpoint": target.endpoint}
    return _EXPORTERS[protocol], {"endpoint": f"{target.endpoint.rstrip('/')}/v1/{signal}"}


def _protocol(signal: str, target: _Target, endpoint: str) -> str:
    """The OTLP protocol of a signal that is sent to this endpoint."""
    said = _variable(signal, "PROTOCOL").lower()
    if said in _EXPORTERS:
        return said
    if said:
        known = sorted(_EXPORTERS)
        _logger.warning("OTEL_EXPORTER_OTLP_PROTOCOL for %s is %r, none of %s: it is passed over", signal, said, known)
    if target.protocol is not None:
        return target.protocol
    return protocol_of(endpoint)


def protocol_of(endpoint: str) -> Protocol:
    """Returns the OTLP protocol that an endpoint is spoken to where nobody says: HTTP on port 4318, else gRPC."""
    return "http/protobuf" if urlsplit(endpoint).netloc.endswith(f":{_HTTP_PORT}") else "grpc"


def _variable(signal: str, what: str) -> str:
    """An OTLP variable of the environment: the one for this signal, else the one for all, else an empty string."""
    names = (f"OTEL_EXPORTER_OTLP_{signal.upper()}_{what}", f"OTEL_EXPORTER_OTLP_{what}")
    return next((value for name in names if (value := os.environ.get(name, "").strip())), "")


def flush_providers(timeout_s: float = 5.0, providers: Iterable[object] | None = None) -> bool:
    """Asks the providers to export what they hold, and waits no longer than `timeout_s` in all. Never raises.

    Args:
        timeout_s: seconds to wait for all providers together. They are flushed side by side, on threads of their own,
            since some versions of the SDK do not keep to the time they are given.
        providers: the providers to flush, the current global ones if None. One without `force_flush`, such as the API's
            no-op provider, has nothing to export and counts as done.

    Returns:
        Whether every provider said in time that it is done. Some exporters drop what they cannot deliver and report it
        in the log alone, so True does not prove that the data arrived.
    """
    deadline = time.monotonic() + timeout_s
    if providers is None:
        providers = _current_providers()
    outcomes: list[bool] = []
    threads = []
    for provider in providers:
        force_flush = getattr(provider, "force_flush", None)
        if force_flush is None:
            continue
        thread = threading.Thread(
            target=_flush_one, args=(force_flush, timeout_s, outcomes), name="otel-specdecode-flush", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # no more threads: too late at interpreter exit, or the system's limit
            return False
        threads.append(thread)
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    done = list(outcomes)
    return len(done) == len(threads) and all(done)


def _current_providers() -> list[object]:
    """The global providers. Asking can raise, where a variable names a provider that cannot be loaded."""
    current: list[object] = []
    getters: tuple[Callable[[], object], ...] = (
        trace.get_tracer_provider,
        metrics.get_meter_provider,
        _logs.get_logger_provider,
    )
    for get in getters:
        try:
            current.append(get())
        except Exception:
            _logger.debug("A global provider cannot be read", exc_info=True)
    return current


def _flush_one(force_flush: Callable[..., Any], timeout_s: float, outcomes: list[bool]) -> None:
    """Flushes one provider and notes whether it is done."""
    try:
        outcomes.append(force_flush(timeout_millis=int(timeout_s * 1000)) is not False)
    except Exception:
        _logger.debug("A provider failed to flush", exc_info=True)
        outcomes.append(False)
