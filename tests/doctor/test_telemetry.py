"""What the environment makes of telemetry, as checks."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from otel_specdecode.doctor.checks import Check
from otel_specdecode.doctor.destinations import Destination
from otel_specdecode.doctor.otlp import Verdict
from otel_specdecode.doctor.telemetry import telemetry_checks

INSTALLED = {"opentelemetry-sdk": "1.40.0", "opentelemetry-api": "1.40.0", "opentelemetry-exporter-otlp": "1.40.0"}
HTTP = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
GRPC = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317"}


def checked(
    environ: Mapping[str, str],
    verdict: Verdict | Exception = Verdict("accepted", "200"),  # noqa: B008 - it is frozen
    installed: Mapping[str, str] = INSTALLED,
) -> dict[str, Check]:
    def answer(_: Destination) -> Verdict:
        if isinstance(verdict, Exception):
            raise verdict
        return verdict

    return {check.id: check for check in telemetry_checks(environ, installed.get, answer)}


def test_an_endpoint_that_takes_every_signal_is_fine() -> None:
    checks = checked({**HTTP, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"})
    assert checks["otlp.logs"].detail == "http://collector:4318/v1/logs over HTTP: accepted"
    assert {check.status for check in checks.values()} == {"ok"}


@pytest.mark.parametrize(
    ("environ", "spoken", "fix"),
    [
        (
            {**GRPC, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
            "speaks gRPC, and HTTP was spoken to it",
            "set OTEL_EXPORTER_OTLP_PROTOCOL=grpc",
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://vendor.example"},
            "speaks OTLP over HTTP, and gRPC was spoken to it",
            "set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
        ),
        (
            {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:1", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"},
            "speaks OTLP over HTTP, and gRPC was spoken to it",
            (
                "set OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf; over HTTP "
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT has to end in /v1/traces"
            ),
        ),
    ],
)
def test_the_wrong_protocol_is_broken_and_the_fix_is_the_variable_to_set(
    environ: dict[str, str], spoken: str, fix: str
) -> None:
    check = checked(environ, Verdict("wrong_protocol"))["otlp.traces"]
    assert (check.status, check.fix) == ("error", fix)
    assert spoken in check.detail


@pytest.mark.parametrize("outcome", ["unreachable", "refused", "not_otlp"])
def test_only_an_endpoint_that_somebody_set_can_be_broken(outcome: str) -> None:
    verdict = Verdict(outcome)  # type: ignore[arg-type]
    assert checked(HTTP, verdict)["otlp.metrics"].status == "error"
    assert checked({}, verdict)["otlp.metrics"].status == "warn"


def test_a_sender_that_is_not_known_is_pointed_to_the_headers() -> None:
    check = checked(HTTP, Verdict("refused", "401"))["otlp.traces"]
    assert check.detail.endswith("refused (401)")
    assert "OTEL_EXPORTER_OTLP_HEADERS" in check.fix


def test_no_secret_comes_out_of_any_check() -> None:
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "https://me:hunter2@collector/x?token=hunter2",
        "OTEL_EXPORTER_OTLP_HEADERS": "api-key=hunter2",
    }
    for outcome in ("accepted", "refused", "unreachable", "wrong_protocol", "not_otlp", "bad_setting", "empty_refused"):
        assert "hunter2" not in str(checked(environ, Verdict(outcome)))


def test_a_signal_that_is_switched_off_or_goes_elsewhere_is_not_asked_for() -> None:
    environ = {**HTTP, "OTEL_LOGS_EXPORTER": "none", "OTEL_TRACES_EXPORTER": "console"}
    checks = checked(environ, Verdict("refused"))
    assert checks["otlp.logs"].detail == "switched off (OTEL_LOGS_EXPORTER)"
    assert checks["otlp.traces"].detail == "go to: console (OTEL_TRACES_EXPORTER)"
    assert checks["otlp.metrics"].status == "error"


def test_an_sdk_that_is_switched_off_is_told_and_nothing_is_asked() -> None:
    checks = checked({**HTTP, "OTEL_SDK_DISABLED": "True"}, Verdict("refused"))
    assert checks["otel.sdk"].status == "warn"
    assert {checks[f"otlp.{signal}"].status for signal in ("traces", "metrics", "logs")} == {"unknown"}


def test_without_an_sdk_a_set_endpoint_is_broken_and_an_unset_one_is_not() -> None:
    api = {"opentelemetry-api": "1.40.0"}
    check = checked(HTTP, installed=api)["otel.sdk"]
    assert (check.status, check.fix) == ("error", 'pip install "otel-specdecode[otlp]"')
    assert checked({}, installed=api)["otel.sdk"].status == "warn"
    assert checked(HTTP, installed=api)["otlp.traces"].status == "unknown"


def test_an_exporter_that_is_not_installed_is_told_with_the_extra() -> None:
    check = checked(HTTP, ImportError())["otlp.traces"]
    assert (check.status, check.fix) == ("error", 'pip install "otel-specdecode[otlp]"')


def test_a_bad_timeout_is_told_by_its_variable() -> None:
    check = checked({**HTTP, "OTEL_EXPORTER_OTLP_TIMEOUT": "soon"})["otlp.traces"]
    assert check.status == "error"
    assert "OTEL_EXPORTER_OTLP_TIMEOUT" in check.detail


@pytest.mark.parametrize(
    ("said", "status", "capture"),
    [
        ("", "ok", "NO_CONTENT"),
        ("no_content", "ok", "NO_CONTENT"),
        ("true", "warn", "NO_CONTENT"),
        ("span_only", "warn", "SPAN_ONLY"),
    ],
)
def test_content_that_leaves_the_process_and_a_value_that_is_none_are_told(
    said: str, status: str, capture: str
) -> None:
    check = checked({"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": said})["otel.content"]
    assert (check.status, check.facts) == (status, {"capture": capture})


def test_a_timeout_that_is_too_long_is_a_warning_beside_the_answer() -> None:
    checks = checked({**HTTP, "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "3600", "OTEL_EXPORTER_OTLP_TIMEOUT": "5"})
    assert checks["otlp.traces"].status == "ok"
    assert checks["otel.timeout"].status == "warn"
    assert "up to 3600 s" in checks["otel.timeout"].detail
    assert "otel.timeout" not in checked(HTTP)


def test_a_header_that_is_not_sent_is_told_by_its_variable_alone() -> None:
    check = checked({**HTTP, "OTEL_EXPORTER_OTLP_HEADERS": "hunter2,a=b"})["otel.headers"]
    assert (check.status, check.facts) == ("warn", {"OTEL_EXPORTER_OTLP_HEADERS": 1})
    assert "hunter2" not in str(check)


@pytest.mark.parametrize(
    "bad",
    [
        {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://[::1"},
        {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://a\x1b[31m"},
        {"OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "1e300"},
    ],
)
def test_one_bad_variable_is_broken_and_hides_nothing_else(bad: dict[str, str]) -> None:
    checks = checked({**HTTP, **bad})
    assert (checks["otlp.traces"].status, checks["otlp.logs"].status) == ("error", "ok")
    assert checks["otlp.traces"].fix
    assert "\x1b" not in checks["otel.variables"].detail


def test_who_sets_it_up_follows_from_the_environment() -> None:
    assert "otel_specdecode.configure()" in checked({})["otel.setup"].detail
    under = {"PYTHONPATH": "/venv/opentelemetry/instrumentation/auto_instrumentation:/src"}
    assert checked(under)["otel.setup"].detail == "opentelemetry-instrument does, in this environment"


HTTP_PORT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}


@pytest.mark.parametrize(
    ("environ", "status"),
    [
        (HTTP_PORT, "warn"),
        ({**HTTP_PORT, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, "ok"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4317"}, "ok"),
        ({**HTTP_PORT, "OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"}, "warn"),
        ({}, "ok"),
    ],
)
def test_an_endpoint_that_the_two_ways_to_set_up_speak_different_protocols_to(
    environ: dict[str, str], status: str
) -> None:
    pytest.importorskip("opentelemetry.distro", reason="needs the [zero-code] extra")
    check = checked(environ)["otel.setup"]
    assert check.status == status
    assert check.fix == ("set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf" if status == "warn" else "")
