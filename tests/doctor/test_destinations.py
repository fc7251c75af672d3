"""Where doctor asks is where configure() would send: held against the exporters that it builds."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

pytest.importorskip("opentelemetry.sdk", reason="needs the [otlp] extra")
pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc", reason="needs the [otlp] extra")

from otel_specdecode.doctor.destinations import (
    SIGNALS,
    Destination,
    SettingError,
    Signal,
    destination,
    exporter_names,
    malformed_headers,
)
from otel_specdecode.doctor.environment import host_and_port
from otel_specdecode.telemetry import setup

ENVIRONMENTS: list[dict[str, str]] = [
    {},
    {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"},
    {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318/"},
    {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317"},
    {"OTEL_EXPORTER_OTLP_ENDPOINT": "127.0.0.1:4317"},
    {"OTEL_EXPORTER_OTLP_ENDPOINT": "127.0.0.1:4317", "OTEL_EXPORTER_OTLP_INSECURE": "true"},
    {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317", "OTEL_EXPORTER_OTLP_INSECURE": "false"},
    {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://127.0.0.1:1/base", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
    {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
    {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
    {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "pigeon"},
    {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/own/path",
        "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL": "http/protobuf",
    },
    {"OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%20b,X-Team=c", "OTEL_EXPORTER_OTLP_METRICS_HEADERS": "only=this"},
    {"OTEL_EXPORTER_OTLP_TIMEOUT": "3", "OTEL_EXPORTER_OTLP_LOGS_TIMEOUT": "4"},
]


@pytest.fixture
def environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    for name in ("ENDPOINT", "PROTOCOL", "HEADERS", "TIMEOUT", "INSECURE", "CERTIFICATE"):
        for signal in ("", "TRACES_", "METRICS_", "LOGS_"):
            monkeypatch.delenv(f"OTEL_EXPORTER_OTLP_{signal}{name}", raising=False)
    values: Mapping[str, str] = request.param
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    return values


@pytest.mark.parametrize("environment", ENVIRONMENTS, indirect=True)
@pytest.mark.parametrize("signal", SIGNALS)
def test_it_is_where_the_exporter_would_send(environment: Mapping[str, str], signal: Signal) -> None:
    (exporter,) = setup.exporters(signal)
    try:
        found = destination(signal, environment)
        assert ("grpc" in type(exporter).__module__) == (found.protocol == "grpc")
        if found.protocol == "grpc":
            assert host_and_port(found.url) == exporter._endpoint
            assert found.insecure == getattr(exporter, "_insecure", found.insecure)  # older ones do not keep it
            assert found.headers.items() <= dict(exporter._headers).items()
            assert found.timeout == exporter._timeout
        else:
            assert found.url == exporter._endpoint
    finally:
        exporter.shutdown()


def test_the_variables_that_decided_are_named() -> None:
    environ = {"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://a", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
    found = destination("logs", environ)
    assert found.endpoint_variable == "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT"
    assert found.protocol_variable == "OTEL_EXPORTER_OTLP_PROTOCOL"
    assert destination("traces", environ).endpoint_variable == ""


def test_a_timeout_that_is_no_number_is_told_by_its_variable_alone() -> None:
    with pytest.raises(SettingError, match="OTEL_EXPORTER_OTLP_TIMEOUT is not a number of seconds"):
        destination("traces", {"OTEL_EXPORTER_OTLP_TIMEOUT": "soon"})


@pytest.mark.parametrize("said", ["1e12", "1e300", "nan", "inf", "0", "-1"])
def test_a_timeout_that_nobody_can_wait_for_is_a_setting_to_correct(said: str) -> None:
    with pytest.raises(SettingError, match="OTEL_EXPORTER_OTLP_TIMEOUT is not a number of seconds that can") as raised:
        destination("traces", {"OTEL_EXPORTER_OTLP_TIMEOUT": said})
    assert "such as 10" in raised.value.fix


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
@pytest.mark.parametrize(
    "endpoint",
    [
        "http://[::1",
        "http://a\x1b[31m:4318",
        "http://a b",
        "http://127.0.0.1:99999",
        "http://127.0.0.1:port",
        "http://127.0.0.1:0",
        "127.0.0.1:99999",
        "http://me:hun/ter2@a:1",
        "http://me:hun#ter2@a:1",
    ],
)
def test_an_endpoint_that_is_no_address_is_a_setting_to_correct(endpoint: str, protocol: str) -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
    with pytest.raises(SettingError, match=r"^OTEL_EXPORTER_OTLP_ENDPOINT ") as raised:
        destination("traces", environ)
    assert raised.value.fix == "correct OTEL_EXPORTER_OTLP_ENDPOINT"
    assert "ter2" not in str(raised.value)


@pytest.mark.parametrize("endpoint", ["http://[::1]:4317", "[::1]:4317", "unix:///run/otel", "dns:///a:4317", "a"])
def test_other_ways_to_write_an_address_are_left_alone(endpoint: str) -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    assert destination("traces", environ).url == endpoint


def test_a_user_in_the_endpoint_is_refused_over_grpc_which_cannot_send_it() -> None:
    with pytest.raises(SettingError, match="names a user, which gRPC cannot send"):
        destination("traces", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://me:hunter2@a:4317"})


def test_a_header_that_is_not_written_as_name_and_value_is_counted_and_not_said(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    environ = {
        "OTEL_EXPORTER_OTLP_HEADERS": "hunter2,api-key=a, ,=hunter2",
        "OTEL_EXPORTER_OTLP_LOGS_HEADERS": "api-key=b",
    }
    assert malformed_headers(environ) == {"OTEL_EXPORTER_OTLP_HEADERS": 2}
    assert destination("traces", environ).headers == {"api-key": "a"}
    assert "hunter2" not in caplog.text + "".join(capfd.readouterr())


def test_headers_do_not_show_in_a_destination() -> None:
    found: Destination = destination("traces", {"OTEL_EXPORTER_OTLP_HEADERS": "api-key=hunter2"})
    assert found.headers == {"api-key": "hunter2"}
    assert "hunter2" not in repr(found)


@pytest.mark.parametrize(
    ("said", "names"),
    [(None, ["otlp"]), ("", ["otlp"]), ("none", []), ("otlp, console", ["otlp", "console"]), ("OTLP", ["otlp"])],
)
def test_a_signal_goes_to_the_exporters_that_its_variable_names(said: str | None, names: list[str]) -> None:
    environ = {} if said is None else {"OTEL_TRACES_EXPORTER": said}
    assert exporter_names("traces", environ) == names
