"""A class with the methods of llama-cpp-python's `Llama`, whose models cost nothing: what is left is the hooks' cost.

Methods call each other as there: `create_completion` a generator of its own, that one `generate`, that one `eval` for
each pass. Its native handles are those of a real tiny model, because the hooks ask llama.cpp about them once a request.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.streams import K
from otel_specdecode.engines.llama_cpp.hooks import LlamaCppHooks
from otel_specdecode.generation.observer import Observer
from otel_specdecode.testing.fake import WORKED_EXAMPLE

PROMPT = list(range(16))
CONTEXT = 4_096
PROPOSED, OWN = 7, 8
PROPOSAL = [PROPOSED] * K

WATCHED = ("create_completion", "create_chat_completion", "generate", "eval", "embed")
"""What instrumentations replace on the class."""

ONE_THREAD: dict[str, Any] = {"n_threads": 1, "n_threads_batch": 1, "verbose": False}


class SyntheticLlama:
    """The methods of `Llama` that matter. Every request evaluates its whole prompt."""

    def __init__(self, real: Any, draft_model: Any = None) -> None:
        """Take the handles of a real `Llama`."""
        self.ctx, self._model = real.ctx, real._model
        self.model_path = "Llama-3.2-3B-Instruct-Q4_K_M.gguf"
        self.draft_model = draft_model
        self.n_batch, self.n_tokens = 512, 0
        self.input_ids = np.full(CONTEXT, PROPOSED, np.intc)
        self.scores = np.empty((CONTEXT, 1), np.single)
        self._logits_all = True
        self._accepted = cycle(WORKED_EXAMPLE)
        self._accepted_before = 0

    def n_ctx(self) -> int:
        return CONTEXT

    def n_vocab(self) -> int:
        return 128_256

    def eval(self, tokens: Sequence[int]) -> None:
        """One pass: the prompt, one token, or one token and a proposal, of which a part will be accepted."""
        if self.n_tokens and len(tokens) > 1:
            self._accepted_before = self.n_tokens + next(self._accepted)
        self.n_tokens += len(tokens)

    def generate(
        self,
        tokens: Sequence[int],
        top_k: int = 40,  # noqa: ARG002
        top_p: float = 0.95,  # noqa: ARG002
        temp: float = 0.80,  # noqa: ARG002
        reset: bool = True,
        logits_processor: Any = None,  # noqa: ARG002
    ) -> Generator[int, Sequence[int] | None, None]:
        """Evaluate, hand out the tokens that the pass confirms and one of the target's own, ask the draft; for ever."""
        tokens = list(tokens)
        if reset:
            self.n_tokens = 0
        place = self.n_tokens + len(tokens) - 1
        while True:
            self.eval(tokens)
            while place < self.n_tokens:
                token = PROPOSED if place < self._accepted_before else OWN
                place += 1
                sent = yield token
                tokens.clear()
                tokens.append(token)
                if sent is not None:
                    tokens.extend(sent)
                if place < self.n_tokens and token != self.input_ids[place]:
                    self.n_tokens = place
                    break
            if self.draft_model is not None:
                tokens.extend(self.draft_model(self.input_ids[: self.n_tokens + len(tokens)]))

    def create_completion(
        self,
        prompt: str | list[int],
        suffix: str | None = None,  # noqa: ARG002
        max_tokens: int | None = 16,
        temperature: float = 0.8,
        top_p: float = 0.95,
        stop: str | list[str] | None = None,  # noqa: ARG002
        frequency_penalty: float = 0.0,  # noqa: ARG002
        presence_penalty: float = 0.0,  # noqa: ARG002
        top_k: int = 40,
        stream: bool = False,
        seed: int | None = None,  # noqa: ARG002
    ) -> Any:
        """Return the answer, or with `stream` an iterator of chunks."""
        parts = self._create_completion(
            prompt=prompt, max_tokens=max_tokens, temperature=temperature, top_p=top_p, top_k=top_k, stream=stream
        )
        return parts if stream else next(parts)

    def _create_completion(
        self, prompt: Any, max_tokens: Any, temperature: float, top_p: float, top_k: int, stream: bool
    ) -> Iterator[dict[str, Any]]:
        called, created, emitted = f"cmpl-{uuid.uuid4()}", int(time.time()), 0
        for _ in self.generate(prompt, top_k=top_k, top_p=top_p, temp=temperature):
            emitted += 1
            if stream:
                yield self._answer(called, created, " word", None)
            if emitted >= max_tokens:
                break
        answer = self._answer(called, created, "" if stream else " word" * emitted, "length")
        if not stream:
            answer["usage"] = {
                "prompt_tokens": len(prompt),
                "completion_tokens": emitted,
                "total_tokens": len(prompt) + emitted,
            }
        yield answer

    def _answer(self, called: str, created: int, text: str, finish_reason: str | None) -> dict[str, Any]:
        choice = {"text": text, "index": 0, "logprobs": None, "finish_reason": finish_reason}
        return {
            "id": called,
            "object": "text_completion",
            "created": created,
            "model": self.model_path,
            "choices": [choice],
        }

    def create_chat_completion(
        self,
        messages: Any,  # noqa: ARG002
        temperature: float = 0.2,
        stream: bool = False,
        max_tokens: int | None = None,
    ) -> Any:
        """Not measured; instrumentations want it to be there."""
        return self.create_completion(PROMPT, max_tokens=max_tokens, temperature=temperature, stream=stream)

    def embed(self, input: Any, return_count: bool = False) -> Any:  # noqa: A002
        """Not measured; likewise."""


class SyntheticDraft:
    """A draft that runs a `Llama` of its own: one pass for each proposed token."""

    def __init__(self, llama: SyntheticLlama) -> None:
        self.llama = llama
        self.num_pred_tokens = K

    def __call__(self, input_ids: Any, /, **_: Any) -> list[int]:  # noqa: ARG002
        evaluate = self.llama.eval
        for token in PROPOSAL:
            evaluate([token])
        return PROPOSAL


def own_class() -> type[SyntheticLlama]:
    """Return a class that an instrumentation may write to without any other noticing."""
    return type("Llama", (SyntheticLlama,), {name: vars(SyntheticLlama)[name] for name in WATCHED})


def watched_class(observer: Observer) -> type[SyntheticLlama]:
    """Return a class with the real hooks around its methods."""
    made, hooks = own_class(), LlamaCppHooks()
    module: Any = SimpleNamespace(Llama=made)
    hooks.imported(module)
    hooks.install(observer)
    return made


def made(llama_class: Callable[..., SyntheticLlama], real: Any, *, speculates: bool) -> SyntheticLlama:
    """Return a target, with a draft of the same class where it speculates."""
    return llama_class(real, SyntheticDraft(llama_class(real)) if speculates else None)


@contextmanager
def real_handles() -> Iterator[Any]:
    """Give a real `Llama` of the smallest model, for its handles."""
    import llama_cpp

    from otel_specdecode.tiny_pair import model_path
    from otel_specdecode.tiny_pair.gguf import convert

    with TemporaryDirectory() as folder:
        file = convert(model_path("draft-weak"), Path(folder) / "draft-weak.gguf", "f32")
        real = llama_cpp.Llama(str(file), n_ctx=256, **ONE_THREAD)
        try:
            yield real
        finally:
            real.close()
