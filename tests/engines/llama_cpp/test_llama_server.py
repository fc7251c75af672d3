"""Our counts on llama-cpp-python against those of llama.cpp's own server: same files, same prompts, same tokens.

Both verify a draft in the same rounds, and count differently where a stream ends. Each rule of difference is a sentence
and a line of `rounds_here`, which turns what the server reports into what we must report, without a margin. The server
tells proposed and accepted tokens of each round, since it sends its totals with every token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy", reason="needs the [mlx] extra")
pytest.importorskip("safetensors", reason="needs the [mlx] extra")
pytest.importorskip("tokenizers", reason="needs the [mlx] extra")
llama_cpp = pytest.importorskip("llama_cpp", reason="needs the [llama-cpp] extra")

from opentelemetry.sdk.trace import ReadableSpan  # noqa: E402

from otel_specdecode.engines.llama_cpp.model_draft import ModelDraft  # noqa: E402
from otel_specdecode.telemetry.names import Attr, Metrics  # noqa: E402
from otel_specdecode.testing.capture import Telemetry, capture  # noqa: E402
from otel_specdecode.tiny_pair import PROMPTS, model_path  # noqa: E402
from otel_specdecode.tiny_pair.cycle import CyclePair, build  # noqa: E402
from otel_specdecode.tiny_pair.gguf import convert  # noqa: E402
from tests.engines.llama_cpp.llama_server import VARIABLE, Answer, Counters, Step, program, running  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.e2e,
    pytest.mark.llama_cpp,
    pytest.mark.skipif(
        program() is None,
        reason=f"without a llama-server program: build one with scripts/build_llama_server.py and name it in {VARIABLE}",
    ),
]

EOS = 2
CONTEXT = 512
DRAFT_LENGTHS = (2, 4, 6)
LIMITS = (1, 2, 3, 5, 9, 40)
TRAINED_LIMITS = (40, 41, 43, 120)


@dataclass(frozen=True)
class Pair:
    """Two models as files for llama.cpp, and the draft by itself.

    Attributes:
        target: Path of the target.
        draft: Path of the draft.
        alone: The draft, loaded a second time: says which token it would put after given ones.
    """

    target: Path
    draft: Path
    alone: Any

    def guess(self, tokens: list[int]) -> int:
        """The draft's next token, from an empty cache."""
        self.alone.reset()
        return int(next(self.alone.generate(tokens, temp=0.0, repeat_penalty=1.0)))


@dataclass(frozen=True)
class Request:
    """What both programs are asked.

    Attributes:
        prompt: Token ids.
        limit: The most tokens.
        stop: Stop strings.
    """

    prompt: list[int]
    limit: int
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Told:
    """What both programs told of some requests, in order, and of all of them together."""

    answers: list[Answer]
    server: Counters
    texts: list[str]
    spans: list[ReadableSpan]
    here: Counters


def ask_both(pair: Pair, k: int, requests: Sequence[Request], folder: Path) -> Told:
    """Put the requests to a new server and, with our instrumentation, to a new Llama."""
    with running(pair.target, pair.draft, k, n_ctx=CONTEXT, log=folder / "server.log") as server:
        answers = [server.complete(each.prompt, each.limit, each.stop) for each in requests]
        counters = server.counters()
    draft = ModelDraft(str(pair.draft), str(pair.target), num_pred_tokens=k, n_ctx=CONTEXT)
    llama = load(pair.target, draft_model=draft, logits_all=True)
    texts = []
    with capture() as telemetry:
        for each in requests:
            llama.reset()
            told = llama.create_completion(each.prompt, max_tokens=each.limit, temperature=0, stop=list(each.stop))
            texts.append(told["choices"][0]["text"])
        return Told(answers, counters, texts, list(telemetry.spans()), counters_here(telemetry, k))
