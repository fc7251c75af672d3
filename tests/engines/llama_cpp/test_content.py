"""Prompt and completion text: nowhere, unless the user opted in."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

llama_cpp = pytest.importorskip("llama_cpp", reason="needs the [llama-cpp] extra")

from otel_specdecode.telemetry.content import CAPTURE  # noqa: E402
from otel_specdecode.telemetry.names import Attr, Event  # noqa: E402
from otel_specdecode.testing.capture import Telemetry, capture  # noqa: E402
from tests.engines.llama_cpp.conftest import Pair  # noqa: E402

pytestmark = pytest.mark.llama_cpp

SECRET = "the secret word"
USER = {"role": "user", "content": SECRET}
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
LAMP_CALL = {"id": "call_1", "type": "function", "function": {"name": "lamp", "arguments": '{"on":true}'}}


@pytest.fixture
def opted_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[Telemetry]:
    """The engines instrumented into memory, content on spans."""
    monkeypatch.setenv(CAPTURE, "SPAN_ONLY")
    with capture() as captured:
        yield captured


def messages(telemetry: Telemetry) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Input messages and the output message of the one span."""
    found = dict(telemetry.span().attributes or {})
    (output,) = json.loads(str(found[Attr.GEN_AI_OUTPUT_MESSAGES]))
    return json.loads(str(found[Attr.GEN_AI_INPUT_MESSAGES])), output


def text(content: str) -> dict[str, str]:
    """A part of a message."""
    return {"type": "text", "content": content}


def said(result: Any) -> str:
    """What a caller got of text, from an answer or from chunks."""
    pieces = []
    for each in [result] if isinstance(result, dict) else result:
        choice = each["choices"][0]
        whole = choice.get("message") or choice.get("delta") or {}
        pieces.append(choice.get("text") or whole.get("content") or "")
    return "".join(pieces)


@contextmanager
def nothing_said(telemetry: Telemetry, caplog: pytest.LogCaptureFixture, *texts: str) -> Iterator[None]:
    """No text of these in any span, metric, event or log, the debug level included."""
    with caplog.at_level(logging.DEBUG):
        yield
        spans = "".join(span.to_json() for span in telemetry.spans())
    everything = [spans, caplog.text, str(telemetry.points()), str(telemetry.logs())]
    assert spans
    for each in texts:
        assert each.strip()
        assert not any(each.strip() in place for place in everything)


