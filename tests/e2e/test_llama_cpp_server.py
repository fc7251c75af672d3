"""llama_cpp.server with no line of code changed: its real HTTP requests, and what arrives of them over real OTLP."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.arrived import active, breaks_the_contract, complains, finish_reason
from tests.e2e.llama_cpp_server import (
    LOOKUP,
    QUEUEING,
    WITHOUT_END,
    running,
    seconds_waited,
    skip_unless_installed,
    started,
    stops_quietly,
    target,
)
from tests.e2e.servers import ASKED, CALLER, CHAT, PROMPT_ONLY, STOP_S, TEXT, Server, answer
from tests.otlp_receiver import ReceivedSpan

skip_unless_installed()

pytestmark = [pytest.mark.e2e, pytest.mark.llama_cpp, pytest.mark.slow]

PROMPTLY_S = 2.0
CLOCK_DRIFT_NS = 50_000_000
ROUTING_S = 0.5
"""At most, from the start of the SERVER span to the handler of its route, on a machine that does much else: this is of
single requests; what a client measures of many is held closer in test_client_agreement.py.
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return target(tmp_path_factory.mktemp("gguf"))


@pytest.fixture(scope="module")
def plain(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server as it is by default: without a draft, and a new request interrupts the one that streams."""
    with running(model, tmp_path_factory.mktemp("plain")) as server:
        yield server
        assert stops_quietly(server)


@pytest.fixture(scope="module")
def drafting(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a draft, where a new request waits for the one that streams."""
    with running(model, tmp_path_factory.mktemp("drafting"), *LOOKUP, *QUEUEING) as server:
        yield server
        assert stops_quietly(server)


# Where a generation stands in its trace


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "operation"), [(TEXT, "text_completion"), (CHAT, "chat")])
def test_a_generation_is_a_child_of_its_requests_span_in_the_clients_trace(
    plain: Server, path: str, operation: str, stream: bool
) -> None:
    body = {**ASKED[path], "max_tokens": 8, "seed": 5}
    if stream:
        with plain.stream(path, body) as chunks:
            *_, last = chunks.events()
        trace_id = chunks.trace_id
    else:
        got = plain.post(path, body)
        trace_id, last = got.trace_id, got.body
        assert got.status == 200

    request, generation = plain.spans(trace_id)
    assert (request.name, request.parent_id) == (f"POST {path}", CALLER)
    assert (generation.name, generation.kind, generation.status) == (f"{operation} target", "INTERNAL", "UNSET")
    assert generation.parent_id == request.span_id
    assert request.start <= generation.start <= generation.end <= request.end
    assert seconds_waited(generation) == pytest.approx((generation.start - request.start) / 1e9, abs=ROUTING_S)
    assert finish_reason(generation) == last["choices"][0]["finish_reason"]
    assert generation.attributes.get("gen_ai.request.stream", False) is stream
    assert 1 <= generation.attributes["gen_ai.usage.output_tokens"] <= 8


def test_the_model_is_the_loaded_one_whatever_the_request_calls_it(plain: Server) -> None:
    got = plain.post(TEXT, {**ASKED[TEXT], "max_tokens": 2, "model": "gpt-4-made-up"})
    assert got.body["model"] == "gpt-4-made-up"

    _, generation = plain.spans(got.trace_id)
    names = {key: value for key, value in generation.attributes.items() if key.endswith(".model")}
    assert set(names.values()) == {"target"}
    assert plain.received.wait_for(started)
    labels = [labels for labels, _ in plain.received.latest("specdecode.request.started")]
    assert {each["gen_ai.request.model"] for each in labels} == {"target"}


def test_a_prompt_that_does_not_fit_gets_the_servers_own_answer_and_an_error_span(plain: Server) -> None:
    got = plain.post(TEXT, {"prompt": f"{PROMPT_ONLY} " * 600, "max_tokens": 2})
    assert (got.status, got.body["error"]["code"]) == (400, "context_length_exceeded")

    request, generation = plain.spans(got.trace_id)
    assert request.attributes["http.status_code"] == 400
    assert generation.parent_id == request.span_id
    assert (generation.status, finish_reason(generation)) == ("ERROR", "error")
    assert generation.attributes["error.type"] == "ValueError"


