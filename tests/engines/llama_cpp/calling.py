"""Calls of a Llama by each of its entries, with a draft whose every proposal is known, and what their spans say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

llama_cpp = pytest.importorskip("llama_cpp", reason="needs the [llama-cpp] extra")

from llama_cpp.llama_speculative import LlamaDraftModel  # noqa: E402

from otel_specdecode.telemetry.names import Attr  # noqa: E402
from otel_specdecode.testing.capture import Telemetry  # noqa: E402
from otel_specdecode.tiny_pair.cycle import CyclePair, build  # noqa: E402
from otel_specdecode.tiny_pair.gguf import convert  # noqa: E402
from tests.engines.llama_cpp.conftest import Pair  # noqa: E402
from tests.engines.llama_cpp.ground_truth import Decoded, Log, Sampled  # noqa: E402
from tests.engines.spans import attributes  # noqa: E402

PROMPT = [301, 302, 303]
OTHER = [310, 311]
MESSAGES = [{"role": "user", "content": "hello"}]
K = 4
ENTRIES = ("completion", "chat", "generate")
TEXTS = ("completion", "chat")
"""Those that give text."""


class Walk(LlamaDraftModel):  # type: ignore[misc]
    """Proposes what the cycle pair's draft would say, as the arithmetic knows it."""

    def __init__(self, truth: CyclePair, k: int = K) -> None:
        self.num_pred_tokens = k
        self._truth = truth

    def __call__(self, input_ids: Any, /, **kwargs: Any) -> Any:
        return np.array(self._truth.drafted(int(input_ids[-1]), self.num_pred_tokens), dtype=np.intc)


def load(pair: Pair, k: int | None, **options: Any) -> Any:
    """The target, with a draft if k is given."""
    assert pair.truth is not None
    return pair.llama(None if k is None else Walk(pair.truth, k), **options)


def patterned(folder: Path, **options: Any) -> Pair:
    """A cycle pair of its own."""
    truth = build(folder, **options)
    return Pair(convert(truth.target, folder / "target.gguf", "f32"), folder / "none", truth)


def call(entry: str, llama: Any, limit: int = 40, *, stream: bool = True, **options: Any) -> Any:
    """Call a Llama by one of its entries."""
    if entry == "completion":
        prompt = options.pop("prompt", PROMPT)
        return llama.create_completion(prompt, max_tokens=limit, temperature=0.0, stream=stream, **options)
    if entry == "chat":
        messages = options.pop("messages", MESSAGES)
        return llama.create_chat_completion(messages, max_tokens=limit, temperature=0.0, stream=stream, **options)
    return llama.generate(options.pop("prompt", PROMPT), temp=0.0, **options)


def take(entry: str, stream: Iterator[Any], tokens: int) -> None:
    """Take so many tokens: one a chunk, and in a chat one chunk before that tells the role."""
    for _ in range(tokens + (entry == "chat")):
        next(stream)


def ended(span: ReadableSpan) -> tuple[StatusCode, str, int]:
    """Status, finish reason and output tokens."""
    found = attributes(span)
    (reason,) = found[Attr.GEN_AI_RESPONSE_FINISH_REASONS]
    return span.status.status_code, reason, found[Attr.GEN_AI_USAGE_OUTPUT_TOKENS]


def complete(llama: Any, tokens: int, prompt: Sequence[int] = PROMPT, **options: Any) -> Any:
    """Make one greedy completion."""
    return llama.create_completion(list(prompt), max_tokens=tokens, temperature=0.0, **options)


def passes(log: Log, llama: Any) -> int:
    """Passes that were made on a Llama's context."""
    return sum(isinstance(each, Decoded) and each.context is llama._ctx for each in log)


def samples(log: Log, llama: Any) -> int:
    """Tokens that were sampled from a Llama's context."""
    return sum(isinstance(each, Sampled) and each.context is llama._ctx for each in log)


def named(telemetry: Telemetry, name: str) -> dict[str, Any]:
    """The attributes of the one span of a name."""
    (span,) = [span for span in telemetry.spans() if span.name == name]
    return attributes(span)
