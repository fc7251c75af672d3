"""What the collector was given arrives, whatever happens to the stores behind it or to itself in between."""

from __future__ import annotations

import secrets
import signal
import socket
import threading
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc", reason="needs the [otlp] extra")

from opentelemetry._logs import LogRecord
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_specdecode.testing.fake import WORKED_EXAMPLE, Script, accepted_rounds
from tests.e2e.pipeline import Collector, Prometheus, collector, eventually, free_ports, prometheus
from tests.e2e.services import Service, service
from tests.otlp_receiver import Received, otlp_receiver

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

WORKED = Script(rounds=accepted_rounds(WORKED_EXAMPLE, 4))
ACCEPTED = sum(WORKED_EXAMPLE)
FLOOD_SPANS = 100

SOON = tuple(
    f"--set=exporters::{exporter}::retry_on_failure::max_interval=1s"
    for exporter in ("otlp_http/to_write", "otlp_http/traces", "otlp_http/logs")
)
"""A store that is back is tried again within a second, so that tests end soon."""


def agent_of(
    held: ExitStack, folder: Path, write_port: int, store_port: int, options: tuple[str, ...] = (), **variables: str
) -> Collector:
    """Run the agent in front of a Prometheus and a store that need not be there."""
    store = f"http://127.0.0.1:{store_port}"
    destinations = {
        "OTELCOL_REMOTE_WRITE_URL": f"http://127.0.0.1:{write_port}/api/v1/write",
        "OTELCOL_TRACES_URL": store,
        "OTELCOL_LOGS_URL": store,
    }
    return held.enter_context(collector(folder, "agent.yaml", options=(*SOON, *options), **destinations, **variables))


def run(process: Service, times: int = 1) -> None:
    """Generate and tell, once a round, of each signal."""
    logger = process.logger_provider.get_logger("some")
    for _ in range(times):
        process.generate(WORKED)
        logger.emit(LogRecord(body=f"round {len(process.spans())}"))
        process.export()


def span_ids(process: Service) -> set[str]:
    return {f"{span.context.span_id:016x}" for span in process.spans() if span.context}


def stored_ids(stored: Received) -> list[str]:
    return [span.span_id for span in stored.spans()]


def log_bodies(stored: Received) -> list[str]:
    return [
        record.body.string_value
        for request in stored.requests.get("/v1/logs", ())
        for resource in request.resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
        if record.body.string_value.startswith("round ")
    ]


def accepted_tokens(database: Prometheus) -> float | None:
    return database.total('specdecode_draft_tokens_total{specdecode_draft_outcome="accepted"}')


def all_accepted(agent: Collector, spans: int, logs: int) -> bool:
    """Whether the collector has told the sender that it has this many spans and log records."""
    return (
        agent.counter("otelcol_receiver_accepted_spans") == spans
        and agent.counter("otelcol_receiver_accepted_log_records") == logs
    )


def test_nothing_is_lost_while_the_stores_are_down(tmp_path: Path) -> None:
    store_port, write_port = free_ports(2)
    with ExitStack() as held:
        database = held.enter_context(prometheus(tmp_path / "prometheus", port=write_port))
        agent = agent_of(held, tmp_path, write_port, store_port)
        stored = Received()
        with service(agent.grpc, "before") as ended, service(agent.grpc, "through") as process:
            with otlp_receiver(store_port, stored):
                run(process)
                assert stored.wait_for(lambda received: span_ids(process) <= set(stored_ids(received)))
                assert eventually(lambda: accepted_tokens(database) == ACCEPTED)
            database.end()
            run(process, 4)
            run(ended, 2)
            ended.close()  # its last points are made while nothing can take them
            assert eventually(lambda: agent.counter("otelcol_exporter_queue_size") > 0)
            database.start()
            with otlp_receiver(store_port, stored):
                run(process)
                sent = span_ids(process) | span_ids(ended)
                assert stored.wait_for(lambda received: sent <= set(stored_ids(received)))
                assert stored.wait_for(lambda received: len(log_bodies(received)) == 8)
            assert eventually(lambda: accepted_tokens(database) == 8 * ACCEPTED)
        assert len(stored_ids(stored)) == len(sent) == 8
        assert database.total('specdecode_request_started_total{job="before"}') == 2
        assert database.total('specdecode_request_started_total{job="through"}') == 6

        def samples() -> set[float]:
            counted = database.query('count_over_time(specdecode_request_started_total{job="through"}[10m])')
            return {value for _, value in counted}

        assert eventually(lambda: samples() == {7.0}), "one of each export, that of the end included"


