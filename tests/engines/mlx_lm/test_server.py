"""MLX-LM's own server: a span for each HTTP request, and under it the generation, which another thread makes."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from http.client import BadStatusLine
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

mlx_lm = pytest.importorskip("mlx_lm", reason="needs the [mlx] extra")

from otel_specdecode.engines.mlx_lm.calls import CallReader  # noqa: E402
from otel_specdecode.engines.mlx_lm.hooks import MLXLMHooks  # noqa: E402
from otel_specdecode.engines.mlx_lm.served import ServedCall  # noqa: E402
from otel_specdecode.generation.folding import FoldingObserver  # noqa: E402
from otel_specdecode.telemetry.names import Attr  # noqa: E402
from otel_specdecode.testing.capture import Telemetry, capture  # noqa: E402
from otel_specdecode.testing.checker import assert_conformant  # noqa: E402
from otel_specdecode.tiny_pair import model_path  # noqa: E402
from tests.engines.mlx_lm.local_server import (  # noqa: E402
    CALLER,
    Answer,
    LocalServer,
    Sent,
    local_server,
    server_module,
    without_identity,
)
from tests.engines.spans import attributes  # noqa: E402

pytestmark = pytest.mark.mlx

TEXT, CHAT = "/v1/completions", "/v1/chat/completions"
DRAFT = ("--draft-model", str(model_path("draft")))
ASKED: dict[str, dict[str, Any]] = {
    TEXT: {"prompt": "Tell me a story", "max_tokens": 12},
    CHAT: {"messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 12},
}
ENDLESS = {"prompt": "Tell me a story", "max_tokens": 1200, "logit_bias": {"0": -100, "2": -100}, "stream": True}
CLOCKS_NS = 5_000_000
"""By how much a span's times may be off: they are a reading of the wall clock and durations added to it."""

STREAMED = {"stream": True, "stream_options": {"include_usage": True}}


RELEASE = tuple(map(int, mlx_lm.__version__.split(".")[:2]))
TELLS_OF_ITS_CACHE = pytest.mark.skipif(RELEASE < (0, 31), reason="mlx-lm tells of its prompt cache since 0.31")
STOPS = pytest.mark.skipif(RELEASE < (0, 31), reason="before mlx-lm 0.31 it generates on when its client has gone")
CHATS = pytest.mark.skipif(RELEASE < (0, 30), reason="before mlx-lm 0.30 chats fail with newer transformers")
ANSWERS_WHAT_IT_REFUSES = pytest.mark.skipif(RELEASE < (0, 32), reason="before mlx-lm 0.32 its handler raises instead")


@pytest.fixture(params=["batched", "speculative"])
def server(request: pytest.FixtureRequest, telemetry: Telemetry) -> Iterator[LocalServer]:
    """The server in each of the two ways that it runs requests: together, and with a draft one by one."""
    with local_server(*(DRAFT if request.param == "speculative" else ())) as running:
        yield running


@pytest.fixture
def batching(telemetry: Telemetry) -> Iterator[LocalServer]:
    with local_server() as running:
        yield running


@pytest.fixture
def drafting(telemetry: Telemetry) -> Iterator[LocalServer]:
    with local_server(*DRAFT) as running:
        yield running


def until(condition: Callable[[], Any]) -> None:
    """Wait for a condition that a thread of the server brings about."""
    deadline, pause = time.monotonic() + 20, threading.Event()
    while not condition():
        assert time.monotonic() < deadline
        pause.wait(0.005)


def of(telemetry: Telemetry, trace_id: int) -> tuple[ReadableSpan, list[ReadableSpan]]:
    """The span of a request, which ends a little after its client has the answer, and those of its generations."""

    def spans(kind: SpanKind) -> list[ReadableSpan]:
        return [span for span in telemetry.spans() if span.context.trace_id == trace_id and span.kind is kind]

    until(lambda: spans(SpanKind.SERVER))
    (request,) = spans(SpanKind.SERVER)
    return request, spans(SpanKind.INTERNAL)


