"""llama_cpp.server answers as it does without instrumentation: each answer is compared with that of a bare server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.llama_cpp_server import LOOKUP, OF_THE_MOMENT, running, skip_unless_installed, target
from tests.e2e.parity import Question, differences
from tests.e2e.servers import ASKED, CHAT, ENDLESS, TEXT

skip_unless_installed()

pytestmark = [pytest.mark.e2e, pytest.mark.llama_cpp, pytest.mark.slow]

EMBEDDINGS = "/v1/embeddings"

LONG = "once upon a time " * 200
"""More tokens than fit in the context."""

REPEATED = "Gus and Tess decided to share the silver key. Tess was very calm, and Gus was glad too."
TOOL = {"type": "function", "function": {"name": "fetch", "parameters": {"type": "object", "properties": {}}}}
TURNS = [
    {"role": "system", "content": "You tell stories."},
    {"role": "user", "content": "Tell me of a fox."},
    {"role": "assistant", "content": "Once upon a time there was a fox."},
    {"role": "user", "content": "And then?"},
]


def asked(path: str, **more: Any) -> tuple[Question, Question]:
    """A completion, whole and as a stream."""
    body = {"max_tokens": 12, "seed": 11, **ASKED[path], **more}
    return Question(path, body), Question(path, {**body, "stream": True})


SEEDED = [
    question
    for path in (TEXT, CHAT)
    for more in (
        {},
        {"temperature": 0},
        {"temperature": 1.3, "top_p": 0.8, "top_k": 20, "min_p": 0.02, "repeat_penalty": 1.2},
        {"max_tokens": 1},
        {"max_tokens": 80, "seed": 3},
        {"stop": [" a", " the", "."], **ENDLESS},
        {"logit_bias": {"5": 100}},
        {"presence_penalty": 0.6, "frequency_penalty": 0.4, "user": "somebody"},
        {"model": "gpt-4-made-up"},
    )
    for question in asked(path, **more)
] + [
    *asked(TEXT, logprobs=3),
    *asked(TEXT, echo=True, suffix=" The end."),
    *asked(TEXT, min_tokens=4),
    *asked(TEXT, prompt=["in a list"]),
    *asked(CHAT, logprobs=True, top_logprobs=2),
    *asked(CHAT, messages=TURNS[:2]),
    *asked(CHAT, messages=TURNS),
    *asked(CHAT, messages=[{"role": "user", "content": f"Repeat this: {REPEATED}"}], temperature=0, max_tokens=48),
    *asked(CHAT, tools=[TOOL]),
    *asked(CHAT, response_format={"type": "json_object"}, max_tokens=24),
    Question(EMBEDDINGS, {"input": ["a story", "another"]}),
    Question(TEXT, {**ASKED[TEXT], "seed": 7, "max_tokens": 4}, headers={"Content-Type": "text/json"}),
]

REFUSED = [
    *asked(TEXT, prompt=LONG),
    *asked(CHAT, messages=[{"role": "user", "content": LONG}]),
    *asked(TEXT, prompt=""),
    *asked(TEXT, prompt=["two", "prompts"]),
    *asked(TEXT, temperature="warm"),
    *asked(CHAT, messages="none"),
    *asked(CHAT, messages=[{"role": "nobody", "content": "?"}]),
    Question(CHAT, {"messages": []}),
    Question(TEXT, b'{"prompt": '),
    Question(TEXT, b"\xff\xfe"),
    Question(TEXT, None),
    Question(EMBEDDINGS, {}),
    Question(TEXT, None, "GET"),
    Question(TEXT, None, "DELETE"),
    Question("/v1/nothing", None, "GET"),
]

OTHER = [
    Question("/v1/models", None, "GET"),
    Question("/v1/models", None, "GET", {"Origin": "http://localhost"}),
    Question("/openapi.json", None, "GET"),
    Question("/extras/tokenize", {"input": "a story"}),
    Question("/extras/tokenize/count", {"input": "a story"}),
    Question("/extras/detokenize", {"tokens": [40, 41, 42]}),
    Question(CHAT, None, "OPTIONS", {"Origin": "http://localhost", "Access-Control-Request-Method": "POST"}),
]


@pytest.mark.parametrize("options", [("--embedding", "true"), LOOKUP], ids=["plain", "drafting"])
def test_answers_are_those_of_a_bare_server_but_for_ids_and_times(options: Sequence[str], tmp_path: Path) -> None:
    model = target(tmp_path)
    with (
        running(model, tmp_path / "bare", *options, instrumented=False) as bare,
        running(model, tmp_path / "instrumented", *options) as instrumented,
    ):
        assert differences(bare, instrumented, [*SEEDED, *REFUSED, *OTHER, *SEEDED[:4]], OF_THE_MOMENT) == []
        assert instrumented.received.wait_for(lambda received: received.latest("specdecode.request.started"))
        assert bare.received.requests == {}


def test_an_answer_that_is_another_would_be_noticed(tmp_path: Path) -> None:
    model = target(tmp_path)
    with (
        running(model, tmp_path / "one", instrumented=False) as one,
        running(model, tmp_path / "other", "--n_ctx", "256", instrumented=False) as other,
    ):
        questions = (*asked(CHAT), *asked(TEXT, prompt="once upon a time " * 100))
        assert [each.question for each in differences(one, other, questions, OF_THE_MOMENT)] == list(questions[2:])
