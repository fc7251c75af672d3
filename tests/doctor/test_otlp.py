"""Whether an endpoint takes each signal, asked of real servers over HTTP and gRPC."""

from __future__ import annotations

import time
from typing import Any

import pytest

grpc = pytest.importorskip("grpc", reason="needs the [otlp] extra")
pytest.importorskip("opentelemetry.proto", reason="needs the [otlp] extra")

from otel_specdecode.doctor.destinations import SIGNALS, Signal, destination  # noqa: E402
from otel_specdecode.doctor.otlp import Verdict, ask  # noqa: E402
from tests.doctor.servers import free_port, grpc_server, http_server, raw_server  # noqa: E402
from tests.otlp_receiver import otlp_receiver  # noqa: E402

BOTH = pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])


def asked(url: str, protocol: str, signal: Signal = "traces", **settings: str) -> Verdict:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
    return ask(destination(signal, environ | {f"OTEL_EXPORTER_OTLP_{name}": text for name, text in settings.items()}))


def test_a_receiver_over_http_accepts_each_signal_and_gets_nothing_to_keep() -> None:
    with otlp_receiver() as (url, received):
        assert {asked(url, "http/protobuf", signal) for signal in SIGNALS} == {Verdict("accepted", "200")}
        assert sorted(received.requests) == ["/v1/logs", "/v1/metrics", "/v1/traces"]
        assert all(not request.ListFields() for requests in received.requests.values() for request in requests)


def test_a_receiver_over_grpc_accepts_each_signal_and_gets_nothing_to_keep() -> None:
    with grpc_server() as (port, received):
        url = f"http://127.0.0.1:{port}"
        assert {asked(url, "grpc", signal) for signal in SIGNALS} == {Verdict("accepted", "OK")}
        assert sorted(received.paths) == [
            "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
            "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
        ]
        assert received.bodies == [b"", b"", b""]


def test_headers_are_sent_over_both() -> None:
    with otlp_receiver() as (url, received):
        asked(url, "http/protobuf", HEADERS="api-key=k%201")
        assert received.headers[0]["api-key"] == "k 1"
    with grpc_server() as (port, called):
        asked(f"http://127.0.0.1:{port}", "grpc", HEADERS="API-Key=k1")
        assert called.headers[0]["api-key"] == "k1"


def test_grpc_spoken_to_an_http_port_is_told_from_a_port_where_nothing_is() -> None:
    with otlp_receiver() as (url, _):
        assert asked(url, "grpc").outcome == "wrong_protocol"


def test_http_spoken_to_a_grpc_port_is_told_from_a_port_where_nothing_is() -> None:
    with grpc_server() as (port, _):
        assert asked(f"http://127.0.0.1:{port}", "http/protobuf").outcome == "wrong_protocol"


@BOTH
def test_a_port_on_which_nothing_listens_is_unreachable(protocol: str) -> None:
    with free_port() as port:
        assert asked(f"http://127.0.0.1:{port}", protocol, TIMEOUT="5").outcome == "unreachable"


def test_a_receiver_that_does_not_know_the_sender_refuses_with_its_status() -> None:
    def refuse(context: Any) -> None:
        context.abort(grpc.StatusCode.UNAUTHENTICATED, "token hunter2 is bad")

    with grpc_server(refuse) as (port, _):
        verdict = asked(f"http://127.0.0.1:{port}", "grpc")
    assert verdict == Verdict("refused", "UNAUTHENTICATED")
    with http_server({}, status=401) as (port, _):
        assert asked(f"http://127.0.0.1:{port}", "http/protobuf") == Verdict("refused", "401")


def test_a_server_that_takes_no_otlp_is_told_as_such() -> None:
    with http_server({}) as (port, _):
        assert asked(f"http://127.0.0.1:{port}", "http/protobuf") == Verdict("not_otlp", "404")

    def unknown(context: Any) -> None:
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown service")

    with grpc_server(unknown) as (port, _):
        assert asked(f"http://127.0.0.1:{port}", "grpc") == Verdict("not_otlp", "UNIMPLEMENTED")