def pair(telemetry: Telemetry, answer: Answer | int) -> tuple[ReadableSpan, ReadableSpan]:
    """The span of a request and that of its one generation."""
    request, generations = of(telemetry, answer if isinstance(answer, int) else answer.trace_id)
    (generation,) = generations
    return request, generation


def finish_reason(span: ReadableSpan) -> str:
    (reason,) = attributes(span)[Attr.GEN_AI_RESPONSE_FINISH_REASONS]
    return str(reason)


def usage(span: ReadableSpan) -> tuple[int, int, int]:
    found = attributes(span)
    return (
        found[Attr.GEN_AI_USAGE_INPUT_TOKENS],
        found.get(Attr.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS, 0),
        found[Attr.GEN_AI_USAGE_OUTPUT_TOKENS],
    )


# Where a generation stands, and what it counts


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "operation"), [(TEXT, "text_completion"), pytest.param(CHAT, "chat", marks=CHATS)])
def test_a_generation_is_a_child_of_its_request_in_the_clients_trace(
    server: LocalServer, telemetry: Telemetry, path: str, operation: str, stream: bool
) -> None:
    answer = server.ask(path, {**ASKED[path], **(STREAMED if stream else {})})
    request, generation = pair(telemetry, answer)

    assert (request.name, request.status.status_code) == (f"POST {path}", StatusCode.UNSET)
    assert request.parent is not None
    assert f"{request.parent.span_id:016x}" == CALLER
    assert (generation.name, generation.parent) == (f"{operation} target", request.context)
    assert request.start_time <= generation.start_time <= generation.end_time <= request.end_time
    assert attributes(generation).get(Attr.GEN_AI_REQUEST_STREAM, False) is stream
    assert usage(generation) == answer.usage
    assert finish_reason(generation) == answer.finish_reason


@CHATS
def test_both_modes_conform_and_have_the_same_fields(telemetry: Telemetry) -> None:
    """But for those that only a draft has, and prefill passes, which a batch shares."""
    keys = {}
    for options in ((), DRAFT):
        with local_server(*options) as server:
            _, generation = pair(telemetry, server.ask(CHAT, {**ASKED[CHAT], **STREAMED}))
            keys[attributes(generation)[Attr.SPECDECODE_MODE]] = set(attributes(generation))
    assert keys["speculative"] - keys["autoregressive"] == {
        Attr.SPECDECODE_DRAFT_MODEL,
        Attr.SPECDECODE_ACCEPT_RATE,
        Attr.SPECDECODE_PREFILL_PASSES,
    }
    assert keys["autoregressive"] <= keys["speculative"]
    assert_conformant(spans=telemetry.spans(), metrics=telemetry.metrics_data(), logs=telemetry.logs())


@TELLS_OF_ITS_CACHE
def test_a_batched_request_is_autoregressive_and_its_counts_add_up(batching: LocalServer, telemetry: Telemetry) -> None:
    answer = batching.ask(TEXT, ASKED[TEXT])
    found = attributes(pair(telemetry, answer)[1])
    emitted = answer.usage[2]

    assert [found[key] for key in (Attr.SPECDECODE_MODE, Attr.SPECDECODE_REQUESTED_MODE, Attr.SPECDECODE_METHOD)] == [
        "autoregressive",
        "autoregressive",
        "none",
    ]
    assert found[Attr.SPECDECODE_DECODE_PASSES] == emitted
    assert found[Attr.SPECDECODE_VERIFY_PASSES] == found[Attr.SPECDECODE_DRAFT_PROPOSED_TOKENS] == 0
    assert found[Attr.SPECDECODE_CONSUMER_DURATION] == 0
    times = Attr.SPECDECODE_PREFILL_DURATION, Attr.SPECDECODE_DECODE_DURATION
    assert 0 < found[times[0]] < found[Attr.SPECDECODE_TIME_TO_FIRST_TOKEN] < found[times[0]] + found[times[1]]
    assert telemetry.total("specdecode.decode.tokens") == emitted - 1


