"""mlx_lm.server with no line of code changed: its real HTTP requests, and what arrives of them over real OTLP."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mlx_lm", reason="needs the [mlx] extra")
for module in ("opentelemetry.distro", "opentelemetry.exporter.otlp.proto.http"):
    pytest.importorskip(module, reason="needs the [zero-code] extra")

from otel_specdecode.testing.checker import check  # noqa: E402
from tests.e2e.mlx_lm_server import DRAFT, MODULE, SUBCOMMAND, running  # noqa: E402
from tests.e2e.servers import CALLER, PROMPT_ONLY, Server  # noqa: E402
from tests.otlp_receiver import Received, ReceivedSpan  # noqa: E402

pytestmark = [pytest.mark.e2e, pytest.mark.mlx, pytest.mark.slow]

TEXT, CHAT = "/v1/completions", "/v1/chat/completions"
ASKED: dict[str, dict[str, Any]] = {
    TEXT: {"prompt": f"Tell me a {PROMPT_ONLY} story"},
    CHAT: {"messages": [{"role": "user", "content": f"Tell me a {PROMPT_ONLY} story."}]},
}
WITHOUT_END = {"logit_bias": {"0": -100, "2": -100}, "max_tokens": 1200}
"""Forbids the tokens that end a generation, so that it is still running when a test does something to it."""

WITH_USAGE = {"stream_options": {"include_usage": True}}
CLIENTS, REQUESTS = 8, 40


@pytest.fixture(scope="module", params=[(), DRAFT], ids=["batching", "drafting"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server as it is by default, which batches requests, and one with a draft, which runs them one by one."""
    with running(tmp_path_factory.mktemp("server"), *request.param) as server:
        yield server
        assert stops_quietly(server)


def stops_quietly(server: Server) -> bool:
    """Stop a server as service managers do, and look at what it wrote in all its life."""
    code, log = server.stop(signal.SIGTERM), server.log.read_text()
    gone = log.count("BrokenPipeError: ") + log.count("ConnectionResetError: ")
    return (
        code == -signal.SIGTERM
        and log.count("Traceback") == gone
        and not any(words in log for words in ("Failed to detach", "is not affected", "is not watched"))
    )


def finish_reason(span: ReceivedSpan) -> str:
    (reason,) = span.attributes["gen_ai.response.finish_reasons"]
    return str(reason)


def usage_of(span: ReceivedSpan) -> tuple[int, int, int]:
    found = span.attributes
    cached = found.get("gen_ai.usage.cache_read.input_tokens", 0)
    return found["gen_ai.usage.input_tokens"], cached, found["gen_ai.usage.output_tokens"]


def usage_in(body: dict[str, Any]) -> tuple[int, int, int]:
    usage = body["usage"]
    cached = usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
    return usage["prompt_tokens"], cached, usage["completion_tokens"]


def total(received: Received, metric: str) -> float:
    return sum(value for _, value in received.latest(metric))


def breaks_the_contract(received: Received) -> list[str]:
    return [str(finding) for finding in check(otlp=received.as_json()) if finding.severity == "violation"]


# Where a generation stands in its trace


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "operation"), [(TEXT, "text_completion"), (CHAT, "chat")])
def test_a_generation_is_a_child_of_its_requests_span_in_the_clients_trace(
    server: Server, path: str, operation: str, stream: bool
) -> None:
    body = {**ASKED[path], "max_tokens": 8}
    if stream:
        with server.stream(path, {**body, **WITH_USAGE}) as chunks:
            *_, last = chunks.events()
        trace_id = chunks.trace_id
    else:
        got = server.post(path, body)
        trace_id, last = got.trace_id, got.body
        assert got.status == 200

    request, generation = server.spans(trace_id)
    assert (request.name, request.parent_id, request.status) == (f"POST {path}", CALLER, "UNSET")
    assert (generation.name, generation.status) == (f"{operation} target", "UNSET")
    assert generation.parent_id == request.span_id
    assert request.start <= generation.start <= generation.end <= request.end
    assert usage_of(generation) == usage_in(last)


def test_a_client_that_is_not_instrumented_measures_the_same(server: Server) -> None:
    """Time to the first token, queue included, and the rate of the tokens after it, as far as a process can see it."""
    server.post(TEXT, {**ASKED[TEXT], "max_tokens": 2})
    began = time.perf_counter()
    with server.stream(TEXT, {**ASKED[TEXT], **WITHOUT_END, "max_tokens": 150}) as chunks:
        arrived = [time.perf_counter() for _ in chunks.events()]
    whole = arrived[-1] - began

    request, generation = server.spans(chunks.trace_id)
    found = generation.attributes
    waited = found["specdecode.queue.duration"] + found["specdecode.time_to_first_token"]
    assert waited == pytest.approx(arrived[0] - began, abs=0.03)
    assert (request.end - request.start) / 1e9 == pytest.approx(whole, rel=0.05, abs=0.03)
    rate = (found["gen_ai.usage.output_tokens"] - 1) / (arrived[-1] - arrived[0])
    assert found["specdecode.decode.tokens_per_second"] == pytest.approx(rate, rel=0.15)


# Many clients


@dataclass(frozen=True)
class Told:
    """What a client was told; nothing of one that went away."""

    trace_id: str
    usage: tuple[int, int, int] | None


