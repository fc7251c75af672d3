"""configure() and flush_providers(): each case in a process of its own, since global providers are set once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from otel_specdecode.telemetry.setup import flush_providers
from tests.otlp_receiver import otlp_receiver

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs the [otlp] extra")

from otel_specdecode.telemetry.resource import this_process

EMIT_ALL = """
from opentelemetry import _logs, metrics, trace
def emit():
    trace.get_tracer("t").start_span("a span").end()
    metrics.get_meter("t").create_counter("a.counter").add(3)
    _logs.get_logger("t").emit(_logs.LogRecord(timestamp=1, observed_timestamp=1, event_name="an.event", body="b"))
"""


def run(script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a script in a fresh Python without the OTEL_* variables of this process."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    finished = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", f"import logging; logging.basicConfig()\n{EMIT_ALL}\n{script}"],
        env={**clean, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished


CONFIGURE = "from otel_specdecode.telemetry.setup import configure, flush_providers\n"


def test_all_three_signals_arrive_with_the_service_name_and_nothing_private() -> None:
    with otlp_receiver() as (url, received):
        run(
            CONFIGURE + "configure(); emit(); assert flush_providers(20)",
            OTEL_EXPORTER_OTLP_ENDPOINT=url,
            OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
            OTEL_EXPORTER_OTLP_HEADERS="x-key=abc",
            OTEL_SERVICE_NAME="a-service",
            OTEL_RESOURCE_ATTRIBUTES="deployment.environment.name=test",
        )
    resources = received.resources()
    assert set(resources) == {"/v1/traces", "/v1/metrics", "/v1/logs"}
    assert received.requests["/v1/traces"][0].resource_spans[0].scope_spans[0].spans[0].name == "a span"
    metric = received.requests["/v1/metrics"][0].resource_metrics[0].scope_metrics[0].metrics[0]
    assert (metric.name, metric.sum.data_points[0].as_int) == ("a.counter", 3)
    assert received.requests["/v1/logs"][0].resource_logs[0].scope_logs[0].log_records[0].event_name == "an.event"
    assert {headers["x-key"] for headers in received.headers} == {"abc"}
    for attributes in resources.values():
        assert attributes["service.name"] == "a-service"
        assert attributes["deployment.environment.name"] == "test"
        assert set(attributes) == {
            "deployment.environment.name",
            "service.instance.id",
            "service.name",
            "telemetry.sdk.language",
            "telemetry.sdk.name",
            "telemetry.sdk.version",
            *this_process(),
        }
    assert len({attributes["service.instance.id"] for attributes in resources.values()}) == 1


ARGUMENTS = (
    "service_name='argument', endpoint='{url}/', protocol='http/protobuf', "
    "resource_attributes={{'service.version': '7'}}"
)


def test_arguments_speak_where_the_environment_is_silent_and_the_exit_delivers() -> None:
    with otlp_receiver() as (url, received):
        run(CONFIGURE + f"configure({ARGUMENTS.format(url=url)}); emit()")
    resources = received.resources()
    assert set(resources) == {"/v1/traces", "/v1/metrics", "/v1/logs"}
    assert {(each["service.name"], each["service.version"]) for each in resources.values()} == {("argument", "7")}


def test_the_environment_wins_over_arguments() -> None:
    with otlp_receiver() as (url, received):
        run(
            CONFIGURE + f"configure({ARGUMENTS.format(url='http://127.0.0.1:1')}); emit(); assert flush_providers(20)",
            OTEL_EXPORTER_OTLP_ENDPOINT=url,
            OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
            OTEL_RESOURCE_ATTRIBUTES="service.name=environment,service.version=8",
        )
    resources = received.resources()
    assert set(resources) == {"/v1/traces", "/v1/metrics", "/v1/logs"}
    assert {(each["service.name"], each["service.version"]) for each in resources.values()} == {("environment", "8")}


def test_what_the_caller_says_of_the_machine_holds_and_the_environment_wins_over_both() -> None:
    script = "configure(resource_attributes={'host.arch': 'caller', 'os.name': 'caller'}); emit()"
    with otlp_receiver() as (url, received):
        run(
            CONFIGURE + script,
            OTEL_EXPORTER_OTLP_ENDPOINT=url,
            OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
            OTEL_RESOURCE_ATTRIBUTES="os.name=environment,os.type=environment",
        )
    (told,) = {(each["host.arch"], each["os.name"], each["os.type"]) for each in received.resources().values()}
    assert told == ("caller", "environment", "environment")


def test_a_signal_that_is_switched_off_gets_no_provider() -> None:
    with otlp_receiver() as (url, received):
        run(
            CONFIGURE
            + "found = configure(); emit(); assert found.flush(20); assert found.tracer_provider is None\n"
            + "assert found.logger_provider is None; found.shutdown()",
            OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=f"{url}/v1/metrics",
            OTEL_EXPORTER_OTLP_METRICS_PROTOCOL="http/protobuf",
            OTEL_TRACES_EXPORTER="none",
            OTEL_LOGS_EXPORTER="none",
        )
    assert set(received.requests) == {"/v1/metrics"}


def test_the_console_exporter_writes_all_three_signals() -> None:
    names = {f"OTEL_{signal}_EXPORTER": "console" for signal in ("TRACES", "METRICS", "LOGS")}
    finished = run(CONFIGURE + "configure(); emit(); assert flush_providers(20)", **names)
    assert all(name in finished.stdout for name in ("a span", "a.counter", "an.event"))


def test_the_samplers_of_the_sdk_are_honoured() -> None:
    script = "configure(); print(configure().tracer_provider.sampler.get_description())"
    variables = {f"OTEL_{signal}_EXPORTER": "console" for signal in ("TRACES", "METRICS", "LOGS")}
    assert "AlwaysOffSampler" in run(CONFIGURE + script, OTEL_TRACES_SAMPLER="always_off", **variables).stdout


def test_a_second_call_gives_the_same_providers() -> None:
    run(CONFIGURE + "first = configure(); assert first and configure(service_name='x') is first; first.shutdown()")


def test_providers_that_are_already_set_stay_and_the_log_says_so_once() -> None:
    finished = run(
        CONFIGURE
        + """
