"""mlx_lm.server with no line of code changed: its real HTTP requests, and what arrives of them over real OTLP."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.arrived import active, finish_reason, total
from tests.e2e.mlx_lm_server import (
    DRAFT,
    MODULE,
    SUBCOMMAND,
    WITH_USAGE,
    WITHOUT_END,
    running,
    skip_unless_installed,
    stops_quietly,
    usage_in,
    usage_of,
)
from tests.e2e.servers import ASKED, CALLER, CHAT, TEXT, Server

skip_unless_installed()

pytestmark = [pytest.mark.e2e, pytest.mark.mlx, pytest.mark.slow]


@pytest.fixture(scope="module", params=[(), DRAFT], ids=["batching", "drafting"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server as it is by default, which batches requests, and one with a draft, which runs them one by one."""
    with running(tmp_path_factory.mktemp("server"), *request.param) as server:
        yield server
        assert stops_quietly(server)


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
    assert server.received.wait_for(lambda received: active(received) == 0)
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
    assert active(server.received) == 1


def test_a_server_that_runs_as_main_says_what_is_missing_and_has_generations_of_a_draft(tmp_path: Path) -> None:
    with running(tmp_path, *DRAFT, command=MODULE) as server:
        got = server.post(TEXT, {**ASKED[TEXT], "max_tokens": 4})
        (span,) = server.received.wait_for(lambda received: received.spans())
        server.stop(signal.SIGTERM)
    log = server.log.read_text()
    assert (span.kind, span.parent_id, span.attributes["specdecode.mode"]) == ("INTERNAL", "", "speculative")
    assert usage_of(span)[2] == usage_in(got.body)[2]
    assert log.count("start it with `mlx_lm.server` or `python -m mlx_lm server`") == 1
