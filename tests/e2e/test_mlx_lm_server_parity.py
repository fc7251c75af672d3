"""mlx_lm.server answers with the same bytes whether it is instrumented or not: both run side by side, over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from otel_specdecode.tiny_pair.cycle import build
from otel_specdecode.tiny_pair.folders import END_OF_TURN
from tests.e2e.arrived import finish_reason, total
from tests.e2e.mlx_lm_server import DRAFT, WITH_USAGE, running, skip_unless_installed, usage_in, usage_of
from tests.e2e.parity import Question, differences
from tests.e2e.servers import CHAT, TEXT, Server
from tests.otlp_receiver import Received, ReceivedSpan

skip_unless_installed()

pytestmark = [pytest.mark.e2e, pytest.mark.mlx, pytest.mark.slow]

SAID: list[dict[str, Any]] = [{"role": "user", "content": "Tell me a story of a fox."}]
TURNS = [
    {"role": "system", "content": "Be short."},
    *SAID,
    {"role": "assistant", "content": "Once upon a time there was a fox."},
    {"role": "user", "content": [{"type": "text", "text": "And "}, {"type": "text", "text": "then?"}]},
]
STORY = {"prompt": "Tell me a story", "max_tokens": 12}
STREAMED = {"stream": True, **WITH_USAGE}
SEEDED = {"seed": 11, "temperature": 0.8}
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]

COMPLETIONS: dict[str, Question] = {
    "text": Question(TEXT, STORY),
    "text again, from the cache": Question(TEXT, STORY),
    "text as a stream": Question(TEXT, {**STORY, **STREAMED}),
    "a stream without usage": Question(TEXT, {**STORY, "stream": True}),
    "one token": Question(TEXT, {**STORY, "max_tokens": 1}),
    "one token as a stream": Question(TEXT, {**STORY, **STREAMED, "max_tokens": 1}),
    "to its own end": Question(TEXT, {**STORY, "max_tokens": 200}),
    "chat": Question(CHAT, {"messages": SAID, "max_tokens": 12}),
    "chat as a stream": Question(CHAT, {"messages": SAID, "max_tokens": 12, **STREAMED}),
    "chat under its other route": Question("/chat/completions", {"messages": SAID, "max_tokens": 3}),
    "turns of a chat": Question(CHAT, {"messages": TURNS, "max_completion_tokens": 9}),
    "turns of a chat as a stream": Question(CHAT, {"messages": TURNS, "max_tokens": 9, **STREAMED}),
    "template arguments": Question(
        CHAT, {"messages": SAID, "max_tokens": 4, "chat_template_kwargs": {"add": "nothing"}}
    ),
    "tools that the model does not know": Question(CHAT, {"messages": SAID, "max_tokens": 6, "tools": TOOLS}),
    "a stop string": Question(TEXT, {**STORY, "max_tokens": 40, "stop": [" was", " a "]}),
    "a stop string as a stream": Question(TEXT, {**STORY, "max_tokens": 40, "stop": " was", **STREAMED}),
    "log probabilities": Question(TEXT, {**STORY, "logprobs": True}),
    "top log probabilities": Question(CHAT, {"messages": SAID, "max_tokens": 5, "logprobs": True, "top_logprobs": 3}),
    "a bias": Question(TEXT, {**STORY, "logit_bias": {"40": 100}}),
    "penalties": Question(
        TEXT,
        {**STORY, "repetition_penalty": 1.4, "presence_penalty": 0.5, "frequency_penalty": 0.5, "max_tokens": 30},
    ),
    "text by seed": Question(TEXT, {**STORY, **SEEDED}),
    "text by seed as a stream": Question(
        TEXT, {**STORY, **SEEDED, **STREAMED, "top_p": 0.9, "top_k": 40, "min_p": 0.01}
    ),
    "chat by seed": Question(CHAT, {"messages": SAID, "max_tokens": 12, **SEEDED, "xtc_probability": 0.5}),
    "another model, by its folder": Question(TEXT, {**STORY, "model": DRAFT[1]}),
    "the first model again": Question(TEXT, {**STORY, "model": "default_model"}),
    "a draft of the client's": Question(TEXT, {**STORY, "draft_model": DRAFT[1], "num_draft_tokens": 4}),
    "a draft of length zero": Question(TEXT, {**STORY, "draft_model": DRAFT[1], "num_draft_tokens": 0}),
}

OTHERS: dict[str, tuple[int | None, Question]] = {
    "malformed JSON": (400, Question(TEXT, b'{"prompt": ')),
    "a body that is no object": (400, Question(TEXT, b"[1, 2]")),
    "no prompt": (400, Question(TEXT, {"max_tokens": 3})),
    "no messages": (400, Question(CHAT, STORY)),
    "a limit of zero": (400, Question(TEXT, {"prompt": "x", "max_tokens": 0})),
    "a bias that is none": (400, Question(TEXT, {"prompt": "x", "logit_bias": {"a": 1}})),
    "a stream that is no switch": (400, Question(TEXT, {"prompt": "x", "stream": "yes"})),
    "a length that is no number": (400, Question(TEXT, b"", headers={"Content-Length": "many"})),
    "a prompt that is no text": (404, Question(TEXT, {"prompt": 7})),
    "a chat without messages": (404, Question(CHAT, {"messages": []})),
    "a message without a role": (404, Question(CHAT, {"messages": [{"content": "x"}]})),
    "an unknown model": (404, Question(TEXT, {"prompt": "x", "model": "/nowhere/at-all"})),
    "an unknown draft": (404, Question(TEXT, {"prompt": "x", "draft_model": "/nowhere/at-all"})),
    "no such path": (404, Question("/v1/nothing", {})),
    "no such page": (404, Question("/nothing", None, "GET")),
    "no such method": (501, Question(TEXT, {}, "PUT")),
    "a seed that the engine does not take": (None, Question(TEXT, {"prompt": "x", "seed": -1})),
    "health": (200, Question("/health", None, "GET")),
    "models": (200, Question("/v1/models", None, "GET")),
    "one model": (200, Question("/v1/models/some/thing", None, "GET")),
    "what a browser asks first": (204, Question(CHAT, None, "OPTIONS", {"Origin": "http://models.example"})),
}
"""With the status; None where the server closes the connection instead."""


@contextmanager
def both_running(folder: Path, *options: str, model: Path | None = None) -> Iterator[tuple[Server, Server]]:
    """A bare server and an instrumented one."""
    with (
        running(folder / "bare", *options, model=model, instrumented=False) as bare,
        running(folder / "instrumented", *options, model=model) as instrumented,
    ):
        yield bare, instrumented


def statuses(server: Server, number: int) -> list[int | None]:
    """Those of its SERVER spans, in the order of the requests, once there is a number of them."""

    def requests(received: Received) -> list[ReceivedSpan]:
        return [span for span in received.spans() if span.kind == "SERVER"]

    server.received.wait_for(lambda received: len(requests(received)) >= number)
    in_order = sorted(requests(server.received), key=lambda span: span.start)
    return [span.attributes.get("http.response.status_code") for span in in_order]


@pytest.mark.parametrize("options", [(), DRAFT], ids=["batching", "drafting"])
def test_every_answer_is_the_same_to_the_byte(options: Sequence[str], tmp_path: Path) -> None:
    """One after the other: what is sampled without a seed, or in a batch with others, differs by itself."""
    questions = [*COMPLETIONS.values(), *(question for _, question in OTHERS.values()), *COMPLETIONS.values()]
    with both_running(tmp_path, *options) as (bare, instrumented):
        assert differences(bare, instrumented, questions) == []

        answered = [200] * len(COMPLETIONS)
        assert statuses(instrumented, len(questions)) == [
            *answered,
            *(status for status, _ in OTHERS.values()),
            *answered,
        ]
        assert instrumented.received.wait_for(
            lambda got: total(got, "specdecode.request.started") >= 2 * len(COMPLETIONS)
        )
        assert bare.received.requests == {}


def test_reasoning_and_tool_calls_are_the_same_to_the_byte(tmp_path: Path) -> None:
    """Of a pair that says known words, written here as a model does that thinks and then calls a tool."""
    words = ["<think>", "hm", "</think>", "<tool_call>", '{"name":"look","arguments":{"at":"it"}}', "</tool_call>"]
    pair = build(tmp_path, eos_after=len(words))
    spoken = pair.tokens(pair.chat_end, len(words) + 1)
    assert spoken[-1] == END_OF_TURN
    for folder in (pair.target, pair.draft):
        rename_words(folder, dict(zip(spoken, words, strict=False)))

    asked = {"messages": SAID, "tools": TOOLS, "max_tokens": 20}
    for mode, options in (("batching", ()), ("drafting", ("--draft-model", str(pair.draft)))):
        with both_running(tmp_path / mode, *options, model=pair.target) as (bare, instrumented):
            assert differences(bare, instrumented, [Question(CHAT, {**asked, **more}) for more in ({}, STREAMED)]) == []
            got = instrumented.post(CHAT, asked)
            (choice,) = got.body["choices"]
            assert choice["message"]["reasoning"] == "hm"
            assert choice["message"]["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"at": "it"}'}
            assert choice["finish_reason"] == "tool_calls"
            _, generation = instrumented.spans(got.trace_id)
            assert finish_reason(generation) == "stop", "of the engine, which knows of no tools"
            assert usage_of(generation) == usage_in(got.body)


def rename_words(folder: Path, words: dict[int, str]) -> None:
    """Have a model's tokens mean other words, and its tokenizer take those for what a model of that kind says."""
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    vocabulary = {number: word for word, number in tokenizer["model"]["vocab"].items()} | words
    tokenizer["model"].update(vocab={word: number for number, word in vocabulary.items()}, merges=[])
    path.write_text(json.dumps(tokenizer))
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "tool_parser_type": "json_tools"}))
