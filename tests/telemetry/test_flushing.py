"""Delivering what is recorded so far."""

from __future__ import annotations

import threading
from contextlib import closing

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import otel_specdecode
from otel_specdecode.telemetry.listener import Listener
from otel_specdecode.testing.fake import FakeClock, Script, fake_stream


def test_given_providers_are_flushed_too() -> None:
    """Providers that were given to instrument() need not be the global ones: flush() has them export as well."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=3_600_000))
    with closing(Listener(tracer_provider=provider)) as listener:
        list(fake_stream(listener, Script(tokens=3), FakeClock()))
    assert exporter.get_finished_spans() == ()
    assert otel_specdecode.flush(20)
    assert len(exporter.get_finished_spans()) == 1
    provider.shutdown()


def test_a_provider_that_hangs_does_not_hold_up_the_caller() -> None:
    """flush() returns False in time."""
    release = threading.Event()

    class Hanging(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            release.wait(20)

        def force_flush(self, timeout_millis: int = 30_000) -> bool:
            return True

    provider = TracerProvider()
    provider.add_span_processor(Hanging())
    with closing(Listener(tracer_provider=provider)) as listener:
        list(fake_stream(listener, Script(tokens=3), FakeClock()))
    assert not otel_specdecode.flush(0.2)
    release.set()
    assert otel_specdecode.flush(20)
    provider.shutdown()
