"""llama.cpp: requests through `llama_cpp.Llama.create_completion`, whose draft belongs to the `Llama` object."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from otel_specdecode.demo.engines.interface import DRAFT_LENGTH, Engine, Generate, Mode, ModelChoice

_OPTIONS: dict[str, Any] = {
    "n_ctx": 1024,  # a multiple of 256: with any other, a draft fails near the end of the context
    # As many for one token as for several: llama-cpp-python's defaults differ, and would favour speculation.
    "n_threads": 1,
    "n_threads_batch": 1,
    "verbose": False,
}
_NOTE = (
    "llama.cpp runs through Llama.create_completion, on one thread. Its autoregressive requests have a Llama made "
    "without a draft, as a program without speculation would; each draft has one of its own, made with logits_all=True "
    "as a draft requires, so that copying the logits of every position counts as a cost of speculation. Each request "
    "begins with empty KV caches, so every prompt is read whole."
)
_CONVERTED = "The weights are the same float16 numbers that MLX-LM reads, in a GGUF file of type f16."


class LlamaCppTarget:
    """A target of llama.cpp. Each way to run it is a `Llama` of its own on the same file."""

    def __init__(self, source: Path, scratch: Path) -> None:
        """Load a GGUF file, or a folder of the tiny pair."""
        self.note = f"{_NOTE} {_CONVERTED}" if source.is_dir() else _NOTE
        self._scratch = scratch
        self._file = self._as_file(source)
        self._alone = self._llama()

    def tokenize(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        return list(self._alone.tokenize(text.encode(), add_bos=False, special=True))

    def alone(self) -> Generate:
        """Return a `Llama` that keeps the logits of the last position alone."""
        return partial(_generate, self._alone, None)

    def with_draft(self, source: Path) -> Generate:
        """Return a `Llama` with another model as its draft."""
        from otel_specdecode.engines.llama_cpp.model_draft import ModelDraft

        draft = ModelDraft(str(self._as_file(source)), self._alone, num_pred_tokens=DRAFT_LENGTH, **_OPTIONS)
        return partial(_generate, self._llama(draft_model=draft, logits_all=True), draft.llama)

    def poor_draft(self, model: ModelChoice, seed: int) -> Mode:  # noqa: ARG002 - the same draft serves both models
        """Return a `Llama` with the draft that llama-cpp-python itself brings, which copies from the prompt."""
        from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

        draft = LlamaPromptLookupDecoding(num_pred_tokens=DRAFT_LENGTH)
        return Mode(
            "prompt lookup",
            "tokens that once followed the last two in prompt and output: no draft model, and mostly wrong",
            partial(_generate, self._llama(draft_model=draft, logits_all=True), None),
        )

    def _llama(self, **options: Any) -> Any:
        from llama_cpp import Llama

        return Llama(str(self._file), **_OPTIONS, **options)

    def _as_file(self, source: Path) -> Path:
        if source.is_file():
            return source
        from otel_specdecode.tiny_pair import gguf

        # f16 is how the weights are stored: f32 would take twice the memory and add nothing.
        return gguf.convert(source, self._scratch / f"{source.name}.gguf", "f16")


ENGINE = Engine(
    name="llama_cpp",
    title="llama.cpp",
    packages={"llama_cpp": "llama-cpp-python"},
    probe="llama_cpp",
    extras="demo,llama-cpp",
    load=LlamaCppTarget,
)


def _generate(llama: Any, draft: Any, prompt: Sequence[int], tokens: int) -> str:
    for each in filter(None, (llama, draft)):
        each.reset()  # or what this prompt has in common with the last one would not be read again
    stream = llama.create_completion(prompt=list(prompt), max_tokens=tokens, temperature=0.0, stream=True)
    with closing(stream):
        return "".join(chunk["choices"][0]["text"] for chunk in stream)
