"""Joins engines' hooks to the OpenTelemetry providers of the moment."""

from __future__ import annotations

import atexit
import sys
import threading
from collections import deque
from functools import partial
from typing import Any

from opentelemetry import _logs, metrics, trace
from opentelemetry._logs import Logger, LoggerProvider
from opentelemetry.context import Context, get_current, get_value
from opentelemetry.instrumentation.utils import is_instrumentation_enabled
from opentelemetry.metrics import MeterProvider, NoOpMeterProvider
from opentelemetry.trace import SpanKind, TracerProvider, get_current_span

from otel_specdecode.generation.comparison import BaselineChange
from otel_specdecode.generation.faults import report_fault, warn_once
from otel_specdecode.generation.observer import HttpRequest
from otel_specdecode.generation.plan import planner
from otel_specdecode.generation.transition import Transition
from otel_specdecode.identity.declared import declared
from otel_specdecode.telemetry.bursts import BurstWatch, any_burst, finish_bursts, settle_bursts
from otel_specdecode.telemetry.content import chosen_capture
from otel_specdecode.telemetry.guarding import canary_labels, emit_baseline, emit_transition, transition_labels
from otel_specdecode.telemetry.host_metrics import Watch, watch
from otel_specdecode.telemetry.http import Exclusions, HttpExchange
from otel_specdecode.telemetry.instruments import SCOPE, instruments_of
from otel_specdecode.telemetry.labels import Labels
from otel_specdecode.telemetry.metrics import chosen_convention
from otel_specdecode.telemetry.names import SCHEMA_URL, Attr, Metric, Metrics
from otel_specdecode.telemetry.recorder import Recorder
from otel_specdecode.telemetry.recording import OTelTicket, Sinks
from otel_specdecode.telemetry.tenancy import chosen_tenancy
from otel_specdecode.version import __version__

EXIT_SECONDS = 5.0
"""The longest that the end of the process waits for what is still to be recorded."""

Providers = tuple[TracerProvider, MeterProvider]

_last_bound: tuple[object, ...] | None = None

_NO_METERS = NoOpMeterProvider()

_BLIND = (
    "the guard sees no request, and all run as asked: there is no OpenTelemetry SDK with a tracer or meter provider. "
    "opentelemetry-instrument sets one up with the extra [zero-code], and otel_specdecode.configure() does unless the "
    "exporters of traces and metrics are both none"
)

_early: deque[Transition] = deque(maxlen=100)
"""What the guard did before the first request told where telemetry goes: what a flag file said at the start."""

recorder = Recorder()
"""The one recording thread of this process."""


class Listener:
    """Admits calls while somebody listens: a provider that is not the API's own stand-in."""

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        logger_provider: LoggerProvider | None = None,
        *,
        watch: Watch = watch,
    ) -> None:
        """Listen for the given providers; for those not given, for the global ones, set now or later.

        Args:
            tracer_provider: Takes the spans.
            meter_provider: Takes the metrics.
            logger_provider: Takes the events.
            watch: Watches the machine and the process that calls run in.
        """
        self._given = (tracer_provider, meter_provider, logger_provider)
        self._watch = watch
        self._exclusions = Exclusions()
        self._bound: Providers | None = None
        self._sinks: Sinks | None = None
        self._watches = False
        self._closed = False
        self._watching = threading.Lock()

    def close(self) -> None:
        """Admit nothing more, and stop to watch the machine. What has begun is still recorded."""
        with self._watching:
            self._closed = True
            watched, self._watches = self._watches, False
            sinks = self._sinks
        if sinks is not None:
            recorder.put(sinks.bursts.close)
        if watched:
            self._watch.end()

    def admit(self) -> OTelTicket | None:
        """Return a ticket for a call made now; None if nobody listens or instrumentation is suppressed."""
        try:
            sinks = self._ready()
            if sinks is None:
                return None
            context = get_current()
            return OTelTicket(sinks, context, _under_client_span(context))
        except Exception as error:
            report_fault("a call could not be recorded", error)
            return None

    def serve(self, request: HttpRequest) -> HttpExchange | None:
        """Begin to record an HTTP request; None if nobody listens, it is suppressed, or the user excluded its path."""
        try:
            sinks = self._ready()
            if sinks is None or self._exclusions.hold(request):
                return None
            return HttpExchange(sinks.tracer, sinks.instruments, request)
        except Exception as error:
            report_fault("an HTTP request could not be recorded", error)
            return None

    def _ready(self) -> Sinks | None:
        """Return where recordings go now, None if they go nowhere."""
        providers = self._providers()
        if not (_listens(providers[0]) or _listens(providers[1])):
            if planner() is not None:
                warn_once(_BLIND)
            return None
        if not is_instrumentation_enabled():
            return None
        if self._bound is None or any(one is not other for one, other in zip(providers, self._bound, strict=True)):
            self._bind(providers)
        return None if self._closed else self._sinks

    def _providers(self) -> Providers:
        tracer_provider, meter_provider, _ = self._given
        return tracer_provider or trace.get_tracer_provider(), meter_provider or metrics.get_meter_provider()

    def _bind(self, providers: Providers) -> None:
        """Bind every instrument to new providers, and drain before they shut down at exit."""
        global _last_bound
        tracer_provider, meter_provider = providers
        # A logger of the API's own provider follows one that is set later. Instruments of its meter provider would
        # too, and share their series with those made for the one set later.
        logger_provider = self._given[2] or _logs.get_logger_provider()
        logger = logger_provider.get_logger(SCOPE, __version__, SCHEMA_URL)
        instruments = instruments_of(meter_provider if _listens(meter_provider) else _NO_METERS, self._watch)
        instruments.collecting = _settle_soon
        if self._sinks is not None:
            recorder.put(self._sinks.bursts.close)
        self._sinks = Sinks(
            tracer=tracer_provider.get_tracer(SCOPE, __version__, SCHEMA_URL),
            logger=logger,
            instruments=instruments,
            recorder=recorder,
            convention=chosen_convention(),
            capture=chosen_capture(),
            tenancy=chosen_tenancy(),
            watch=self._watch,
            bursts=BurstWatch(logger, instruments),
        )
        declared()  # may read a file, once: not at the first request
        with self._watching:
            begins = not self._watches and not self._closed
            self._watches = self._watches or begins
        if begins:
            self._watch.begin()
        self._bound = providers
        _last_bound = (*providers, logger_provider)
        if _early:
            recorder.put(_write_early)
        atexit.unregister(_drain_at_exit)
        atexit.register(_drain_at_exit)