def test_what_was_acknowledged_outlives_a_killed_collector(tmp_path: Path) -> None:
    store_port, write_port = free_ports(2)
    with ExitStack() as held:
        agent = agent_of(held, tmp_path, write_port, store_port)
        with service(agent.grpc) as process:
            run(process, 3)
            assert all_accepted(agent, 3, 3)
            agent.end(signal.SIGKILL)
            agent.start()
            stored = Received()
            database = held.enter_context(prometheus(tmp_path / "prometheus", port=write_port))
            with otlp_receiver(store_port, stored):
                assert stored.wait_for(lambda received: span_ids(process) <= set(stored_ids(received)))
                assert stored.wait_for(lambda received: len(set(log_bodies(received))) == 3)
                assert eventually(lambda: accepted_tokens(database) == 3 * ACCEPTED)
                run(process)
                assert eventually(lambda: accepted_tokens(database) == 4 * ACCEPTED)


def test_a_collector_that_is_killed_again_and_again_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    (store_port,) = free_ports(1)
    with ExitStack() as held:
        database = held.enter_context(prometheus(tmp_path / "prometheus"))
        write_port = int(database.url.rsplit(":", 1)[1])
        agent = agent_of(held, tmp_path, write_port, store_port)
        stored = Received()
        held.enter_context(otlp_receiver(store_port, stored))
        process = held.enter_context(service(agent.grpc))
        for count in range(1, 4):
            run(process, 2)
            agent.end(signal.SIGKILL)
            agent.start()
            assert len(process.spans()) == 2 * count
        assert stored.wait_for(lambda received: span_ids(process) <= set(stored_ids(received)))
        assert eventually(lambda: accepted_tokens(database) == 6 * ACCEPTED)


def test_a_prometheus_that_hangs_loses_nothing(tmp_path: Path) -> None:
    store_port, write_port = free_ports(2)
    with ExitStack() as held:
        options = ("--set=exporters::otlp_http/to_write::timeout=1s",)
        agent = agent_of(held, tmp_path, write_port, store_port, options)
        with service(agent.grpc) as process:
            with socket.socket() as silent:
                silent.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                silent.bind(("127.0.0.1", write_port))
                silent.listen()
                run(process, 2)
                silent.settimeout(30)
                asked = [silent.accept()[0] for _ in range(2)]  # it tried, gave up, and tried again
                for connection in asked:
                    connection.close()
            database = held.enter_context(prometheus(tmp_path / "prometheus", port=write_port))
            assert eventually(lambda: accepted_tokens(database) == 2 * ACCEPTED)
        assert agent.counter("otelcol_exporter_send_failed_metric_points", "otlp_http/to_write") == 0


def test_a_queue_that_is_full_refuses_counts_it_and_goes_on(tmp_path: Path) -> None:
    store_port, write_port = free_ports(2)
    with ExitStack() as held:
        agent = agent_of(held, tmp_path, write_port, store_port, OTELCOL_QUEUE_BYTES="300000")
        statuses = [flood(agent, attribute="x" * 200) for _ in range(40)]
        assert set(statuses) == {200, 503}
        failed = agent.counter("otelcol_exporter_enqueue_failed_spans")
        assert failed == statuses.count(503) * FLOOD_SPANS
        stored = Received()
        with otlp_receiver(store_port, stored):
            kept = statuses.count(200) * FLOOD_SPANS
            assert stored.wait_for(lambda received: len(flooded(received)) == kept)


def test_a_flood_beyond_the_memory_limit_is_refused_and_counted_and_the_collector_lives(tmp_path: Path) -> None:
    store_port, write_port = free_ports(2)
    with ExitStack() as held:
        agent = agent_of(held, tmp_path, write_port, store_port, OTELCOL_MEMORY_MIB="48", OTELCOL_MEMORY_SPIKE_MIB="16")
        statuses: list[int] = []
        enough = threading.Event()

        def pour() -> None:
            while len(statuses) < 4000 and not enough.is_set():
                statuses.append(flood(agent, attribute="x" * 40_000))
                if statuses[-1] == 503:
                    enough.set()

        threads = [threading.Thread(target=pour) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(statuses) == {200, 503}
        assert agent.counter("otelcol_receiver_refused_spans") > 0
        assert agent.works()
        stored = Received()
        with otlp_receiver(store_port, stored):
            assert stored.wait_for(lambda received: len(flooded(received)) == statuses.count(200) * FLOOD_SPANS)


def flood(agent: Collector, attribute: str = "") -> int:
    """Send spans once, without trying again; return the HTTP status."""
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    for _ in range(FLOOD_SPANS):
        span = spans.add(name="flood", trace_id=secrets.token_bytes(16), span_id=secrets.token_bytes(8))
        span.attributes.add(key="some").value.string_value = attribute
    connection = HTTPConnection("127.0.0.1", agent.ports["HTTP"], timeout=30)
    try:
        headers = {"Content-Type": "application/x-protobuf"}
        connection.request("POST", "/v1/traces", request.SerializeToString(), headers)
        return connection.getresponse().status
    finally:
        connection.close()


def flooded(stored: Received) -> list[str]:
    return [span.span_id for span in stored.spans() if span.name == "flood"]