def test_a_seed_takes_a_request_out_of_the_batch_and_it_is_still_recorded(
    batching: LocalServer, telemetry: Telemetry
) -> None:
    answer = batching.ask(TEXT, {**ASKED[TEXT], "seed": 7, "temperature": 0.7, "top_p": 0.9, "top_k": 40})
    found = attributes(pair(telemetry, answer)[1])
    assert found[Attr.SPECDECODE_PREFILL_PASSES] > 0, "it ran in a batch"
    assert (found[Attr.GEN_AI_REQUEST_SEED], found[Attr.GEN_AI_REQUEST_TEMPERATURE]) == (7, 0.7)
    assert (found[Attr.GEN_AI_REQUEST_TOP_P], found[Attr.GEN_AI_REQUEST_TOP_K]) == (0.9, 40.0)
    assert usage(pair(telemetry, answer)[1]) == answer.usage


def test_what_a_client_asks_for_is_on_the_span_in_both_ways(server: LocalServer, telemetry: Telemetry) -> None:
    body = {**ASKED[TEXT], "temperature": 0.5, "top_p": 0.8, "presence_penalty": 0.25, "stop": ["zanzibar"]}
    found = attributes(pair(telemetry, server.ask(TEXT, body))[1])
    assert found[Attr.GEN_AI_REQUEST_MAX_TOKENS] == 12
    assert found[Attr.GEN_AI_REQUEST_TEMPERATURE] == 0.5
    assert found[Attr.GEN_AI_REQUEST_TOP_P] == 0.8
    assert found[Attr.GEN_AI_REQUEST_STOP_SEQUENCES] == ("zanzibar",)


def test_a_client_may_choose_draft_and_draft_length(telemetry: Telemetry) -> None:
    with local_server() as server:
        found = {}
        for length in (0, 2, 4):
            body = {**ASKED[TEXT], "draft_model": DRAFT[1], "num_draft_tokens": length}
            found[length] = attributes(pair(telemetry, server.ask(TEXT, body))[1])
        back = attributes(pair(telemetry, server.ask(TEXT, ASKED[TEXT]))[1])
    bypassed = RELEASE[:2] == (0, 30)
    for length in (2, 4):
        assert found[length][Attr.SPECDECODE_DRAFT_MAX_TOKENS] == length
        assert found[length][Attr.SPECDECODE_DRAFT_MODEL] == "draft"
        assert found[length][Attr.SPECDECODE_REQUESTED_MODE] == "speculative"
        reason = found[length].get(Attr.SPECDECODE_FALLBACK_REASON)
        assert reason == ("engine_bypass" if bypassed else None), "mlx-lm 0.30 batches drafts as well"
    modes = (Attr.SPECDECODE_MODE, Attr.SPECDECODE_REQUESTED_MODE, Attr.SPECDECODE_FALLBACK_REASON)
    assert [found[0][key] for key in modes] == ["autoregressive", "speculative", "zero_draft_length"]
    assert (back[Attr.SPECDECODE_MODE], back[Attr.SPECDECODE_METHOD]) == ("autoregressive", "none")


def test_the_model_is_the_one_that_ran_whatever_the_last_request_had_loaded(
    batching: LocalServer, telemetry: Telemetry
) -> None:
    names = [
        pair(telemetry, batching.ask(TEXT, {**ASKED[TEXT], **model}))[1].name
        for model in ({}, {"model": DRAFT[1]}, {"model": "default_model"})
    ]
    assert names == ["text_completion target", "text_completion draft", "text_completion target"]


@pytest.mark.parametrize("limit", [1, 2])
def test_few_tokens(server: LocalServer, telemetry: Telemetry, limit: int) -> None:
    answer = server.ask(TEXT, {**ASKED[TEXT], "max_tokens": limit})
    _, generation = pair(telemetry, answer)
    assert (usage(generation), finish_reason(generation)) == (answer.usage, "length")


@STOPS
def test_a_stop_string_is_the_end_that_the_server_says_it_is(server: LocalServer, telemetry: Telemetry) -> None:
    whole = server.ask(TEXT, {**ASKED[TEXT], "max_tokens": 7})
    word = whole.body["choices"][0]["text"].split()[2]
    answer = server.ask(TEXT, {**ASKED[TEXT], "stop": [f" {word}"]})
    _, generation = pair(telemetry, answer)
    assert answer.usage[2] < whole.usage[2], "the stop string was not met"
    assert (finish_reason(generation), generation.status.status_code) == ("stop", StatusCode.UNSET)
    assert usage(generation) == answer.usage