def last_bound() -> tuple[object, ...] | None:
    """Return the providers that recordings went to last, given or global ones; None before the first."""
    return _last_bound


def tell_transition(transition: Transition) -> None:
    """Tell of what the guard did, on the recording thread. Takes no lock."""
    recorder.ensure_thread()
    recorder.put(partial(_write_transition, transition))


def tell_baseline(change: BaselineChange) -> None:
    """Tell that a scope of the guard has lost its baseline or found one, on the recording thread. Takes no lock."""
    recorder.ensure_thread()
    recorder.put(partial(_write_baseline, change))


def tell_canary(passed: bool) -> None:
    """Count a canary's result, on the recording thread. Takes no lock."""
    recorder.ensure_thread()
    recorder.put(partial(_count, Metrics.SPECDECODE_CANARY_RESULTS, canary_labels(passed)))


def _write_early() -> None:
    while _early:
        _write_transition(_early.popleft())


def _write_transition(transition: Transition) -> None:
    if _last_bound is None:
        _early.append(transition)
        return
    _count(Metrics.SPECDECODE_GUARD_TRANSITIONS, transition_labels(transition))
    emit_transition(_logger(_last_bound), transition)


def _write_baseline(change: BaselineChange) -> None:
    if _last_bound is not None:
        emit_baseline(_logger(_last_bound), change)


def _logger(bound: Any) -> Logger:
    logger: Logger = bound[2].get_logger(SCOPE, __version__, SCHEMA_URL)
    return logger


def _count(metric: Metric, labels: Labels) -> None:
    bound: Any = _last_bound
    if bound is not None and _listens(bound[1]):
        instruments_of(bound[1]).add(metric, 1, labels, Context())


def _settle_soon() -> None:
    """While metrics are collected: a burst that nobody adds to any more ends without another request."""
    if any_burst():
        recorder.put(settle_bursts)


def _drain_at_exit() -> None:
    recorder.put(finish_bursts)
    recorder.drain(EXIT_SECONDS)


def _listens(provider: object) -> bool:
    """Return whether a provider is more than the API's own proxy or no-op."""
    module = type(provider).__module__
    return not module.startswith(("opentelemetry.trace", "opentelemetry.metrics", "opentelemetry._logs"))


def _under_client_span(context: Context) -> bool:
    """Return whether an outer GenAI client span, of whatever instrumentation, is open in a context."""
    span: Any = get_current_span(context)
    if getattr(span, "kind", None) is SpanKind.CLIENT:
        attributes = getattr(span, "attributes", None)
        if attributes is not None and Attr.GEN_AI_OPERATION_NAME in attributes:
            return True
    util = sys.modules.get("opentelemetry.util.genai._inference_invocation")
    key = getattr(util, "CLIENT_INFERENCE_CONTEXT_KEY", None)
    return key is not None and get_value(key, context) is not None
