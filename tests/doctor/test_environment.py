"""Variables are named, and no secret among their values is shown."""

from __future__ import annotations

import pytest

from otel_specdecode.doctor.environment import host_and_port, public_url, shown_variables

SECRET = "hunter2"


def test_what_is_no_secret_is_shown_and_the_rest_is_only_named() -> None:
    shown = shown_variables(
        {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"https://user:{SECRET}@otlp.example/v1?key={SECRET}",
            "OTEL_EXPORTER_OTLP_HEADERS": f"api-key={SECRET}",
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS": f"api-key={SECRET}",
            "OTEL_EXPORTER_OTLP_CLIENT_KEY": f"/home/{SECRET}/key.pem",
            "OTEL_RESOURCE_ATTRIBUTES": f"team=x,token={SECRET}",
            "OTEL_SOMETHING_NEW": SECRET,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
            "OTEL_METRICS_EXPORTER": "console",
            "OTEL_SERVICE_NAME": "chat",
            "OTEL_SPECDECODE_GENAI_METRICS": "both",
            "OTEL_SPECDECODE_DECLARATION": f"/home/{SECRET}/run.json",
            "OTEL_SPECDECODE_RUN_ID": "a\x1b[2J\nOTEL_FORGED=1",
            "PATH": SECRET,
        }
    )
    assert SECRET not in str(shown)
    assert shown == {
        "OTEL_EXPORTER_OTLP_CLIENT_KEY": "(set)",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "https://otlp.example/v1",
        "OTEL_EXPORTER_OTLP_HEADERS": "(set)",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "(set)",
        "OTEL_METRICS_EXPORTER": "console",
        "OTEL_RESOURCE_ATTRIBUTES": "team=(set), token=(set)",
        "OTEL_SERVICE_NAME": "chat",
        "OTEL_SOMETHING_NEW": "(set)",
        "OTEL_SPECDECODE_DECLARATION": "(set)",
        "OTEL_SPECDECODE_GENAI_METRICS": "both",
        "OTEL_SPECDECODE_RUN_ID": r"a\x1b[2J\x0aOTEL_FORGED=1",
    }


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://localhost:4318", "http://localhost:4318"),
        ("https://me:pw@host/v1/traces", "https://host/v1/traces"),
        ("https://me:p@w@host:1/x", "https://host:1/x"),
        ("collector:4317", "collector:4317"),
        ("me:pw@collector:4317", "collector:4317"),
        ("http://me:p/w@host:1/x", "http://host:1/x"),
        ("http://me:p#w@host:1/x", "http://host:1/x"),
        ("http://me:p?w@host:1/x?token=y", "http://host:1/x"),
        ("me:p://w@host:1", "host:1"),
        ("http://[::1]:4318/v1/logs#x", "http://[::1]:4318/v1/logs"),
    ],
)
def test_an_address_is_shown_without_user_password_query_and_fragment(url: str, shown: str) -> None:
    assert public_url(url) == shown


@pytest.mark.parametrize(
    ("url", "target"),
    [("http://a:4317", "a:4317"), ("a:4317", "a:4317"), ("https://a:1/p", "a:1"), ("localhost", "localhost")],
)
def test_a_grpc_target_is_host_and_port_with_or_without_a_scheme(url: str, target: str) -> None:
    assert host_and_port(url) == target