from opentelemetry.sdk.trace import TracerProvider
own = TracerProvider()
trace.set_tracer_provider(own)
found = configure()
configure()
assert trace.get_tracer_provider() is own
assert found.tracer_provider is None
assert found.meter_provider is metrics.get_meter_provider()
found.shutdown()
"""
    )
    assert finished.stderr.count("leaves the provider that is already set for: traces") == 1


def test_a_disabled_sdk_sets_nothing_up() -> None:
    script = "assert configure() is None; emit(); assert flush_providers(1); import sys"
    script += "; assert 'opentelemetry.sdk.trace' not in sys.modules"
    run(CONFIGURE + script, OTEL_SDK_DISABLED="TRUE")


@pytest.mark.parametrize(
    ("variable", "value"), [("OTEL_EXPORTER_OTLP_PROTOCOL", "carrier-pigeon"), ("OTEL_LOGS_EXPORTER", "carrier-pigeon")]
)
def test_an_unknown_value_is_warned_about_and_passed_over(variable: str, value: str) -> None:
    finished = run(
        CONFIGURE + "found = configure(); assert found.tracer_provider; found.shutdown()", **{variable: value}
    )
    assert variable in finished.stderr
    assert value in finished.stderr


def test_an_unknown_protocol_as_argument_raises() -> None:
    script = "try: configure(protocol='udp')\nexcept ValueError as error: print(error)"
    assert "grpc" in run(CONFIGURE + script).stdout


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "grpc"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4317"}, "grpc"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}, "http"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "grpc"),
        ({"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "http"),
    ],
)
def test_the_protocol_of_a_signal(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str) -> None:
    from otel_specdecode.telemetry import setup

    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    (exporter,) = setup._exporters("traces", setup._Target(None, None))
    exporter.shutdown()
    assert f".proto.{expected}." in type(exporter).__module__


def test_the_missing_extra_is_named() -> None:
    script = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == "opentelemetry.sdk" or name.startswith("opentelemetry.sdk."):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
try:
    configure()
except ImportError as error:
    print(error)
"""
    assert 'pip install "otel-specdecode[otlp]"' in run(CONFIGURE + script).stdout


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_an_endpoint_that_nobody_serves_holds_up_nothing(protocol: str) -> None:
    script = """
import os, sys, time
start = time.monotonic()
configure()
emit()
configured = time.monotonic() - start
start = time.monotonic()
done = flush_providers(0.5)
print(configured, time.monotonic() - start, type(done).__name__)
sys.stdout.flush()
os._exit(0)  # the SDK's own shutdown is not what is measured here
"""
    finished = run(
        CONFIGURE + script, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1", OTEL_EXPORTER_OTLP_PROTOCOL=protocol
    )
    configured, flushed, kind = finished.stdout.split()
    assert float(configured) < 30  # imports only: nothing waits for the endpoint
    assert float(flushed) < 3
    assert kind == "bool"


class Provider:
    """A provider whose force_flush does what the test wants."""

    def __init__(self, outcome: object, hold: threading.Event | None = None) -> None:
        self.outcome = outcome
        self.hold = hold

    def force_flush(self, timeout_millis: int) -> object:
        if self.hold is not None:
            self.hold.wait(20)
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [([], True), ([True, True], True), ([None], True), ([True, False], False), ([True, RuntimeError("x")], False)],
)
def test_flush_is_true_only_if_every_provider_is_done(outcomes: list[object], expected: bool) -> None:
    assert flush_providers(10, [Provider(outcome) for outcome in outcomes]) is expected


def test_flush_passes_over_a_provider_that_cannot_flush() -> None:
    assert flush_providers(10, [object()])


def test_flush_does_not_wait_longer_than_it_was_told() -> None:
    hold = threading.Event()
    try:
        start = time.monotonic()
        assert not flush_providers(0.05, [Provider(True, hold), Provider(True, hold)])
        assert time.monotonic() - start < 5
    finally:
        hold.set()
