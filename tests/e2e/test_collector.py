"""From a service's OTLP through the collector as it is shipped to a real Prometheus and to stores that take OTLP."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection
from typing import Any

import psutil
import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc", reason="needs the [otlp] extra")

from opentelemetry._logs import LogRecord

from otel_specdecode.generation.request import Request
from otel_specdecode.telemetry.names import Attr
from otel_specdecode.testing.fake import WORKED_EXAMPLE, FakeRound, Script, accepted_rounds
from tests.e2e.pipeline import Collector, Stack, agent_stack, eventually
from tests.e2e.services import Protocol, Service, service
from tests.otlp_receiver import Received

pytestmark = pytest.mark.e2e

SECRET = "zanzibar"
"""A word that stands in content, and may stand nowhere behind the collector."""

WORKED = Script(rounds=accepted_rounds(WORKED_EXAMPLE, 4))
CUT_SHORT = Script(rounds=(FakeRound(4, 2), FakeRound(4, 3, finished=False)), finish_reason="length")
AUTOREGRESSIVE = Script(tokens=30)
FAILING = Script(rounds=accepted_rounds((1, 0), 2), failure=RuntimeError("made to fail"))
REJECTED = Script(rounds=accepted_rounds([0] * 20, 4))
SCRIPTS = (WORKED, WORKED, CUT_SHORT, AUTOREGRESSIVE, AUTOREGRESSIVE, FAILING, REJECTED)
FALLBACK = Request("chat", "mlx", "target", requested_mode="speculative", fallback_reason="feature_flag")

COUNTED = {
    Attr.SPECDECODE_VERIFY_PASSES: "specdecode_verify_passes_total",
    Attr.SPECDECODE_ROLLBACKS: "specdecode_rollbacks_total",
    Attr.SPECDECODE_DECODE_PASSES: "specdecode_decode_passes_total",
    Attr.SPECDECODE_DRAFT_CALLS: "specdecode_draft_calls_total",
    Attr.SPECDECODE_DRAFT_PASSES: "specdecode_draft_passes_total",
    Attr.SPECDECODE_DRAFT_PROPOSED_TOKENS: "specdecode_draft_tokens_total",
    Attr.SPECDECODE_DRAFT_ACCEPTED_TOKENS: 'specdecode_draft_tokens_total{specdecode_draft_outcome="accepted"}',
    Attr.SPECDECODE_DRAFT_REJECTED_TOKENS: 'specdecode_draft_tokens_total{specdecode_draft_outcome="rejected"}',
    Attr.SPECDECODE_DRAFT_UNVERIFIED_TOKENS: 'specdecode_draft_tokens_total{specdecode_draft_outcome="unverified"}',
    Attr.GEN_AI_USAGE_OUTPUT_TOKENS: 'gen_ai_client_token_usage_sum{gen_ai_token_type="output"}',
    Attr.GEN_AI_USAGE_INPUT_TOKENS: 'gen_ai_client_token_usage_sum{gen_ai_token_type="input"}',
}
"""What a span attribute, summed over all spans, has to equal in Prometheus."""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with agent_stack(tmp_path_factory.mktemp("stack")) as running:
        yield running


def generate_all(process: Service) -> None:
    for script in SCRIPTS:
        process.generate(script)
    process.generate(AUTOREGRESSIVE, FALLBACK)


# Counts


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_counts_in_prometheus_are_the_sums_over_the_spans_that_were_stored(stack: Stack, protocol: Protocol) -> None:
    name = protocol.partition("/")[0]
    endpoint = stack.agent.grpc if protocol == "grpc" else stack.agent.http
    with (
        service(endpoint, name, "one", protocol) as one,
        service(endpoint, name, "two", protocol) as two,
    ):
        for process in (one, two):
            generate_all(process)
            process.export()
        generate_all(two)
        two.export()
        started = {span.context.span_id for process in (one, two) for span in process.spans()}

    def stored() -> list[dict[str, Any]]:
        wanted = {f"{each:016x}" for each in started}
        return [dict(span.attributes) for span in stack.stored.spans() if span.span_id in wanted]

    requests = f'specdecode_request_started_total{{job="{name}"}}'
    assert eventually(lambda: len(stored()) == len(started))
    assert eventually(lambda: stack.database.total(requests) == len(started)), stack.database.query(requests)
    for attribute, series in COUNTED.items():
        selector = series.replace("{", f'{{job="{name}",') if "{" in series else f'{series}{{job="{name}"}}'
        assert stack.database.total(selector) == sum(span.get(attribute, 0) for span in stored()), attribute
    assert stack.database.total(f'specdecode_fallbacks_total{{job="{name}"}}') == 3
    assert len(stack.database.query(f"count by (instance) ({requests})")) == 2


def test_buckets_hold_every_request(stack: Stack) -> None:
    with service(stack.agent.grpc, "buckets") as process:
        generate_all(process)
        process.export()
    series = "gen_ai_server_request_duration_seconds"
    assert eventually(lambda: stack.database.total(f'{series}_count{{job="buckets"}}') == len(SCRIPTS) + 1)
    assert stack.database.total(f'{series}_bucket{{job="buckets",le="+Inf"}}') == len(SCRIPTS) + 1


def test_exemplars_name_traces_that_were_stored(stack: Stack) -> None:
    begin = time.time()
    with service(stack.agent.grpc, "exemplars") as process:
        generate_all(process)
        process.export()
        traces = {f"{span.context.trace_id:032x}" for span in process.spans()}
    selector = '{__name__=~"specdecode_.+",job="exemplars"}'
    found = eventually(lambda: stack.database.exemplars(selector, begin - 60, time.time() + 60))
    assert {labels["trace_id"] for labels in found} <= traces
    assert {labels["trace_id"] for labels in found}
    assert eventually(lambda: traces <= {span.trace_id for span in stack.stored.spans()})


def test_a_process_without_an_instance_gets_one_of_its_host_and_process_id(stack: Stack) -> None:
    with service(stack.agent.grpc, "nameless", "", host_name="mac-7", process_pid="4711") as process:
        process.generate(AUTOREGRESSIVE)
        process.export()
    found = eventually(lambda: stack.database.query('specdecode_request_started_total{job="nameless"} > 0'))
    ((labels, _),) = found
    assert (labels["instance"], labels["node"]) == ("mac-7:4711", "mac-7")


# Content


def test_content_that_a_service_captures_stays_on_the_node(stack: Stack) -> None:
    content = {
        "gen_ai.input.messages": SECRET,
        "gen_ai.output.messages": SECRET,
        "gen_ai.system_instructions": SECRET,
        "gen_ai.tool.definitions": SECRET,
        "gen_ai.tool.call.arguments": SECRET,
        "gen_ai.prompt": SECRET,
        "gen_ai.completion.0.content": SECRET,
    }
    kept = {"gen_ai.prompt.name": "greeting", "gen_ai.request.model": "target"}
    with service(stack.agent.grpc, "capturing") as process:
        with process.tracer_provider.get_tracer("some").start_as_current_span(
            "capturing", attributes={**content, **kept}
        ) as span:
            span.add_event("event", {**content, **kept})
        logger = process.logger_provider.get_logger("some")
        logger.emit(LogRecord(event_name="gen_ai.client.inference.operation.details", attributes={**content, **kept}))
        logger.emit(LogRecord(event_name="gen_ai.client.inference.operation.details", body={**content, **kept}))
        logger.emit(LogRecord(event_name="gen_ai.user.message", body={"content": SECRET}, attributes=kept))
        logger.emit(LogRecord(event_name="specdecode.manifest", body="a body", attributes=kept))
        process.export()

    def arrived(received: Received) -> bool:
        return "capturing" in str(received.requests.get("/v1/traces")) and "a body" in str(
            received.requests.get("/v1/logs")
        )

    assert stack.stored.wait_for(arrived)
    assert SECRET not in str(stack.stored.requests)
    assert str(stack.stored.requests["/v1/logs"]).count("greeting") == 4
    (found,) = [span for span in stack.stored.spans() if span.name == "capturing"]
    assert found.attributes == kept


# What a neighbour sees, and what it may send


def test_nothing_listens_beyond_loopback(stack: Stack) -> None:
    assert stack.agent.process
    connections = psutil.Process(stack.agent.process.pid).net_connections("inet")
    listening = {each.laddr.port: each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN}
    assert set(listening) == set(stack.agent.ports.values())
    assert set(listening.values()) == {"127.0.0.1"}


@pytest.mark.parametrize("path", ["/v1/traces", "/v1/metrics", "/v1/logs"])
@pytest.mark.parametrize(
    ("kind", "garbage"), [("application/x-protobuf", b"\xff\x00not OTLP"), ("application/json", b'{"resourceSpans": [')]
)
def test_garbage_is_refused_and_the_collector_goes_on(stack: Stack, path: str, kind: str, garbage: bytes) -> None:
    assert posted(stack.agent, path, kind, garbage) == 400
    assert works(stack)


def test_a_body_that_is_too_large_is_refused_and_the_collector_goes_on(stack: Stack) -> None:
    assert 400 <= posted(stack.agent, "/v1/traces", "application/x-protobuf", b"\x0a" * (21 * 1024**2)) < 500
    assert works(stack)


def test_garbage_on_the_grpc_port_is_cut_off_and_the_collector_goes_on(stack: Stack) -> None:
    with (
        socket.create_connection(("127.0.0.1", stack.agent.ports["GRPC"]), timeout=10) as connection,
        suppress(ConnectionResetError),
    ):
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(range(256)))
        while connection.recv(4096):
            pass
    assert works(stack)


def posted(agent: Collector, path: str, kind: str, body: bytes) -> int:
    connection = HTTPConnection("127.0.0.1", agent.ports["HTTP"], timeout=30)
    try:
        connection.request("POST", path, body, {"Content-Type": kind})
        return connection.getresponse().status
    except (BrokenPipeError, ConnectionResetError):
        return 400  # it closed before the whole body was sent
    finally:
        connection.close()


def works(stack: Stack) -> bool:
    """Whether a span still gets through."""
    with service(stack.agent.grpc, "still-there") as process:
        process.generate(AUTOREGRESSIVE)
        process.export()
        ids = {f"{span.context.span_id:016x}" for span in process.spans()}
    return bool(stack.stored.wait_for(lambda received: ids <= {span.span_id for span in received.spans()}))