@TELLS_OF_ITS_CACHE
def test_turns_of_a_chat_reuse_the_prompt_cache_and_counts_stay_those_of_the_response(
    server: LocalServer, telemetry: Telemetry
) -> None:
    messages = [{"role": "user", "content": "Tell me a story about a silver key and a wolf."}]
    reused = []
    for _ in range(3):
        answer = server.ask(CHAT, {"messages": messages, "max_tokens": 10})
        assert usage(pair(telemetry, answer)[1]) == answer.usage
        reused.append(answer.usage[1])
        said = answer.body["choices"][0]["message"]["content"] or ""
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "And then?"}]
    assert any(reused)


@TELLS_OF_ITS_CACHE
def test_a_reused_cache_that_lacks_its_last_token_is_a_hazard(drafting: LocalServer, telemetry: Telemetry) -> None:
    """A speculative run that ends on the target's own token: the next turn skips that token."""
    seen = set()
    for length in range(4, 10):
        prompt = f"{length} silver keys"
        first = drafting.ask(TEXT, {"prompt": prompt, "max_tokens": length})
        said = first.body["choices"][0]["text"]
        second = drafting.ask(TEXT, {"prompt": f"{prompt}{said} and", "max_tokens": 4})
        hazards = [attributes(pair(telemetry, each)[1]).get(Attr.SPECDECODE_HAZARD_IDS, ()) for each in (first, second)]
        assert "cache_reuse_short" not in hazards[0]
        seen.add((second.usage[1] >= sum(first.usage[::2]), "cache_reuse_short" in hazards[1]))
    assert (True, True) in seen, "no run ended on the target's own token and was gone on from"
    assert (False, True) not in seen


# Waiting


@CHATS
def test_queue_and_time_to_first_token_are_what_the_client_waits(server: LocalServer, telemetry: Telemetry) -> None:
    _, generation = pair(telemetry, server.ask(CHAT, ASKED[CHAT]))
    request, _ = of(telemetry, generation.context.trace_id)
    found = attributes(generation)
    queued = found[Attr.SPECDECODE_QUEUE_DURATION]
    assert queued == pytest.approx((generation.start_time - request.start_time) / 1e9, abs=0.005)
    (point,) = telemetry.points("specdecode.queue.duration")
    assert (point.value, point.total) == (1, pytest.approx(queued))
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


# What goes wrong


@pytest.mark.parametrize(
    ("path", "body", "method", "name", "status"),
    [
        pytest.param(TEXT, "{", "", f"POST {TEXT}", 400, marks=CHATS),
        pytest.param(TEXT, {"max_tokens": 3}, "", f"POST {TEXT}", 400, marks=ANSWERS_WHAT_IT_REFUSES),
        pytest.param(TEXT, {"max_tokens": "many"}, "", f"POST {TEXT}", 400, marks=ANSWERS_WHAT_IT_REFUSES),
        (CHAT, {**ASKED[CHAT], "model": "/nowhere/at-all"}, "", f"POST {CHAT}", 404),
        ("/v1/nothing?secret=1", {}, "", "POST", 404),
        ("/nothing", None, "", "GET", 404),
        ("/health", None, "", "GET /health", 200),
        (TEXT, None, "OPTIONS", f"OPTIONS {TEXT}", 204),
        (TEXT, None, "PUT", "PUT", 501),
        (TEXT, None, "BREW", "HTTP", 501),
    ],
)
def test_an_answer_without_a_generation(
    batching: LocalServer, telemetry: Telemetry, path: str, body: Any, method: str, name: str, status: int
) -> None:
    answer = batching.ask(path, body, method)
    request, generations = of(telemetry, answer.trace_id)
    found = attributes(request)
    assert answer.status == found[Attr.HTTP_RESPONSE_STATUS_CODE] == status
    assert (request.name, generations) == (name, [])
    assert found[Attr.URL_PATH] == path.partition("?")[0]
    assert "secret" not in str(found)
    assert request.status.status_code is (StatusCode.ERROR if status >= 500 else StatusCode.UNSET)
    assert found.get(Attr.ERROR_TYPE) == (str(status) if status >= 500 else None)
    (point,) = telemetry.points("http.server.request.duration")
    assert point.labels.get(Attr.HTTP_RESPONSE_STATUS_CODE) == status
    assert telemetry.points("specdecode.request.started") == []