# Clients that go away, and requests that meet


def test_a_client_that_disconnects_ends_its_generation_at_once_and_the_server_goes_on(plain: Server) -> None:
    with plain.stream(TEXT, {**ASKED[TEXT], **WITHOUT_END}) as chunks:
        assert len(list(islice(chunks.events(), 3))) == 3
        chunks.drop()
        dropped_at = time.time_ns()

    _, generation = plain.spans(chunks.trace_id, timeout=PROMPTLY_S + 1)
    assert (generation.status, finish_reason(generation)) == ("UNSET", "closed")
    assert "error.type" not in generation.attributes
    assert (generation.end - dropped_at) / 1e9 < PROMPTLY_S
    assert 3 <= generation.attributes["gen_ai.usage.output_tokens"] < 400
    assert plain.received.wait_for(lambda received: active(received) == 0)
    assert plain.post(TEXT, {**ASKED[TEXT], "max_tokens": 2}).status == 200


def test_a_request_that_interrupts_a_stream_ends_its_generation_at_once(plain: Server) -> None:
    with plain.stream(TEXT, {**ASKED[TEXT], **WITHOUT_END}) as chunks:
        assert len(list(islice(chunks.events(), 3))) == 3
        second = plain.post(CHAT, {**ASKED[CHAT], "max_tokens": 2})
        assert second.status == 200

        _, interrupted = plain.spans(chunks.trace_id, timeout=PROMPTLY_S + 1)
        _, interrupting = plain.spans(second.trace_id)
    assert (interrupted.status, finish_reason(interrupted)) == ("UNSET", "closed")
    assert interrupted.attributes["gen_ai.usage.output_tokens"] < 400
    assert interrupted.start < interrupting.start
    assert abs(interrupted.end - interrupting.start) / 1e9 < PROMPTLY_S
    assert finish_reason(interrupting) in {"length", "stop"}


def test_a_request_that_waits_for_a_stream_has_no_generation_until_its_turn(drafting: Server) -> None:
    with drafting.stream(TEXT, {**ASKED[TEXT], **WITHOUT_END}) as chunks:
        assert len(list(islice(chunks.events(), 3))) == 3
        connection, trace_id = drafting.send(TEXT, {**ASKED[TEXT], "max_tokens": 2})
        *_, last = chunks.events()
    assert last["choices"][0]["finish_reason"] == "length"
    assert answer(connection, trace_id).status == 200

    _, first = drafting.spans(chunks.trace_id)
    request, second = drafting.spans(trace_id)
    assert finish_reason(first) == "length"
    assert request.start < first.end, "the stream had ended before the second request came"
    # A span's end is its wall-clock start plus a monotonic duration, so two spans may differ by what the clocks drift.
    assert first.end <= second.start + CLOCK_DRIFT_NS
    assert seconds_waited(second) >= (first.end - request.start - CLOCK_DRIFT_NS) / 1e9 - ROUTING_S
    assert seconds_waited(second) == pytest.approx((second.start - request.start) / 1e9, abs=ROUTING_S)


# Drafts


def counts(span: ReceivedSpan) -> Mapping[str, Any]:
    return {key.removeprefix("specdecode."): value for key, value in span.attributes.items()}


@pytest.mark.parametrize("stream", [False, True])
def test_prompt_lookup_is_speculative_decoding_and_its_counts_are_there(drafting: Server, stream: bool) -> None:
    said = "Gus and Tess decided to share the silver key. Tess was very calm, and Gus was glad too."
    body = {"messages": [{"role": "user", "content": f"Repeat this: {said}"}], "max_tokens": 48, "temperature": 0}
    if stream:
        with drafting.stream(CHAT, body) as chunks:
            assert list(chunks.events())
        trace_id = chunks.trace_id
    else:
        trace_id = drafting.post(CHAT, body).trace_id

    _, generation = drafting.spans(trace_id)
    seen = counts(generation)
    assert (seen["mode"], seen["requested_mode"], seen["method"]) == ("speculative", "speculative", "prompt_lookup")
    assert seen["draft.max_tokens"] == 10
    assert seen["draft.passes"] == 0
    assert seen["verify.passes"] > 0
    assert seen["draft.accepted_tokens"] > 0
    parts = (seen[f"draft.{outcome}_tokens"] for outcome in ("accepted", "rejected", "unverified"))
    assert seen["draft.proposed_tokens"] == sum(parts)
    assert seen["decode.passes"] < generation.attributes["gen_ai.usage.output_tokens"]


