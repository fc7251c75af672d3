"""Whole processes: providers that are set late, forks, and the end."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(program: str) -> str:
    """Run a program in a process of its own; return what it prints."""
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


PROVIDERS = """
    import logging, os, sys
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
    from otel_specdecode.telemetry.listener import Listener
    from otel_specdecode.testing.fake import FakeClock, Script, fake_stream

    def set_providers():
        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter(formatter=lambda span: span.name + chr(10))))
        trace.set_tracer_provider(provider)
        exporter = ConsoleMetricExporter(formatter=lambda data: data.to_json(indent=None) + chr(10))
        metrics.set_meter_provider(MeterProvider([PeriodicExportingMetricReader(exporter)]))
"""


def test_a_meter_provider_that_is_set_later() -> None:
    """Runs before it are not counted; those after it are, once, active requests included."""
    printed = run(
        PROVIDERS
        + """
    from otel_specdecode.telemetry.listener import recorder
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    listener = Listener(tracer_provider=TracerProvider())
    list(fake_stream(listener, Script(tokens=3), FakeClock()))
    reader = InMemoryMetricReader()
    metrics.set_meter_provider(MeterProvider([reader]))
    stream = fake_stream(listener, Script(tokens=3), FakeClock())
    next(stream)
    recorder.drain(9)
    (resource,) = reader.get_metrics_data().resource_metrics
    found = [metric for metric in resource.scope_metrics[0].metrics if metric.unit == "{request}"]
    values = {metric.name: [point.value for point in metric.data.data_points] for metric in found}
    print(values["specdecode.request.active"], values["specdecode.request.started"])
        """
    )
    assert printed == "[1] [1]\n"


def test_everything_is_delivered_at_exit() -> None:
    """No flush, a provider set after the instrumentation: the end of the process records and exports all."""
    printed = run(
        PROVIDERS
        + """
    listener = Listener()
    assert listener.admit() is None
    set_providers()
    for _ in range(50):
        list(fake_stream(listener, Script(tokens=3), FakeClock()))
        """
    )
    assert printed.count("text_completion target\n") == 50
    assert '"name": "specdecode.request.started"' in printed


@pytest.mark.skipif(sys.platform == "win32", reason="no fork on this system")
def test_a_fork_in_the_middle_of_a_stream() -> None:
    """The child never ends its parent's span, has no active request of it, and records its own."""
    printed = run(
        PROVIDERS
        + """
    import warnings
    warnings.simplefilter("ignore")
    from otel_specdecode.telemetry.listener import recorder
    from otel_specdecode.testing import Telemetry
    telemetry = Telemetry()
    listener = telemetry.listener()
    stream = fake_stream(listener, Script(tokens=600), FakeClock())
    next(stream)
    telemetry.spans()
    child = os.fork()
    if child == 0:
        list(stream)
        list(fake_stream(listener, Script(tokens=3), FakeClock()))
        spans = telemetry.spans()
        tokens = telemetry.total("specdecode.decode.tokens")
        print("child", len(spans), telemetry.total("specdecode.request.active"), tokens, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    stream.close()
    print("parent", len(telemetry.spans()), telemetry.total("specdecode.request.active"))
        """
    )
    assert "child 1 0 2" in printed
    assert "parent 1 0" in printed