@pytest.mark.skipif(RELEASE < (0, 31), reason="on mlx-lm 0.28.4 the request's span once did not come; not understood")
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("failure", [ZeroDivisionError, ConnectionResetError])
def test_a_model_that_fails_ends_generation_and_request_in_an_error(
    failure: type[Exception], stream: bool, telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with an error of the kind that a client's going away is; a whole answer then has no status at all."""
    with local_server(*DRAFT) as server:
        assert server.ask(TEXT, ASKED[TEXT]).status == 200
        kind = type(server.generator.model_provider.model)

        def fails(*_: Any, **__: Any) -> Any:
            raise failure("quotes the prompt")

        monkeypatch.setattr(kind, "__call__", fails)
        sent = server.send(TEXT, {**ASKED[TEXT], "prompt": "Something else", "stream": stream})
        with nullcontext() if stream else pytest.raises(BadStatusLine):
            sent.response().read()
        monkeypatch.undo()
        assert server.ask(TEXT, ASKED[TEXT]).status == 200
    request, generation = pair(telemetry, sent.trace_id)
    for span in (request, generation):
        assert (span.status.status_code, attributes(span)[Attr.ERROR_TYPE]) == (StatusCode.ERROR, failure.__name__)
        assert "quotes" not in str(attributes(span)) + str(span.events) + str(span.status.description)
    assert attributes(request).get(Attr.HTTP_RESPONSE_STATUS_CODE) == (200 if stream else None)
    assert finish_reason(generation) == "error"


@pytest.mark.parametrize(
    ("request_line", "name", "path", "status"),
    [
        (b"GET http://alice:hunter2@models.example/health?x=hunter2 HTTP/1.1", "GET", "/health", 404),
        (b"GET /v1/models#hunter2?x HTTP/1.1", "GET /v1/models", "/v1/models", 200),
        (b"CONNECT alice:hunter2@models.example:443 HTTP/1.1", "CONNECT", "", 501),
        (b"HEAD /v1/models HTTP/1.1", "HEAD", "/v1/models", 501),
        (b"PUT /v1/models/some HTTP/1.1", "PUT", "/v1/models/some", 501),
        (b"hunter2", "HTTP", "", 400),
        (b"GET /health HTTP/3.0", "HTTP", "", 505),
        (b"GET /" + b"a" * 65_532, "HTTP", "", 414),
        (b"GET /health HTTP/1.1\r\n" + b"hunter2: 1\r\n" * 150, "GET /health", "/health", 431),
    ],
    ids=lambda value: value.decode()[:40] if isinstance(value, bytes) else None,
)
def test_whatever_a_client_sends_has_a_span_and_nothing_that_may_be_secret_on_it(
    batching: LocalServer, telemetry: Telemetry, request_line: bytes, name: str, path: str, status: int
) -> None:
    batching.send_raw(request_line + (b"" if status == 414 else b"\r\nHost: models.example\r\n\r\n"))
    until(telemetry.spans)
    span = telemetry.span()
    found = attributes(span)
    assert (span.name, found[Attr.URL_PATH], found[Attr.HTTP_RESPONSE_STATUS_CODE]) == (name, path, status)
    assert found[Attr.HTTP_REQUEST_METHOD] == name.split(maxsplit=1)[0].replace("HTTP", "_OTHER")
    assert "hunter2" not in str(found)
    (point,) = telemetry.points("http.server.request.duration")
    assert point.labels.get(Attr.HTTP_RESPONSE_STATUS_CODE) == status
    assert_conformant(metrics=telemetry.metrics_data())


def test_without_a_host_the_address_is_that_of_the_connection(batching: LocalServer, telemetry: Telemetry) -> None:
    batching.send_raw(b"GET /health HTTP/1.0\r\n\r\n")
    until(telemetry.spans)
    found = attributes(telemetry.span())
    assert (found[Attr.SERVER_ADDRESS], found[Attr.SERVER_PORT]) == ("127.0.0.1", batching.port)


# Whose request it is


def test_tenant_and_session_of_a_clients_baggage_reach_the_generation(
    server: LocalServer, telemetry: Telemetry
) -> None:
    answer = server.ask(TEXT, ASKED[TEXT], baggage="tenant.id=acme,session.id=s%201")
    found = attributes(pair(telemetry, answer)[1])
    assert (found[Attr.SPECDECODE_TENANT_ID], found[Attr.SPECDECODE_SESSION_ID]) == ("acme", "s 1")
    other = attributes(pair(telemetry, server.ask(TEXT, ASKED[TEXT]))[1])
    assert Attr.SPECDECODE_TENANT_ID not in other


@CHATS
def test_prompts_and_answers_are_kept_only_where_the_user_opted_in(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {}
    for choice in ("NO_CONTENT", "SPAN_ONLY"):
        monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", choice)
        for options in ((), DRAFT):
            with capture() as telemetry, local_server(*options) as server:
                answer = server.ask(CHAT, ASKED[CHAT])
                request, generation = pair(telemetry, answer)
                said = answer.body["choices"][0]["message"]["content"]
                found = str(attributes(generation))
                kept[choice, options] = ("Tell me a story." in found, said.split()[1] in found)
                assert "story" not in str(attributes(request))
    assert {key[0]: value for key, value in kept.items()} == {"NO_CONTENT": (False, False), "SPAN_ONLY": (True, True)}
    assert len(set(kept.values())) == 2


def test_requests_of_excluded_urls_have_no_span_but_their_generations_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_PYTHON_MLX_LM_EXCLUDED_URLS", "http://127.0.0.1:[0-9]+/health,v1/completions$")
    with capture() as telemetry, local_server() as server:
        server.ask("/health")
        server.ask(TEXT, ASKED[TEXT])
        span = telemetry.span()
    assert (span.kind, span.parent) == (SpanKind.INTERNAL, None)
    assert Attr.SPECDECODE_QUEUE_DURATION in attributes(span)


# The server itself


@CHATS
@pytest.mark.parametrize("options", [(), DRAFT], ids=["batched", "speculative"])
def test_answers_are_those_of_a_bare_server(options: tuple[str, ...]) -> None:
    bodies = [(path, {**body, **more}) for path, body in ASKED.items() for more in ({}, STREAMED, {"seed": 3})]
    told = []
    for watching in (nullcontext, capture):
        with watching(), local_server(*options) as server:
            answers = [server.ask(path, body) for path, body in bodies]
        told.append([[without_identity(each) for each in (*one.events, one.body)] for one in answers])
    assert told[0] == told[1]


def test_uninstrumenting_restores_the_server() -> None:
    module = server_module()
    places = (module, module.APIHandler, module.ResponseGenerator)
    before = [dict(vars(place)) for place in places]
    with capture():
        assert [dict(vars(place)) for place in places] != before
    assert [dict(vars(place)) for place in places] == before


def test_a_server_whose_inside_is_another_stays_bare_and_one_warning_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    module = server_module()

    class Other(module.Queue):  # type: ignore[misc, name-defined]
        pass

    monkeypatch.setattr(module, "Queue", Other)
    hooks = MLXLMHooks()
    hooks.install(FoldingObserver())
    try:
        with local_server() as server:
            assert server.ask(TEXT, ASKED[TEXT]).status == 200
        assert vars(module.APIHandler)["do_POST"].__code__.co_filename == module.__file__
    finally:
        hooks.remove()
    warned = [record.message for record in caplog.records if record.name == "otel_specdecode"]
    assert warned == [
        (
            "this version of mlx-lm is not watched: mlx_lm.server is not as expected (TypeError);"
            " generation is not affected"
        )
    ]
