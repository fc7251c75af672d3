"""What the tests of MLX-LM's own server ask it for, and read of the spans that come of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import mlx_lm
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind

from otel_specdecode.telemetry.names import Attr
from otel_specdecode.testing.capture import Telemetry
from otel_specdecode.tiny_pair import model_path
from tests.engines.mlx_lm.local_server import Answer
from tests.engines.spans import attributes

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
