"""llama.cpp in a web service with tenants, asked over HTTP."""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from itertools import pairwise

import pytest

pytest.importorskip("llama_cpp", reason="needs the [llama-cpp] extra")
pytest.importorskip("gguf", reason="needs the [demo] extra")
for module in ("fastapi", "uvicorn", "opentelemetry.instrumentation.fastapi"):
    pytest.importorskip(module, reason="needs the [dev] extra")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs the [otlp] extra")

from tests.examples.running import (  # noqa: E402
    complaints,
    ended,
    generations,
    requests_counted,
    started,
)
from tests.otlp_receiver import Received, ReceivedSpan  # noqa: E402
from tests.ports import free_port, listens  # noqa: E402
from tests.proc import wait_for  # noqa: E402

pytestmark = [pytest.mark.e2e, pytest.mark.llama_cpp, pytest.mark.slow]

CALLER = "00f067aa0ba902b7"
COUNT = "Count from 7 to 22."
CLIENTS = 4
MOST_STREAMS = 50


@dataclass(frozen=True)
class Service:
    """The running service and what it has exported."""

    port: int
    process: subprocess.Popen[str]
    received: Received

    def ask(self, question: str, *, stream: bool = False, **headers: str) -> tuple[str, int, str]:
        """Return the trace that a request was sent in, the status and the body of its answer."""
        connection, trace_id = self.send(question, stream=stream, **headers)
        response = connection.getresponse()
        body = response.read().decode()
        connection.close()
        return trace_id, response.status, body

    def drop(self, question: str, **headers: str) -> str:
        """Take the first byte of a stream and go away; return the request's trace."""
        connection, trace_id = self.send(question, stream=True, **headers)
        response: HTTPResponse = connection.getresponse()
        response.read(1)
        response.close()
        connection.close()
        return trace_id

    def send(self, question: str, *, stream: bool, **headers: str) -> tuple[HTTPConnection, str]:
        trace_id = secrets.token_hex(16)
        fixed = {"Content-Type": "application/json", "traceparent": f"00-{trace_id}-{CALLER}-01"}
        connection = HTTPConnection("127.0.0.1", self.port, timeout=120)
        body = json.dumps({"question": question, "stream": stream})
        connection.request("POST", "/answers", body, {**fixed, **headers})
        return connection, trace_id

    def spans(self, trace_id: str) -> tuple[list[ReceivedSpan], list[ReceivedSpan]]:
        """Return the HTTP spans and the generations of a trace that have arrived."""
        spans = [span for span in self.received.spans() if span.trace_id == trace_id]
        return (
            [span for span in spans if span.kind == "SERVER"],
            [span for span in spans if span.scope == "otel_specdecode"],
        )

    def pair(self, trace_id: str) -> tuple[ReceivedSpan, ReceivedSpan]:
        """Return the HTTP span and the generation of a request, once both have arrived."""
        self.received.wait_for(lambda _: all(self.spans(trace_id)))
        ((request,), (generation,)) = self.spans(trace_id)
        return request, generation


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """The service, whose spans leave at once, and whose metrics do only where it flushes: at its end."""
    port, exports = free_port(), {"OTEL_BSP_SCHEDULE_DELAY": "50", "OTEL_METRIC_EXPORT_INTERVAL": "3600000"}
    with started("fastapi_tenants.py", PORT=str(port), **exports) as (process, received):
        wait_for(lambda: listens(port) or process.poll() is not None, seconds=120)
        yield Service(port, process, received)
        assert not requests_counted(received)
        code, _, told = ended(process, signal.SIGTERM)
    assert code == -signal.SIGTERM
    assert not complaints(told), told
    assert requests_counted(received) == len(generations(received)) > 0


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_generation_is_a_child_of_its_request_and_carries_its_tenant(service: Service, stream: bool) -> None:
    trace_id, status, body = service.ask(COUNT, stream=stream, **{"X-Tenant": "acme"})
    request, generation = service.pair(trace_id)
    assert status == 200
    assert (body if stream else json.loads(body)["answer"]).startswith("7, 8, 9")
    assert (request.parent_id, generation.parent_id) == (CALLER, request.span_id)
    assert generation.attributes["specdecode.tenant.id"] == "acme"
    assert generation.attributes.get("gen_ai.request.stream", False) is stream
    assert generation.attributes["specdecode.mode"] == "speculative"
    assert request.start <= generation.start < generation.end <= request.end


def test_the_callers_baggage_does_not_name_the_tenant(service: Service) -> None:
    theirs = {"baggage": "specdecode.tenant.id=other,tenant.id=other"}
    trace_id, _, _ = service.ask(COUNT, **{"X-Tenant": "acme", **theirs})
    assert service.pair(trace_id)[1].attributes["specdecode.tenant.id"] == "acme"


@pytest.mark.parametrize("headers", [{}, {"X-Tenant": ""}, {"baggage": "specdecode.tenant.id=acme"}])
def test_a_request_without_a_tenant_is_refused(service: Service, headers: dict[str, str]) -> None:
    trace_id, status, _ = service.ask(COUNT, **headers)
    assert status == 422
    assert service.received.wait_for(lambda _: service.spans(trace_id)[0])
    assert not service.spans(trace_id)[1]


def test_requests_at_once_take_turns_and_keep_their_tenants(service: Service) -> None:
    def ask(number: int) -> tuple[str, int, str]:
        return service.ask("List 5 animals.", stream=number % 2 == 0, **{"X-Tenant": f"tenant-{number}"})

    with ThreadPoolExecutor(CLIENTS) as clients:
        answers = list(clients.map(ask, range(CLIENTS)))
    pairs = [service.pair(trace_id) for trace_id, _, _ in answers]
    assert [pair[1].attributes["specdecode.tenant.id"] for pair in pairs] == [
        f"tenant-{number}" for number in range(CLIENTS)
    ]
    assert all(generation.parent_id == request.span_id for request, generation in pairs)
    texts = {json.loads(body)["answer"] if body.startswith("{") else body for _, _, body in answers}
    assert len(texts) == 1
    turns = sorted((generation.start, generation.end) for _, generation in pairs)
    assert all(before[1] <= after[0] for before, after in pairwise(turns))


def test_a_client_that_goes_away_ends_its_generation_and_the_next_has_its_turn(service: Service) -> None:
    for _ in range(MOST_STREAMS):  # a short answer may be complete before the service sees that its client is gone
        _, generation = service.pair(service.drop("Tell me a story about a fox.", **{"X-Tenant": "acme"}))
        if generation.attributes["gen_ai.response.finish_reasons"] == ["closed"]:
            break
    else:
        pytest.fail(f"none of {MOST_STREAMS} generations ended with its client")
    assert generation.status == "UNSET"
    assert service.ask(COUNT, **{"X-Tenant": "acme"})[1] == 200
