"""Whole processes: providers that are set late, forks, and the end."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from tests.otlp_receiver import Received, otlp_receiver

ROOT = Path(__file__).parents[2]


def run(program: str, *launcher: str, **variables: str) -> str:
    """Run a program in a process of its own, without the OTEL_* variables of this one; return what it prints."""
    command = [*launcher, sys.executable, "-c", textwrap.dedent(program)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")} | variables
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT, env=environment, check=False)
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


ZERO_CODE = (str(Path(sys.executable).parent / "opentelemetry-instrument"),)
THE_SDK_RENEWS = tuple(map(int, version("opentelemetry-sdk").split(".")[:2])) >= (1, 44)

COUNT = """
    import multiprocessing, os, warnings
    from opentelemetry import _logs, metrics, trace
    from otel_specdecode.telemetry.setup import flush_providers
    warnings.simplefilter("ignore")
    counter = metrics.get_meter("t").create_counter("a.counter")
    tracer, logger = trace.get_tracer("t"), _logs.get_logger("t")

    def emit(number):
        counter.add(number)
        tracer.start_span("a span").end()
        logger.emit(_logs.LogRecord(timestamp=1, observed_timestamp=1, body="b"))
        assert flush_providers(20)
"""
FORK = """
    child = os.fork()
    if child == 0:
        emit(5)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    emit(2)
"""
MULTIPROCESSING = """
    child = multiprocessing.get_context("fork").Process(target=emit, args=(5,))
    child.start()
    child.join()
    assert child.exitcode == 0
    emit(2)
"""
CONFIGURED = "    import otel_specdecode\n    otel_specdecode.configure()\n"


def instances(received: Received) -> dict[str, dict[str, Any]]:
    """By service.instance.id: the signals that came from it, and its counter as it came last."""
    found: dict[str, dict[str, Any]] = {}
    for path, requests in received.requests.items():
        for request in requests:
            ((_, (sent,)),) = request.ListFields()
            attributes = {pair.key: pair.value.string_value for pair in sent.resource.attributes}
            seen = found.setdefault(attributes["service.instance.id"], {"signals": set()})
            seen["signals"].add(path.rpartition("/")[2])
            for scoped in getattr(sent, "scope_metrics", ()):
                for metric in scoped.metrics:
                    if metric.name == "a.counter":
                        (point,) = metric.sum.data_points
                        seen["counter"] = point.as_int
    return found


def over_http(url: str) -> dict[str, str]:
    """Where to send. Not over gRPC, which does not bear a fork."""
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}


@pytest.mark.skipif(sys.platform == "win32", reason="no fork on this system")
@pytest.mark.parametrize("fork", [FORK, MULTIPROCESSING], ids=["os.fork", "multiprocessing"])
@pytest.mark.parametrize("launcher", [(), ZERO_CODE], ids=["configure", "zero-code"])
def test_a_forked_process_has_an_instance_id_and_counters_of_its_own(launcher: tuple[str, ...], fork: str) -> None:
    """With `opentelemetry-instrument` the SDK alone sets up what there is: those before 1.44 know no fork."""
    if launcher:
        pytest.importorskip("opentelemetry.distro", reason="needs the [zero-code] extra")
        if not THE_SDK_RENEWS:
            pytest.skip("the id of a program's own SDK is renewed by opentelemetry-sdk 1.44 and later")
    with otlp_receiver() as (url, received):
        run(("" if launcher else CONFIGURED) + COUNT + fork, *launcher, **over_http(url))
    found = instances(received)
    everything = {"traces", "metrics", "logs"}
    assert sorted((each["counter"], each["signals"]) for each in found.values()) == [(2, everything), (5, everything)]


@pytest.mark.skipif(sys.platform == "win32", reason="no fork on this system")
def test_an_instance_id_that_the_user_sets_is_that_of_the_process_that_was_started() -> None:
    """A process that it forks is another instance, so it has another id."""
    with otlp_receiver() as (url, received):
        run(CONFIGURED + COUNT + FORK, OTEL_RESOURCE_ATTRIBUTES="service.instance.id=mine", **over_http(url))
    counters = {name: each["counter"] for name, each in instances(received).items()}
    assert counters.pop("mine") == 2
    assert list(counters.values()) == [5]


def test_two_processes_have_two_instance_ids() -> None:
    with otlp_receiver() as (url, received):
        for _ in range(2):
            run(CONFIGURED + COUNT + "    emit(1)", **over_http(url))
    assert [each["counter"] for each in instances(received).values()] == [1, 1]


def test_zero_code_with_the_detector_tells_the_machine() -> None:
    """Found by its entry point, as `opentelemetry-instrument` finds it."""
    pytest.importorskip("opentelemetry.distro", reason="needs the [zero-code] extra")
    program = """
    from opentelemetry import trace
    told = trace.get_tracer_provider().resource.attributes
    print("told", told["specdecode.machine_profile"], told["specdecode.run_id"], "host.name" in told)
    """
    printed = run(
        program,
        *ZERO_CODE,
        OTEL_EXPERIMENTAL_RESOURCE_DETECTORS="otel,specdecode",
        OTEL_SPECDECODE_MACHINE_PROFILE="a-studio",
        OTEL_SPECDECODE_RUN_ID="canary-7",
        **dict.fromkeys(("OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_LOGS_EXPORTER"), "none"),
    )
    assert "told a-studio canary-7 False\n" in printed
