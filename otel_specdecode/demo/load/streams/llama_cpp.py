"""Streams of llama.cpp: each open one has a `Llama` for itself, which has its draft for good."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from opentelemetry.instrumentation.utils import suppress_instrumentation

from otel_specdecode.demo.load.driver import Stream
from otel_specdecode.demo.load.plan import DRAFT_LENGTHS, Arrival, Way
from otel_specdecode.demo.load.streams.prompts import BAD_NOISE, Prompts, prompts
from otel_specdecode.tiny_pair import gguf, model_path

WAYS: tuple[Way, ...] = ("alone", *DRAFT_LENGTHS, "prompt lookup")

_CONTEXT = 2048
_OPTIONS: dict[str, Any] = {"n_ctx": _CONTEXT, "n_threads": 1, "n_threads_batch": 1, "verbose": False}
_MOST = 4
"""Llamas for each way."""


class LlamaCppStreams:
    """The tiny pair in llama.cpp."""

    def __init__(self, scratch: Path, seed: int) -> None:
        """Convert the models, and load a `Llama` for each way.

        Args:
            scratch: Folder for the converted files.
            seed: Of the bad draft's noise.
        """
        from otel_specdecode.tiny_pair.dial import with_noise

        self._closers: list[Callable[[], None]] = []
        self._target = _converted(model_path("target"), scratch)
        self._draft = _converted(model_path("draft-kd"), scratch)
        # Under the good one's name, as a bad deployment would have it.
        noisy = with_noise(model_path("draft-kd"), scratch / "noisy" / "draft-kd", BAD_NOISE, seed=seed)
        self._bad = _converted(noisy, scratch / "bad")
        self._vocabulary = self._load("alone")
        self._free: dict[Way, list[Any]] = {"alone": [self._vocabulary]}
        self._free.update((way, [self._load(way)]) for way in WAYS if way not in self._free)
        self._made: dict[Way, int] = dict.fromkeys(WAYS, 1)
        self._used: dict[int, Any] = {}
        self._prompts: Prompts = prompts(lambda text: _chat(self._vocabulary, text))
        with suppress_instrumentation():
            for (llama,) in self._free.values():
                llama.create_completion(self._prompts.short[0], max_tokens=8, temperature=0.0)

    def open(self, arrival: Arrival) -> Stream | None:
        """Return the stream of a request, None while every `Llama` of its way has another."""
        llama = self._take(arrival.way)
        if llama is None:
            return None
        prompt = self._prompts.pick(arrival)
        if arrival.fails:
            prompt = prompt * (_CONTEXT // len(prompt) + 1)  # longer than the context
        sampling: dict[str, Any] = {"temperature": 0.0}
        if arrival.temperature:
            sampling = {
                "temperature": arrival.temperature,
                "top_p": 0.95,
                "top_k": 40,
                "frequency_penalty": 0.1,
                "presence_penalty": 0.1,
                "stop": ["###"],
            }
        stream: Stream = llama.create_completion(
            prompt, max_tokens=arrival.tokens, seed=arrival.seed, stream=True, **sampling
        )
        self._used[id(stream)] = llama
        return stream

    def release(self, arrival: Arrival, stream: Stream) -> None:
        """Take back the `Llama` of a stream that has ended."""
        self._free[arrival.way].append(self._used.pop(id(stream)))

    def close(self) -> None:
        """Free all models."""
        for close in reversed(self._closers):
            close()
        self._closers.clear()

    def _take(self, way: Way) -> Any:
        if not self._free[way] and self._made[way] < _MOST:
            self._made[way] += 1
            return self._load(way)
        return self._free[way].pop() if self._free[way] else None

    def _load(self, way: Way) -> Any:
        from llama_cpp import Llama

        if way == "alone":
            llama = Llama(str(self._target), **_OPTIONS)
        else:
            llama = Llama(str(self._target), draft_model=self._drafting(way), logits_all=True, **_OPTIONS)
        self._closers.append(llama.close)
        return llama

    def _drafting(self, way: Way) -> Any:
        if way == "prompt lookup":
            from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

            return LlamaPromptLookupDecoding(num_pred_tokens=4)
        from otel_specdecode.engines.llama_cpp.model_draft import ModelDraft

        file = self._bad if way == "bad draft" else self._draft
        draft = ModelDraft(str(file), self._vocabulary, num_pred_tokens=DRAFT_LENGTHS[way], **_OPTIONS)
        self._closers.append(draft.close)
        return draft


def _converted(source: Path, out: Path) -> Path:
    """Return a model as a GGUF file with room for long prompts: llama.cpp warns of a context beyond the trained one."""
    roomy = shutil.copytree(source, out / "roomy" / source.name)
    config = roomy / "config.json"
    config.chmod(0o644)  # the installed file may be read-only, and a copy is as its original
    facts = json.loads(config.read_text(encoding="utf-8"))
    config.write_text(json.dumps({**facts, "max_position_embeddings": _CONTEXT}), encoding="utf-8")
    return gguf.convert(roomy, out / f"{source.name}.gguf")


def _chat(llama: Any, text: str) -> list[int]:
    from otel_specdecode.demo.lineups import as_chat

    return list(llama.tokenize(as_chat(text).encode(), add_bos=False, special=True))
