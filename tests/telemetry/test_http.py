"""An HTTP request as the conventions want it: span, context and duration."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry.context import get_current
from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.propagate import get_global_textmap, set_global_textmap
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from otel_specdecode.generation.observer import HttpRequest
from otel_specdecode.telemetry.http import EXCLUDED_URLS
from otel_specdecode.telemetry.listener import Listener
from otel_specdecode.telemetry.names import Attr
from otel_specdecode.testing.capture import Telemetry
from otel_specdecode.testing.checker import assert_conformant

REQUEST = HttpRequest(
    method="POST",
    path="/v1/completions",
    route="/v1/completions",
    version="1.1",
    headers={"host": "models.example:8443", "user-agent": "curl/8", "authorization": "Bearer hidden"},
    peer=("10.0.0.7", 50000),
    local=("10.0.0.1", 8080),
)
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry()


@pytest.fixture
def listener(telemetry: Telemetry) -> Iterator[Listener]:
    listener = telemetry.listener()
    yield listener
    listener.close()


def served(
    listener: Listener, request: HttpRequest, status: int | None = 200, failure: str | None = None, gone: bool = False
) -> None:
    exchange = listener.serve(request)
    assert exchange is not None
    exchange.finish(status, failure, gone)


def test_a_request_has_what_the_conventions_ask_for_and_nothing_else(listener: Listener, telemetry: Telemetry) -> None:
    served(listener, REQUEST)
    span = telemetry.span()
    assert (span.name, span.kind, span.status.status_code) == (
        "POST /v1/completions",
        SpanKind.SERVER,
        StatusCode.UNSET,
    )
    assert dict(span.attributes or {}) == {
        "http.request.method": "POST",
        "http.route": "/v1/completions",
        "http.response.status_code": 200,
        "url.path": "/v1/completions",
        "url.scheme": "http",
        "server.address": "models.example",
        "server.port": 8443,
        "client.address": "10.0.0.7",
        "network.peer.address": "10.0.0.7",
        "network.peer.port": 50000,
        "network.protocol.version": "1.1",
        "user_agent.original": "curl/8",
    }
    (point,) = telemetry.points("http.server.request.duration")
    assert point.labels == {
        "http.request.method": "POST",
        "http.route": "/v1/completions",
        "http.response.status_code": 200,
        "url.scheme": "http",
        "network.protocol.version": "1.1",
    }
    assert span.end_time is not None
    assert span.start_time is not None
    assert point.total == pytest.approx((span.end_time - span.start_time) / 1e9)
    assert_conformant(spans=telemetry.spans(), metrics=telemetry.metrics_data())


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"headers": {"host": "[::1]:80"}}, {"server.address": "::1", "server.port": 80}),
        ({"headers": {"host": "models.example"}}, {"server.address": "models.example", "server.port": None}),
        ({"headers": {}}, {"server.address": "10.0.0.1", "server.port": 8080, "user_agent.original": None}),
        ({"headers": {"host": "models.example:65536"}}, {"server.address": "models.example", "server.port": None}),
        ({"method": "", "version": ""}, {"http.request.method": "_OTHER", "http.request.method_original": ""}),
        ({"headers": {"host": "a:b:c"}}, {"server.address": "10.0.0.1", "server.port": 8080}),
        ({"headers": {}, "local": None}, {"server.address": None, "server.port": None}),
        ({"peer": None}, {"client.address": None, "network.peer.address": None, "network.peer.port": None}),
        ({"version": "9.9 and more"}, {"network.protocol.version": None}),
        ({"method": "BREW"}, {"http.request.method": "_OTHER", "http.request.method_original": "BREW"}),
    ],
)
def test_what_a_client_leaves_out_or_makes_up(
    change: dict[str, Any], expected: dict[str, Any], listener: Listener, telemetry: Telemetry
) -> None:
    served(listener, replace(REQUEST, **change))
    found = dict(telemetry.span().attributes or {})
    assert {key: found.get(key) for key in expected} == expected


def test_no_label_is_the_clients_to_choose_freely(listener: Listener, telemetry: Telemetry) -> None:
    for number in range(20):
        made_up = {"path": f"/p/{number}", "route": None, "version": str(number), "method": f"M{number}"}
        served(listener, replace(REQUEST, **made_up, headers={"host": f"h{number}:{number}"}), 404)
    (point,) = telemetry.points("http.server.request.duration")
    assert point.value == 20
    assert telemetry.spans()[0].name == "HTTP"


@pytest.mark.parametrize(
    ("status", "failure", "gone", "error", "code"),
    [
        (204, None, False, None, StatusCode.UNSET),
        (404, None, False, None, StatusCode.UNSET),
        (503, None, False, "503", StatusCode.ERROR),
        (200, "BrokenPipeError", True, "BrokenPipeError", StatusCode.UNSET),
        (200, "ValueError", False, "ValueError", StatusCode.ERROR),
        (None, "KeyError", False, "KeyError", StatusCode.ERROR),
        (None, None, False, None, StatusCode.UNSET),
    ],
)
def test_only_what_the_server_did_wrong_is_an_error(
    status: int | None,
    failure: str | None,
    gone: bool,
    error: str | None,
    code: StatusCode,
    listener: Listener,
    telemetry: Telemetry,
) -> None:
    served(listener, REQUEST, status, failure, gone)
    span = telemetry.span()
    (point,) = telemetry.points("http.server.request.duration")
    assert span.status.status_code is code
    for found in (dict(span.attributes or {}), point.labels):
        assert (found.get(Attr.ERROR_TYPE), found.get(Attr.HTTP_RESPONSE_STATUS_CODE)) == (error, status)
    assert_conformant(spans=telemetry.spans(), metrics=telemetry.metrics_data())


def test_the_clients_context_is_the_threads_until_the_answer_is_out(listener: Listener, telemetry: Telemetry) -> None:
    before = get_current()
    sent = {"traceparent": f"00-{TRACE}-{PARENT}-01", "baggage": "tenant.id=acme"}
    exchange = listener.serve(replace(REQUEST, headers=sent))
    assert exchange is not None
    assert f"{trace.get_current_span().get_span_context().trace_id:032x}" == TRACE
    assert baggage.get_baggage("tenant.id") == "acme"
    exchange.finish(200, None, False)
    assert get_current() == before
    parent = telemetry.span().parent
    assert parent is not None
    assert f"{parent.span_id:016x}" == PARENT


def test_with_no_propagator_a_request_begins_a_trace_of_its_own(listener: Listener, telemetry: Telemetry) -> None:
    """`OTEL_PROPAGATORS=none`: extracting then gives no context at all."""
    before = get_global_textmap()
    set_global_textmap(CompositePropagator([]))
    try:
        served(listener, replace(REQUEST, headers={"traceparent": f"00-{TRACE}-{PARENT}-01"}))
    finally:
        set_global_textmap(before)
    span = telemetry.span()
    assert span.parent is None
    assert f"{span.context.trace_id:032x}" != TRACE
    assert telemetry.total("http.server.request.duration") == 1


def test_a_duration_is_recorded_of_an_unsampled_request_too() -> None:
    telemetry = Telemetry(ALWAYS_OFF)
    listener = telemetry.listener()
    try:
        served(listener, REQUEST)
    finally:
        listener.close()
    assert telemetry.spans() == ()
    assert telemetry.total("http.server.request.duration") == 1


def test_suppressed_or_closed_there_is_no_exchange(listener: Listener, telemetry: Telemetry) -> None:
    with suppress_instrumentation():
        assert listener.serve(REQUEST) is None
    listener.close()
    assert listener.serve(REQUEST) is None
    assert telemetry.spans() == ()


@pytest.mark.parametrize(
    ("variables", "excluded"),
    [
        ({}, []),
        ({EXCLUDED_URLS[1]: "health"}, ["/health"]),
        ({EXCLUDED_URLS[0]: "8443/v1/models, health"}, ["/health", "/v1/models/x"]),
        ({EXCLUDED_URLS[0]: "^http://models.example:8443/health$"}, ["/health"]),
        ({EXCLUDED_URLS[0]: "^/health"}, []),
        ({EXCLUDED_URLS[0]: "", EXCLUDED_URLS[1]: "health"}, []),
        ({EXCLUDED_URLS[0]: "("}, []),
    ],
)
def test_urls_that_are_excluded(
    variables: dict[str, str], excluded: list[str], telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    listener = telemetry.listener()
    try:
        paths = ("/health", "/v1/models/x", "/v1/completions")
        exchanges = {path: listener.serve(replace(REQUEST, path=path)) for path in paths}
        for exchange in reversed(exchanges.values()):
            if exchange is not None:
                exchange.finish(200, None, False)
    finally:
        listener.close()
    assert [path for path, exchange in exchanges.items() if exchange is None] == excluded


@pytest.mark.parametrize(
    ("local", "url"),
    [(("10.0.0.1", 8080), "http://10.0.0.1:8080/v1/completions"), (("::1", 80), "http://[::1]:80/v1/completions")],
)
def test_without_a_host_a_url_is_that_of_the_connection(
    local: tuple[str, int], url: str, telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(EXCLUDED_URLS[0], f"^{re.escape(url)}$")
    listener = telemetry.listener()
    try:
        assert listener.serve(replace(REQUEST, headers={}, local=local)) is None
    finally:
        listener.close()