def ask(server: Server, number: int) -> Told:
    """One of several kinds of request, by its number; every tenth client goes away."""
    path = (TEXT, CHAT)[number % 2]
    body = {**ASKED[path], "max_tokens": 4 + number % 7}
    if number % 10 == 9:
        with server.stream(path, {**body, **WITHOUT_END}) as chunks:
            assert len(list(islice(chunks.events(), 2))) == 2
        return Told(chunks.trace_id, None)
    if number % 4 < 2:
        with server.stream(path, {**body, **WITH_USAGE}) as chunks:
            *_, last = chunks.events()
        return Told(chunks.trace_id, usage_in(last))
    got = server.post(path, body)
    return Told(got.trace_id, usage_in(got.body))


def by_clients(server: Server) -> list[Told]:
    with ThreadPoolExecutor(CLIENTS) as clients:
        return list(clients.map(lambda number: ask(server, number), range(REQUESTS)))


@pytest.mark.parametrize("options", [(), DRAFT], ids=["batching", "drafting"])
def test_of_many_clients_each_request_has_its_pair_of_spans_with_the_counts_it_was_told(
    options: Sequence[str], tmp_path: Path
) -> None:
    with running(tmp_path, *options) as server:
        told = by_clients(server)
        received = server.received
        assert received.wait_for(lambda got: total(got, "http.server.request.duration") == REQUESTS)
        assert received.wait_for(lambda got: total(got, "specdecode.request.active") == 0)
        for each in told:
            request, generation = server.spans(each.trace_id)
            assert (request.parent_id, generation.parent_id) == (CALLER, request.span_id)
            assert request.status == generation.status == "UNSET"
            if each.usage is None:
                assert finish_reason(generation) == "closed"
            else:
                assert usage_of(generation) == each.usage
        assert len(received.spans()) == 2 * REQUESTS
        assert received.wait_for(lambda got: total(got, "specdecode.queue.duration") == REQUESTS)
        assert total(received, "specdecode.request.started") == REQUESTS
        assert breaks_the_contract(received) == []
        assert PROMPT_ONLY not in str(received.requests)
        assert stops_quietly(server)


# What goes wrong


@pytest.mark.parametrize(
    ("path", "body", "status", "name"),
    [
        (TEXT, {"max_tokens": 3}, 400, f"POST {TEXT}"),
        (CHAT, {**ASKED[CHAT], "model": "/nowhere/at-all"}, 404, f"POST {CHAT}"),
    ],
)
def test_what_the_server_refuses_has_its_status_and_no_generation(
    server: Server, path: str, body: dict[str, Any], status: int, name: str
) -> None:
    got = server.post(path, body)
    spans = server.received.wait_for(
        lambda received: [span for span in received.spans() if span.trace_id == got.trace_id]
    )
    (span,) = spans
    assert (span.name, span.status, got.status) == (name, "UNSET", status)
    assert span.attributes["http.response.status_code"] == status


def test_a_client_that_disconnects_ends_its_generation_and_the_server_goes_on(server: Server) -> None:
    with server.stream(TEXT, {**ASKED[TEXT], **WITHOUT_END}) as chunks:
        assert len(list(islice(chunks.events(), 3))) == 3
        chunks.drop()

    request, generation = server.spans(chunks.trace_id)
    assert (generation.status, finish_reason(generation)) == ("UNSET", "closed")
    assert request.attributes["error.type"] in ("BrokenPipeError", "ConnectionResetError")
    assert generation.attributes["gen_ai.usage.output_tokens"] < 1200
    assert server.received.wait_for(lambda received: total(received, "specdecode.request.active") == 0)
    assert server.post(TEXT, {**ASKED[TEXT], "max_tokens": 2}).status == 200


# The commands, and the end of a server


def test_what_was_recorded_last_arrives_when_the_server_is_terminated_under_load(tmp_path: Path) -> None:
    """With the SDK's own export intervals, of 5 s and 60 s: only the signal's handler can deliver so soon."""
    with running(tmp_path, command=SUBCOMMAND, variables={}) as server:
        done = [server.post(TEXT, {**ASKED[TEXT], "max_tokens": 4}) for _ in range(3)]
        with server.stream(TEXT, {**ASKED[TEXT], **WITHOUT_END}) as chunks:
            assert len(list(islice(chunks.events(), 3))) == 3
            assert server.stop(signal.SIGTERM) == -signal.SIGTERM

    for got in done:
        _, generation = server.spans(got.trace_id, timeout=0)
        assert usage_of(generation) == usage_in(got.body)
    assert total(server.received, "http.server.request.duration") == 3
    assert total(server.received, "specdecode.request.started") == 4
    assert total(server.received, "specdecode.request.active") == 1


def test_a_server_that_runs_as_main_says_what_is_missing_and_has_generations_of_a_draft(tmp_path: Path) -> None:
    with running(tmp_path, *DRAFT, command=MODULE) as server:
        got = server.post(TEXT, {**ASKED[TEXT], "max_tokens": 4})
        (span,) = server.received.wait_for(lambda received: received.spans())
        server.stop(signal.SIGTERM)
    log = server.log.read_text()
    assert (span.kind, span.parent_id, span.attributes["specdecode.mode"]) == ("INTERNAL", "", "speculative")
    assert usage_of(span)[2] == usage_in(got.body)[2]
    assert log.count("start it with `mlx_lm.server` or `python -m mlx_lm server`") == 1