def test_a_web_page_that_answers_everything_is_no_receiver() -> None:
    with http_server({}, status=200, headers={"Content-Type": "text/html"}) as (port, _):
        assert asked(f"http://127.0.0.1:{port}", "http/protobuf").outcome == "not_otlp"


def test_a_back_end_that_refuses_empty_requests_is_not_called_broken() -> None:
    with http_server({}, status=400, headers={"Content-Type": "application/json"}) as (port, _):
        assert asked(f"http://127.0.0.1:{port}", "http/protobuf").outcome == "empty_refused"
    with http_server({}, status=400, headers={"Content-Type": "text/plain"}) as (port, _):
        assert asked(f"http://127.0.0.1:{port}", "http/protobuf").outcome == "refused"


def test_headers_do_not_follow_a_redirect() -> None:
    with http_server({}) as (elsewhere, seen):
        location = {"Location": f"http://127.0.0.1:{elsewhere}/v1/traces"}
        with http_server({}, status=302, headers=location) as (port, _):
            verdict = asked(f"http://127.0.0.1:{port}", "http/protobuf", HEADERS="api-key=hunter2")
        assert verdict == Verdict("refused", "302")
        assert seen.paths == []


@pytest.mark.parametrize("url", ["ftp://127.0.0.1:1", "127.0.0.1:4318"])
def test_an_endpoint_that_http_cannot_take_is_a_setting_to_correct(url: str) -> None:
    assert asked(url, "http/protobuf").outcome == "bad_setting"


@BOTH
def test_a_certificate_that_is_not_there_is_a_setting_to_correct(protocol: str) -> None:
    with free_port() as port:
        verdict = asked(f"https://127.0.0.1:{port}", protocol, CERTIFICATE="/nowhere/ca.pem")
    assert verdict.outcome == "bad_setting"


@BOTH
def test_tls_spoken_to_a_plain_port_is_unreachable(protocol: str) -> None:
    with otlp_receiver() as (url, _):
        verdict = asked(url.replace("http:", "https:"), protocol, TIMEOUT="5")
    assert verdict.outcome == "unreachable"


@pytest.mark.parametrize(
    ("first", "again"),
    [(b"HTTP/1.1 200 OK\r\n", b"X"), (b"", b"HTTP/1.1 100 Continue\r\n\r\n"), (b"", b"")],
)
def test_a_server_that_keeps_every_single_read_short_is_not_waited_for(first: bytes, again: bytes) -> None:
    began = time.monotonic()
    with raw_server(first, again=again) as (port, _):
        verdict = asked(f"http://127.0.0.1:{port}", "http/protobuf", TIMEOUT="0.3")
        took = time.monotonic() - began
    assert verdict == Verdict("unreachable", reason="no answer in time")
    assert took < 5


def test_the_longest_wait_is_ours_and_not_the_exporters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otel_specdecode.doctor.otlp.MOST_SECONDS", 0.2)
    monkeypatch.setattr("otel_specdecode.doctor.otlp._OTHER_PROTOCOL_SECONDS", 0.2)
    with raw_server() as (port, _):
        assert asked(f"http://127.0.0.1:{port}", "http/protobuf", TIMEOUT="1000000").outcome == "unreachable"


@pytest.mark.parametrize("header", ["", "authorization=Bearer%20x", "other=y"])
@pytest.mark.parametrize("user", ["me:hunter2@", "m%40e:hun%20ter2@", "me@", ""])
def test_a_user_in_the_endpoint_is_sent_as_the_exporter_sends_it(
    user: str, header: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter = pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    with http_server({}, status=200) as (port, seen):
        url = f"http://{user}127.0.0.1:{port}"
        assert asked(url, "http/protobuf", HEADERS=header).outcome == "accepted"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", header)
        real = exporter.OTLPSpanExporter(endpoint=f"{url}/v1/traces")
        real.export([])
        real.shutdown()
        ours, theirs = seen.headers
        assert ours.get("authorization") == theirs.get("authorization")
        assert ours["host"] == theirs["host"]