@pytest.mark.parametrize("setting", [None, "NO_CONTENT", "true"])
@pytest.mark.parametrize("stream", [False, True])
def test_by_default_nothing_is_said(
    setting: str | None, stream: bool, cycle: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither prompts nor answers nor tool calls leave, whatever is called; an unknown value is no consent."""
    monkeypatch.delenv(CAPTURE, raising=False)
    if setting is not None:
        monkeypatch.setenv(CAPTURE, setting)
    llama, caller = cycle.llama(), cycle.llama(chat_format="chatml-function-calling")
    with capture() as telemetry:
        greedy = {"max_tokens": 6, "temperature": 0.0, "stream": stream}
        texts: list[str] = [SECRET, "lamp"]
        with nothing_said(telemetry, caplog, *texts):
            texts.append(said(llama.create_completion(SECRET, **greedy)))
            texts.append(said(llama.create_chat_completion([USER], **greedy)))
            list(caller.create_chat_completion([USER], tools=TOOLS, tool_choice=LAMP, **greedy))
            next(llama.generate(llama.tokenize(SECRET.encode()), temp=0.0))
        with nothing_said(telemetry, caplog, *texts):
            pass
        keys = {key for span in telemetry.spans() for key in span.attributes or {}}
        assert not keys & {Attr.GEN_AI_INPUT_MESSAGES, Attr.GEN_AI_OUTPUT_MESSAGES}
        assert telemetry.events(Event.GEN_AI_CLIENT_INFERENCE_OPERATION_DETAILS) == []


@pytest.mark.parametrize("fails", [False, True])
def test_errors_say_nothing(fails: bool, cycle: Pair, telemetry: Telemetry, caplog: pytest.LogCaptureFixture) -> None:
    """An engine error quotes what it was given: its text does not leave, opted in or not."""

    def handler(**_: Any) -> Any:
        raise ValueError(SECRET)

    llama = cycle.llama(chat_handler=handler)
    with nothing_said(telemetry, caplog, SECRET), pytest.raises(ValueError, match=SECRET):
        llama.create_chat_completion([USER], stream=fails)


@pytest.mark.parametrize("stream", [False, True])
def test_a_completions_prompt_and_text(stream: bool, cycle: Pair, opted_in: Telemetry) -> None:
    """As the caller gave it and got it."""
    answer = said(cycle.llama().create_completion(SECRET, max_tokens=6, temperature=0.0, stream=stream))
    assert answer
    assert messages(opted_in) == (
        [{"role": "user", "parts": [text(SECRET)]}],
        {"role": "assistant", "parts": [text(answer)], "finish_reason": "length"},
    )


def test_a_prompt_of_tokens_is_decoded(cycle: Pair, opted_in: Telemetry) -> None:
    """It is text all the same."""
    llama = cycle.llama()
    tokens = llama.tokenize(SECRET.encode(), add_bos=False)
    llama.create_completion(tokens, max_tokens=2, temperature=0.0)
    assert messages(opted_in)[0] == [{"role": "user", "parts": [text(SECRET)]}]


def test_tokens_that_are_no_text_alone(cycle: Pair, opted_in: Telemetry) -> None:
    """Half a character in the prompt is replaced, the call goes on."""
    llama = cycle.llama()
    half = llama.tokenize("é".encode(), add_bos=False)[:1]
    llama.create_completion(half, max_tokens=2, temperature=0.0)
    assert messages(opted_in)[0] == [{"role": "user", "parts": [text("\N{REPLACEMENT CHARACTER}")]}]


@pytest.mark.parametrize("stream", [False, True])
def test_a_chats_messages(stream: bool, cycle: Pair, opted_in: Telemetry) -> None:
    """Roles, texts of messages in several parts, tool calls and their answers; what is no text is left out."""
    history = [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,secret"}},
                {"type": "text", "text": "this?"},
            ],
        },
        {"role": "assistant", "content": None, "tool_calls": [LAMP_CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "It is on."},
        USER,
    ]

    def handler(*, llama: Any, stream: bool, **_: Any) -> Any:
        return llama.create_completion("Answer:", max_tokens=4, temperature=0.0, stream=stream)

    llama = cycle.llama(chat_handler=handler)
    answer = said(llama.create_chat_completion(history, stream=stream))
    call = {"type": "tool_call", "id": "call_1", "name": "lamp", "arguments": '{"on":true}'}
    assert messages(opted_in) == (
        [
            {"role": "system", "parts": [text("Be brief.")]},
            {"role": "user", "parts": [text("What is"), text("this?")]},
            {"role": "assistant", "parts": [call]},
            {"role": "tool", "parts": [{"type": "tool_call_response", "id": "call_1", "response": "It is on."}]},
            {"role": "user", "parts": [text(SECRET)]},
        ],
        {"role": "assistant", "parts": [text(answer)], "finish_reason": "length"},
    )


@pytest.mark.parametrize("stream", [False, True])
def test_the_engines_own_chat_format(stream: bool, cycle: Pair, opted_in: Telemetry) -> None:
    """The messages, not the prompt that a template makes of them."""
    answer = said(cycle.llama().create_chat_completion([USER], max_tokens=5, temperature=0.0, stream=stream))
    found, output = messages(opted_in)
    assert found == [{"role": "user", "parts": [text(SECRET)]}]
    assert output == {"role": "assistant", "parts": [text(answer)], "finish_reason": "length"}


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_call_of_the_answer(stream: bool, cycle: Pair, opted_in: Telemetry) -> None:
    """Whole or put together from the pieces of a stream, it is one part and no text."""
    llama = cycle.llama(chat_format="chatml-function-calling")
    result = llama.create_chat_completion([USER], tools=TOOLS, tool_choice=LAMP, temperature=0.0, stream=stream)
    if stream:
        pieces = [chunk["choices"][0]["delta"].get("tool_calls") or [] for chunk in result]
        calls = [call for piece in pieces for call in piece]
    else:
        calls = result["choices"][0]["message"]["tool_calls"]
    arguments = "".join(call["function"]["arguments"] for call in calls)
    assert json.loads(arguments).keys() == {"on"}
    part = {"type": "tool_call", "id": calls[0]["id"], "name": "lamp", "arguments": arguments}
    assert messages(opted_in)[1] == {"role": "assistant", "parts": [part], "finish_reason": "tool_calls"}


def test_two_tool_calls_in_a_stream(cycle: Pair, opted_in: Telemetry) -> None:
    """In the pieces that OpenAI's own servers send: an id in the first of each, an index in all."""

    def piece(index: int, arguments: str, identity: str | None = None, name: str | None = None) -> dict[str, Any]:
        call = {"index": index, "id": identity, "function": {"name": name, "arguments": arguments}}
        return {"choices": [{"delta": {"content": None, "tool_calls": [call]}, "finish_reason": None}]}

    def handler(*, llama: Any, **_: Any) -> Iterator[Any]:
        llama.create_completion("Which?", max_tokens=2, temperature=0.0)
        yield from (piece(0, '{"on"', "one", "lamp"), piece(0, ":true}"), piece(1, "{}", "two", "bell"), piece(1, " "))
        yield {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}

    list(cycle.llama(chat_handler=handler).create_chat_completion([USER], stream=True))
    assert messages(opted_in)[1]["parts"] == [
        {"type": "tool_call", "id": "one", "name": "lamp", "arguments": '{"on":true}'},
        {"type": "tool_call", "id": "two", "name": "bell", "arguments": "{} "},
    ]


def test_what_was_said_before_a_stream_was_closed(cycle: Pair, opted_in: Telemetry) -> None:
    """As far as it was handed out."""
    stream = cycle.llama().create_completion(SECRET, max_tokens=9, temperature=0.0, stream=True)
    answer = said([next(stream) for _ in range(3)])
    stream.close()
    assert messages(opted_in)[1] == {"role": "assistant", "parts": [text(answer)], "finish_reason": "closed"}


def test_only_the_answer_of_a_chat_is_told(cycle: Pair, opted_in: Telemetry) -> None:
    """Not the completions that its handler makes on the way."""

    def handler(*, llama: Any, **_: Any) -> Any:
        llama.create_completion("Think first.", max_tokens=3, temperature=0.0)
        return llama.create_completion("Answer.", max_tokens=3, temperature=0.0)

    answer = said(cycle.llama(chat_handler=handler).create_chat_completion([USER]))
    found, output = messages(opted_in)
    assert found == [{"role": "user", "parts": [text(SECRET)]}]
    assert output["parts"] == [text(answer)]


def test_a_bare_token_loop_has_no_text(cycle: Pair, opted_in: Telemetry) -> None:
    """generate() sees tokens alone."""
    loop = cycle.llama().generate([301, 302], temp=0.0)
    next(loop)
    loop.close()
    assert not {Attr.GEN_AI_INPUT_MESSAGES, Attr.GEN_AI_OUTPUT_MESSAGES} & set(opted_in.span().attributes or {})


@pytest.mark.parametrize("chosen", ["EVENT_ONLY", "SPAN_AND_EVENT"])
def test_content_as_an_event(chosen: str, cycle: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the span's context, and on the span only where that was asked for too."""
    monkeypatch.setenv(CAPTURE, chosen)
    with capture() as telemetry:
        answer = said(cycle.llama().create_chat_completion([USER], max_tokens=4, temperature=0.0))
        span = telemetry.span()
        (event,) = telemetry.events(Event.GEN_AI_CLIENT_INFERENCE_OPERATION_DETAILS)
    assert event.trace_id == span.context.trace_id
    assert SECRET in str(event.attributes[Attr.GEN_AI_INPUT_MESSAGES])
    assert answer in str(event.attributes[Attr.GEN_AI_OUTPUT_MESSAGES])
    assert (Attr.GEN_AI_INPUT_MESSAGES in (span.attributes or {})) is (chosen == "SPAN_AND_EVENT")


# Content that cannot be read


class Odd:
    """Neither text nor a mapping, and it says so."""

    def __getattr__(self, name: str) -> Any:
        raise TypeError(SECRET)

    def __iter__(self) -> Any:
        raise TypeError(SECRET)

    def __str__(self) -> str:
        raise TypeError(SECRET)


def answering(answer: Any) -> Callable[..., Any]:
    """A handler that makes a completion and gives something else."""

    def handler(*, llama: Any, stream: bool, **_: Any) -> Any:
        llama.create_completion("Answer.", max_tokens=3, temperature=0.0)
        return iter([answer, answer]) if stream else answer

    return handler


UNREADABLE_MESSAGES = {
    "nothing": None,
    "a number": 5,
    "numbers": [5],
    "objects": [Odd()],
    "a role that is none": [{"role": Odd(), "content": SECRET}],
    "content that is none": [{"role": "user", "content": 5}],
    "parts that are none": [{"role": "user", "content": [5]}],
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("given", UNREADABLE_MESSAGES.values(), ids=UNREADABLE_MESSAGES)
def test_messages_that_cannot_be_read(
    given: Any, stream: bool, cycle: Pair, opted_in: Telemetry, caplog: pytest.LogCaptureFixture
) -> None:
    """A handler of one's own may take anything: the call is as it is bare, and it is told once, without the text."""
    answer = {"choices": [{"message": {"content": "fine"}, "finish_reason": "stop"}]}
    llama = cycle.llama(chat_handler=answering(answer))
    with caplog.at_level(logging.DEBUG):
        for _ in range(2):
            result = llama.create_chat_completion(given, stream=stream)
            assert (list(result) == [answer] * 2) if stream else (result is answer)
        spans = opted_in.spans()
    assert len(spans) == 2
    assert all(dict(span.attributes or {})[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == 3 for span in spans)
    assert sum(record.levelname == "WARNING" for record in caplog.records) == 1
    assert "secret" not in caplog.text


UNREADABLE_ANSWERS = {
    "nothing": None,
    "a number": 5,
    "no choices": {},
    "a choice that is none": {"choices": [5]},
    "a message that is none": {"choices": [{"message": 5, "finish_reason": None}]},
    "a tool call that is none": {"choices": [{"message": {"tool_calls": [5]}, "finish_reason": None}]},
    "an object": Odd(),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("answer", UNREADABLE_ANSWERS.values(), ids=UNREADABLE_ANSWERS)
def test_answers_that_cannot_be_read(
    answer: Any, stream: bool, cycle: Pair, opted_in: Telemetry, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever a handler gives is handed on as it is."""
    llama = cycle.llama(chat_handler=answering(answer))
    with caplog.at_level(logging.DEBUG):
        result = llama.create_chat_completion([USER], stream=stream)
        assert [each is answer for each in (result if stream else [result])] == [True] * (1 + stream)
        found = dict(opted_in.span().attributes or {})
    assert found[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == 3
    assert opted_in.span().status.is_ok or opted_in.span().status.is_unset
    assert "secret" not in caplog.text


def test_messages_that_can_be_read_once(cycle: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may hand over an iterator, which chat formats take: the prompt is the same, content kept or not."""
    sent = []
    for setting in ("NO_CONTENT", "SPAN_ONLY"):
        monkeypatch.setenv(CAPTURE, setting)
        with capture() as telemetry:
            cycle.llama().create_chat_completion(messages=iter([USER]), max_tokens=2, temperature=0.0)
            sent.append(dict(telemetry.span().attributes or {})[Attr.GEN_AI_USAGE_INPUT_TOKENS])
    assert sent[0] == sent[1]


def test_messages_are_read_as_they_were_sent(cycle: Pair, opted_in: Telemetry) -> None:
    """A chat loop appends the answer to the list it sent while the stream's record is still being written."""
    history = [dict(USER)]
    stream = cycle.llama().create_chat_completion(history, max_tokens=3, temperature=0.0, stream=True)
    next(stream)
    history.append({"role": "assistant", "content": "later"})
    history[0]["content"] = "changed"
    list(stream)
    assert messages(opted_in)[0] == [{"role": "user", "parts": [text(SECRET)]}]
