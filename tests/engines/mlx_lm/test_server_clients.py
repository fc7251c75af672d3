"""MLX-LM's own server: clients that wait, those that read slowly, and those that go away."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

pytest.importorskip("mlx_lm", reason="needs the [mlx] extra")

from otel_specdecode.engines.mlx_lm.calls import CallReader
from otel_specdecode.engines.mlx_lm.served import ServedCall
from otel_specdecode.telemetry.names import Attr
from otel_specdecode.testing.capture import Telemetry
from tests.engines.mlx_lm.local_server import LocalServer, Sent, server_module
from tests.engines.mlx_lm.served import (
    ASKED,
    CHAT,
    CHATS,
    CLOCKS_NS,
    ENDLESS,
    RELEASE,
    STOPS,
    STREAMED,
    TEXT,
    finish_reason,
    pair,
    until,
    usage,
)
from tests.engines.spans import attributes

pytestmark = pytest.mark.mlx


# Waiting


@CHATS
def test_queue_and_time_to_first_token_are_what_the_client_waits(server: LocalServer, telemetry: Telemetry) -> None:
    """Of one of five requests to the millisecond: two clocks are read, and a thread may be paused between."""
    queued, apart = [], []
    for _ in range(5):
        request, generation = pair(telemetry, server.ask(CHAT, ASKED[CHAT]))
        queued.append(attributes(generation)[Attr.SPECDECODE_QUEUE_DURATION])
        apart.append(abs(queued[-1] - (generation.start_time - request.start_time) / 1e9))
    assert min(apart) < 0.001
    assert min(queued) > 0
    (point,) = telemetry.points("specdecode.queue.duration")
    assert (point.value, point.total) == (5, pytest.approx(sum(queued)))
    assert point.labels.keys() == telemetry.points("specdecode.decode.duration")[0].labels.keys()


def test_a_request_that_waits_is_not_active_and_has_waited_for_the_one_before(
    drafting: LocalServer, telemetry: Telemetry
) -> None:
    first = drafting.send(TEXT, {**ENDLESS, "max_tokens": 200})
    stream = first.response()
    assert stream.readline()
    second = drafting.send(TEXT, {**ASKED[TEXT], "max_tokens": 2})
    assert telemetry.total("specdecode.request.active") == 1
    assert telemetry.total("specdecode.request.started") == 1
    stream.read()
    assert second.answer().status == 200

    _, before = pair(telemetry, first.trace_id)
    request, after = pair(telemetry, second.trace_id)
    assert request.start_time < before.end_time < after.start_time + CLOCKS_NS
    assert attributes(after)[Attr.SPECDECODE_QUEUE_DURATION] > (before.end_time - request.start_time - CLOCKS_NS) / 1e9
    assert telemetry.total("specdecode.request.active") == 0


@CHATS
def test_requests_that_are_batched_run_side_by_side(batching: LocalServer, telemetry: Telemetry) -> None:
    first = batching.send(TEXT, {**ENDLESS, "max_tokens": 200})
    stream = first.response()
    assert stream.readline()
    answer = batching.ask(TEXT, {**ASKED[TEXT], "max_tokens": 3})
    stream.read()
    _, long = pair(telemetry, first.trace_id)
    _, short = pair(telemetry, answer)
    assert long.start_time < short.start_time < short.end_time < long.end_time
    assert attributes(long)[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == 200
    assert usage(short) == answer.usage


@CHATS
def test_time_to_read_a_request_counts_once(
    drafting: LocalServer, telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = CallReader.request

    def slowly(*args: Any, **kwargs: Any) -> Any:
        threading.Event().wait(0.3)
        return read(*args, **kwargs)

    monkeypatch.setattr(CallReader, "request", slowly)
    request, generation = pair(telemetry, drafting.ask(TEXT, {**ASKED[TEXT], "max_tokens": 1}))
    assert request.start_time is not None
    assert request.end_time is not None
    found = attributes(generation)
    waited = found[Attr.SPECDECODE_QUEUE_DURATION] + found[Attr.SPECDECODE_TIME_TO_FIRST_TOKEN]
    assert found[Attr.SPECDECODE_TIME_TO_FIRST_TOKEN] > 0.3
    assert waited < (request.end_time - request.start_time) / 1e9
    assert generation.end_time is not None
    assert generation.end_time <= request.end_time + CLOCKS_NS


# Clients that read slowly, and those that go away


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Until it is set a server answers nothing of a completion, as if its client did not read."""
    gate, handler = threading.Event(), server_module().APIHandler
    respond = handler.generate_response

    def waits(*args: Any, **kwargs: Any) -> Any:
        gate.wait(60)
        return respond(*args, **kwargs)

    monkeypatch.setattr(handler, "generate_response", waits)
    yield gate
    gate.set()


