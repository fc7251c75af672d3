"""Chats, whose handlers do as they like: one span, with all they make on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
from opentelemetry.trace import StatusCode

from otel_specdecode.telemetry.names import Attr
from otel_specdecode.testing.capture import Telemetry
from tests.engines.llama_cpp.calling import (
    MESSAGES,
    OTHER,
    PROMPT,
    K,
    complete,
    llama_cpp,
    load,
    named,
    passes,
    samples,
)
from tests.engines.llama_cpp.conftest import QUIET, Pair
from tests.engines.llama_cpp.ground_truth import watched_engine
from tests.engines.spans import attributes

pytestmark = pytest.mark.llama_cpp

Chunk = dict[str, Any]


def chat(llama: Any, handler: Callable[..., Any], **options: Any) -> Any:
    """Chat through a handler of one's own."""
    llama.chat_handler = handler
    return llama.create_chat_completion(MESSAGES, **options)


def two_completions(*, llama: Any, stream: bool, **_: Any) -> Any:
    """Thinks first, then answers."""
    complete(llama, 3)
    return complete(llama, 5, OTHER, stream=stream)


def two_streams(*, llama: Any, **_: Any) -> Iterator[Chunk]:
    """Streams two completions, one after another."""
    yield from complete(llama, 3, stream=True)
    yield from complete(llama, 5, OTHER, stream=True)