def test_metrics_of_a_drafting_server_conform_and_hold_no_prompt(drafting: Server) -> None:
    drafting.post(TEXT, {**ASKED[TEXT], "max_tokens": 16, "temperature": 0})
    received = drafting.received
    assert received.wait_for(lambda _: started(received).get("text_completion"))

    labels = [labels for labels, _ in received.latest("specdecode.request.started")]
    assert {(each["specdecode.mode"], each["specdecode.method"]) for each in labels} == {
        ("speculative", "prompt_lookup")
    }
    for name in ("specdecode.draft.tokens", "specdecode.verify.passes", "specdecode.decode.passes"):
        assert received.latest(name), name
    assert breaks_the_contract(received) == []
    assert PROMPT_ONLY not in str(received.requests)


# The end of a server


def test_what_was_recorded_last_arrives_when_the_server_is_interrupted(model: Path, tmp_path: Path) -> None:
    """With the SDK's own export intervals, of 5 s and 60 s: only the end of the process can deliver so soon."""
    with running(model, tmp_path, "--embedding", "true", variables={}) as server:
        got = server.post("/v1/embeddings", {"input": f"a {PROMPT_ONLY} story"})
        first_token, *_ = got.body["data"][0]["embedding"]
        assert server.stop(signal.SIGINT) == 0

    request, embeddings = server.spans(got.trace_id, timeout=0)
    assert (request.name, request.parent_id) == ("POST /v1/embeddings", CALLER)
    assert (embeddings.name, embeddings.parent_id) == ("embeddings target", request.span_id)
    assert embeddings.attributes["gen_ai.embeddings.dimension.count"] == len(first_token)
    assert seconds_waited(embeddings) == pytest.approx((embeddings.start - request.start) / 1e9, abs=ROUTING_S)
    assert embeddings.attributes["gen_ai.usage.input_tokens"] == got.body["usage"]["prompt_tokens"]
    assert started(server.received) == {"embeddings": 1}
    assert active(server.received) == 0
    assert breaks_the_contract(server.received) == []
    assert PROMPT_ONLY not in str(server.received.requests)
    assert not any(word in server.log.read_text() for word in ("Traceback", "Failed to detach"))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 0)])
def test_under_load_all_that_was_answered_has_arrived_when_a_signal_has_ended_the_server(
    number: signal.Signals, code: int, model: Path, tmp_path: Path
) -> None:
    """With the SDK's own export intervals. The stream is broken off; what waits for its turn still gets its answer."""
    short = {**ASKED[TEXT], "max_tokens": 2}
    with running(model, tmp_path, *QUEUEING, "--n_ctx", "4096", variables={}) as server:
        answered = [server.post(TEXT, short) for _ in range(4)]
        with server.stream(CHAT, {**ASKED[CHAT], **WITHOUT_END, "max_tokens": 4000}) as chunks:
            events = chunks.events()
            assert len(list(islice(events, 2))) == 2
            waiting = [server.send(TEXT, short) for _ in range(4)]
            assert len(list(islice(events, 3))) == 3
            server.process.send_signal(number)
            seen = 5 + len(list(events))
        answered += [answer(*each) for each in waiting]
        assert server.process.wait(STOP_S) == code

    received = server.received
    assert [each.status for each in answered] == [200] * 8
    for each in answered:
        request, generation = server.spans(each.trace_id, timeout=0)
        assert request.attributes["http.status_code"] == 200
        assert finish_reason(generation) in {"length", "stop"}
    _, streamed = server.spans(chunks.trace_id, timeout=0)
    assert (streamed.status, finish_reason(streamed)) == ("UNSET", "closed")
    assert streamed.attributes["gen_ai.usage.output_tokens"] >= seen - 1, "the first event holds no token"
    assert started(received) == {"text_completion": len(answered), "chat": 1}
    assert active(received) == 0
    assert not complains(server.log.read_text())