def test_a_generation_ends_when_its_last_token_is_made_whoever_reads_it(
    server: LocalServer, telemetry: Telemetry, reading: threading.Event
) -> None:
    sent = server.send(TEXT, {**ENDLESS, "max_tokens": 30})
    until(lambda: telemetry.points("specdecode.decode.duration"))
    assert telemetry.total("specdecode.request.active") == 0
    (generation,) = telemetry.spans()
    assert (finish_reason(generation), usage(generation)[2]) == ("length", 30)
    reading.set()
    assert sent.answer().finish_reason == "length"
    assert pair(telemetry, sent.trace_id)[1] is generation


@STOPS
def test_a_long_generation_is_not_dark_while_nobody_reads_it(
    server: LocalServer, telemetry: Telemetry, reading: threading.Event
) -> None:
    sent = server.send(TEXT, {**ENDLESS, "max_tokens": 5_000})
    try:
        until(lambda: telemetry.points("specdecode.decode.tokens"))
        assert telemetry.total("specdecode.request.active") == 1
    finally:
        sent.go_away()
        reading.set()
    until(lambda: telemetry.total("specdecode.request.active") == 0)
    assert finish_reason(broke_off(telemetry, sent)) == "closed"


def broke_off(telemetry: Telemetry, sent: Sent) -> ReadableSpan:
    """The generation of a request whose client went away; no error of the server's, but told on the request."""
    request, generation = pair(telemetry, sent.trace_id)
    assert attributes(request)[Attr.ERROR_TYPE] in ("BrokenPipeError", "ConnectionResetError")
    assert request.status.status_code is generation.status.status_code is StatusCode.UNSET
    assert Attr.ERROR_TYPE not in attributes(generation)
    assert telemetry.total("specdecode.request.active") == 0
    return generation


@STOPS
def test_a_client_that_goes_away_in_the_middle_ends_its_generation(server: LocalServer, telemetry: Telemetry) -> None:
    sent = server.send(TEXT, ENDLESS)
    stream = sent.response()
    for _ in range(6):
        assert stream.readline()
    sent.go_away()
    assert server.ask(TEXT, ASKED[TEXT]).status == 200
    generation = broke_off(telemetry, sent)
    assert finish_reason(generation) == "closed"
    assert 1 <= attributes(generation)[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] < 1200


def test_a_client_that_goes_away_before_the_first_token(server: LocalServer, telemetry: Telemetry) -> None:
    """The server finds out when it writes, and a draft's generation goes on if that was the head of the answer."""
    if RELEASE < (0, 32) and server.generator.model_provider.draft_model is None:
        pytest.skip("before mlx-lm 0.32 a batch dies of requests with a bias beside others")
    sent = server.send(TEXT, {**ENDLESS, "prompt": "Tell me a story. " * 80, "max_tokens": 50})
    until(lambda: telemetry.points("specdecode.request.started") != [])
    sent.go_away()
    assert server.ask(TEXT, ASKED[TEXT]).status == 200
    assert finish_reason(broke_off(telemetry, sent)) in ("closed", "length")


def test_a_client_that_goes_away_while_it_waits(drafting: LocalServer, telemetry: Telemetry) -> None:
    first = drafting.send(TEXT, {**ENDLESS, "max_tokens": 60})
    stream = first.response()
    assert stream.readline()
    second = drafting.send(TEXT, {**ENDLESS, "max_tokens": 50})
    until(lambda: drafting.generator.requests.qsize() == 1)
    second.go_away()
    stream.read()
    assert drafting.ask(TEXT, ASKED[TEXT]).status == 200
    generation = broke_off(telemetry, second)
    assert finish_reason(generation) in ("closed", "length")
    assert attributes(generation)[Attr.SPECDECODE_QUEUE_DURATION] > 0


@STOPS
def test_nothing_is_kept_of_requests_that_are_over(server: LocalServer, telemetry: Telemetry) -> None:
    for body in (ASKED[TEXT], {**ASKED[TEXT], **STREAMED}, {"prompt": 7}, {**ASKED[TEXT], "model": "/nowhere"}):
        server.ask(TEXT, body)
    sent = server.send(TEXT, ENDLESS)
    stream = sent.response()
    assert stream.readline()
    sent.go_away()
    server.ask(TEXT, ASKED[TEXT])
    telemetry.spans()
    gc.collect()
    kept = [each for each in gc.get_objects() if isinstance(each, ServedCall)]
    assert len(kept) <= 1, "more than the request that the generating thread had last, which it holds until the next"