@pytest.mark.parametrize("k", [None, K])
@pytest.mark.parametrize("handler", [two_completions, two_streams])
@pytest.mark.parametrize("stream", [False, True])
def test_a_handler_that_makes_two_completions(
    stream: bool, handler: Callable[..., Any], k: int | None, cycle: Pair, telemetry: Telemetry
) -> None:
    """One span: counts add, times add, and the answer's finish reason is the call's."""
    llama = load(cycle, k)
    with watched_engine() as log:
        result = chat(llama, handler, stream=stream)
        if stream or handler is two_streams:
            list(result)
    found = attributes(telemetry.span())
    assert telemetry.span().name == "chat cycle-target"
    assert found[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == 8
    assert found[Attr.GEN_AI_USAGE_INPUT_TOKENS] == len(PROMPT) + len(OTHER)
    assert found[Attr.GEN_AI_RESPONSE_FINISH_REASONS] == ("length",)
    assert found[Attr.SPECDECODE_PREFILL_PASSES] == 2
    assert found[Attr.SPECDECODE_PREFILL_PASSES] + found[Attr.SPECDECODE_DECODE_PASSES] == passes(log, llama)
    assert telemetry.total("specdecode.request.started") == 1


def test_the_times_of_two_streams_are_times(cycle: Pair, telemetry: Telemetry) -> None:
    """A consumer that holds every chunk: its time is its own in the second completion too, and none is negative."""
    chunks = chat(cycle.llama(), two_streams, stream=True)
    for _ in chunks:
        sum(range(200_000))
    found = attributes(telemetry.span())
    prefill, decode = found[Attr.SPECDECODE_PREFILL_DURATION], found[Attr.SPECDECODE_DECODE_DURATION]
    assert min(prefill, decode, found[Attr.SPECDECODE_CONSUMER_DURATION]) > 0
    assert found[Attr.SPECDECODE_DECODE_TOKENS_PER_SECOND] > 0
    span = telemetry.span()
    assert span.end_time is not None
    assert span.start_time is not None
    assert prefill + decode + found[Attr.SPECDECODE_CONSUMER_DURATION] <= (span.end_time - span.start_time) / 1e9


@pytest.mark.parametrize("drop", ["break", "close"])
def test_a_consumer_that_leaves_on_the_finish_reason_of_a_second_completion(
    drop: str, cycle: Pair, telemetry: Telemetry
) -> None:
    """Tokens came before the first chunk was asked for: the call is complete all the same."""
    stream = chat(cycle.llama(), two_completions, stream=True)
    for chunk in stream:
        if chunk["choices"][0]["finish_reason"]:
            break
    if drop == "close":
        stream.close()
    del stream
    found = attributes(telemetry.span())
    assert found[Attr.GEN_AI_RESPONSE_FINISH_REASONS] == ("length",)
    assert found[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == 8


def test_a_stream_nobody_asked_for_after_a_completion(cycle: Pair, telemetry: Telemetry) -> None:
    """The first completion was made as the chat was called: it is told, and the call is closed."""
    stream = chat(cycle.llama(), two_completions, stream=True)
    del stream
    found = attributes(telemetry.span())
    assert found[Attr.GEN_AI_RESPONSE_FINISH_REASONS] == ("closed",)
    assert found[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == 3


@pytest.mark.parametrize("k", [None, K])
@pytest.mark.parametrize("parts", [(PROMPT,), (PROMPT, OTHER, list(range(320, 350)))])
def test_a_handler_that_evaluates_by_itself(
    parts: tuple[list[int], ...], k: int | None, cycle: Pair, telemetry: Telemetry
) -> None:
    """As the multimodal ones do, piece by piece: those passes are prefill, and nothing is taken for cached."""

    def handler(*, llama: Any, **_: Any) -> Any:
        llama.reset()
        for part in parts:
            llama.eval(part)
        return complete(llama, 6, llama.input_ids[: llama.n_tokens].tolist())

    llama = load(cycle, k, n_batch=16)
    for _ in range(2):
        telemetry.clear()
        with watched_engine() as log:
            chat(llama, handler)
        found = attributes(telemetry.span())
        assert found[Attr.GEN_AI_USAGE_INPUT_TOKENS] == sum(map(len, parts))
        assert found.get(Attr.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS, 0) == 0
        assert found[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == 6
        assert found[Attr.SPECDECODE_PREFILL_PASSES] == sum(-(-len(part) // 16) for part in parts)
        assert found[Attr.SPECDECODE_PREFILL_PASSES] + found[Attr.SPECDECODE_DECODE_PASSES] == passes(log, llama)
        duration = found[Attr.SPECDECODE_PREFILL_DURATION]
        assert 0 < duration <= found[Attr.SPECDECODE_TIME_TO_FIRST_TOKEN]


def test_a_handler_that_goes_on_from_what_is_there(cycle: Pair, telemetry: Telemetry) -> None:
    """It keeps what earlier requests left in the cache: that part is cached, its own is not."""

    def handler(*, llama: Any, **_: Any) -> Any:
        llama.eval(OTHER)
        return complete(llama, 3, llama.input_ids[: llama.n_tokens].tolist())

    llama = cycle.llama()
    llama.eval(PROMPT)
    chat(llama, handler)
    found = attributes(telemetry.span())
    assert found[Attr.GEN_AI_USAGE_INPUT_TOKENS] == len(PROMPT) + len(OTHER)
    assert found[Attr.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS] == len(PROMPT)
    assert found[Attr.SPECDECODE_PREFILL_PASSES] == 1


class Own:
    """An iterator that is no generator."""

    def __init__(self, llama: Any) -> None:
        self._llama = llama
        self._left = 2

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        if not self._left:
            raise StopIteration
        self._left -= 1
        answer: Chunk = complete(self._llama, 4)
        return {"choices": [{"delta": {"content": answer["choices"][0]["text"]}, "finish_reason": None}]}


def test_a_handler_with_an_iterator_of_its_own(cycle: Pair, telemetry: Telemetry) -> None:
    """Whole completions as they are asked for: parts of the chat, complete as the iterator is exhausted."""
    chunks = list(chat(cycle.llama(), lambda *, llama, **_: Own(llama), stream=True))
    assert len(chunks) == 2
    found = attributes(telemetry.span())
    assert found[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == 8
    assert telemetry.span().status.status_code is StatusCode.UNSET


def test_a_handler_that_runs_the_token_loop_by_itself(cycle: Pair, telemetry: Telemetry) -> None:
    """Its loop is a completion of the chat."""

    def handler(*, llama: Any, **_: Any) -> Any:
        tokens = list(islice(llama.generate(PROMPT, temp=0.0), 5))
        return {"choices": [{"message": {"content": llama.detokenize(tokens).decode()}, "finish_reason": "stop"}]}

    chat(cycle.llama(), handler)
    found = attributes(telemetry.span())
    assert found[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == 5
    assert found[Attr.GEN_AI_RESPONSE_FINISH_REASONS] == ("stop",)


def test_a_handler_that_chats_again(cycle: Pair, telemetry: Telemetry) -> None:
    """With the model's own format: still one chat."""

    def handler(*, llama: Any, messages: Any, stream: bool, **_: Any) -> Any:
        llama.chat_handler = None
        return llama.create_chat_completion(messages, max_tokens=4, temperature=0.0, stream=stream)

    for stream in (False, True):
        telemetry.clear()
        list(chat(cycle.llama(), handler, stream=stream))
        assert attributes(telemetry.span())[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == 4


@pytest.mark.parametrize("where", ["before", "between chunks"])
def test_a_handler_that_routes_with_a_second_model(where: str, cycle: Pair, telemetry: Telemetry) -> None:
    """The router's call is a request of its own: a span beside the chat's, under the same parent."""
    router = cycle.draft_llama()

    def before(*, llama: Any, **_: Any) -> Any:
        complete(router, 2)
        return complete(llama, 5)

    def between(*, llama: Any, **_: Any) -> Iterator[Chunk]:
        for number, chunk in enumerate(complete(llama, 5, stream=True)):
            if number == 2:
                complete(router, 2)
            yield chunk

    with telemetry.tracer_provider.get_tracer("service").start_as_current_span("request") as request:
        stream = where == "between chunks"
        list(chat(cycle.llama(), between if stream else before, stream=stream))
    answer, routing = named(telemetry, "chat cycle-target"), named(telemetry, "text_completion cycle-draft")
    assert answer[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == 5
    assert answer[Attr.SPECDECODE_DECODE_PASSES] == 4
    assert routing[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == 2
    parents = {span.parent.span_id for span in telemetry.spans() if span.parent is not None}
    assert parents == {request.get_span_context().span_id}
    assert len(telemetry.spans()) == 3


@pytest.mark.parametrize("completions", [0, 1])
@pytest.mark.parametrize("stream", [False, True])
def test_a_handler_that_raises(stream: bool, completions: int, cycle: Pair, telemetry: Telemetry) -> None:
    """Before its first completion or after it: an error span with the tokens that came."""

    def handler(*, llama: Any, **_: Any) -> Any:
        for _ in range(completions):
            complete(llama, 3)
        raise LookupError("secret prompt")

    with pytest.raises(LookupError):
        chat(cycle.llama(), handler, stream=stream)
    span = telemetry.span()
    assert span.status.status_code is StatusCode.ERROR
    assert attributes(span)[Attr.ERROR_TYPE] == "LookupError"
    assert attributes(span)[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == 3 * completions
    assert "secret" not in span.to_json()


# The engine's own handlers

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "lamp",
            "parameters": {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"]},
        },
    }
]
LAMP = {"type": "function", "function": {"name": "lamp"}}


def preferring(llama: Any, letter: bytes) -> Any:
    """A logits processor that makes every token likely that begins with a letter."""
    ids = [token for token in range(llama.n_vocab()) if llama.detokenize([token]).startswith(letter)]

    def processor(_: Any, logits: Any) -> Any:
        changed = logits.copy()
        changed[ids] += 1_000
        return changed

    return llama_cpp.LogitsProcessorList([processor])


@pytest.mark.parametrize(
    ("choice", "begins", "stream", "reason"),
    [
        ("auto", b"f", False, "tool_calls"),
        ("auto", b"m", False, "stop"),
        ("auto", b"m", True, "stop"),
        (LAMP, None, False, "tool_calls"),
        (LAMP, None, True, "tool_calls"),
        ("none", None, False, "length"),
        ("none", None, True, "length"),
    ],
)
def test_the_handler_for_function_calls(
    choice: Any, begins: bytes | None, stream: bool, reason: str, cycle: Pair, telemetry: Telemetry
) -> None:
    """One span, however many completions it makes: all their tokens, and the finish reason that the caller gets."""
    llama = cycle.llama(chat_format="chatml-function-calling")
    processors = None if begins is None else preferring(llama, begins)
    with watched_engine() as log:
        result = llama.create_chat_completion(
            MESSAGES,
            tools=TOOLS,
            tool_choice=choice,
            temperature=0.0,
            max_tokens=20,
            stream=stream,
            logits_processor=processors,
        )
        last = list(result)[-1] if stream else result
    found = attributes(telemetry.span())
    assert last["choices"][0]["finish_reason"] == reason
    assert found[Attr.GEN_AI_RESPONSE_FINISH_REASONS] == (reason,)
    assert found[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == samples(log, llama)
    assert found[Attr.SPECDECODE_PREFILL_PASSES] + found[Attr.SPECDECODE_DECODE_PASSES] == passes(log, llama)
    if not stream:
        assert found[Attr.GEN_AI_USAGE_INPUT_TOKENS] >= last["usage"]["prompt_tokens"]
        assert found[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] >= last["usage"]["completion_tokens"]
    assert telemetry.total("specdecode.request.started") == 1


def test_the_usage_of_a_function_call_is_summed(cycle: Pair, telemetry: Telemetry) -> None:
    """Input and output tokens are those of every completion the handler makes, not only of those it tells of."""
    usages: list[dict[str, int]] = []

    class Noting(llama_cpp.Llama):  # type: ignore[misc]
        def create_completion(self, *args: Any, **kwargs: Any) -> Any:
            answer = super().create_completion(*args, **kwargs)
            usages.append(answer["usage"])
            return answer

    llama = Noting(str(cycle.target), chat_format="chatml-function-calling", n_ctx=1024, **QUIET)
    llama.create_chat_completion(
        MESSAGES, tools=TOOLS, tool_choice="auto", temperature=0.0, logits_processor=preferring(llama, b"f")
    )
    found = attributes(telemetry.span())
    ended_on_eog = found[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] - sum(usage["completion_tokens"] for usage in usages)
    assert len(usages) == 3
    assert found[Attr.GEN_AI_USAGE_INPUT_TOKENS] == sum(usage["prompt_tokens"] for usage in usages)
    assert 0 <= ended_on_eog <= len(usages)


def test_a_function_call_that_cannot_be_streamed(cycle: Pair, telemetry: Telemetry) -> None:
    """The engine refuses after its first completion: an error, with the tokens of that."""
    llama = cycle.llama(chat_format="chatml-function-calling")
    chosen = {"tools": TOOLS, "tool_choice": "auto", "logits_processor": preferring(llama, b"f")}
    with watched_engine() as log, pytest.raises(ValueError, match="streaming tool choice"):
        llama.create_chat_completion(MESSAGES, stream=True, temperature=0.0, **chosen)
    span = telemetry.span()
    assert span.status.status_code is StatusCode.ERROR
    assert attributes(span)[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == samples(log, llama) > 0


@pytest.mark.parametrize("how", ["whole", "streamed", "closed", "never iterated"])
def test_the_openai_types(how: str, cycle: Pair, telemetry: Telemetry) -> None:
    """`create_chat_completion_openai_v1`: its objects, and one chat span as ever."""
    types = pytest.importorskip("openai.types.chat", reason="without what the [dev] extra brings")
    llama = cycle.llama()
    options = {"max_tokens": 5, "temperature": 0.0}
    if how == "whole":
        answer = llama.create_chat_completion_openai_v1(MESSAGES, **options)
        assert isinstance(answer, types.ChatCompletion)
    else:
        chunks = llama.create_chat_completion_openai_v1(MESSAGES, stream=True, **options)
        if how == "streamed":
            assert {type(chunk) for chunk in chunks} == {types.ChatCompletionChunk}
        elif how == "closed":
            for _ in range(3):
                next(chunks)
            chunks.close()
        del chunks
    if how == "never iterated":
        assert telemetry.spans() == ()
        return
    found = attributes(telemetry.span())
    reason, tokens = ("closed", 2) if how == "closed" else ("length", 5)
    assert found[Attr.GEN_AI_RESPONSE_FINISH_REASONS] == (reason,)
    assert found[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == tokens
