"""One face for the real engines, on the pair whose every token is known: what must hold on both is said once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

PROMPT = [301, 302, 303]
Inside = Callable[[], object]
"""Is called by the engine itself, once for each token or more often."""


class Engine(ABC):
    """A loaded pair.

    Attributes:
        name: The engine's module.
        kinds: Every kind of call that makes spans, by what it is; called, it runs to its end.
    """

    name: str
    kinds: Mapping[str, Callable[[], object]]

    @abstractmethod
    def stream(
        self, tokens: int, *, speculative: bool = False, place: int = 0, inside: Inside | None = None
    ) -> Iterator[Any]:
        """Return a stream, which may be closed.

        Args:
            tokens: So many come.
            speculative: Whether the draft takes part.
            place: Streams that are open at the same time need places of their own.
            inside: Is called by the engine.
        """

    @abstractmethod
    def close(self) -> None:
        """Free the models."""


class MLX(Engine):
    """MLX-LM; a model serves any number of streams."""

    name = "mlx_lm"

    def __init__(self, folder: Path) -> None:
        """Build the pair in a folder and load it under instrumentation."""
        from tests.engines.mlx_lm.conftest import load_cycle

        self.pair = load_cycle(folder)
        self.kinds = {
            "stream": lambda: list(self.stream(6)),
            "speculative stream": lambda: list(self.stream(6, speculative=True)),
            "whole answer": self._whole,
            "batch": self._batch,
        }

    def stream(
        self, tokens: int, *, speculative: bool = False, place: int = 0, inside: Inside | None = None
    ) -> Iterator[Any]:
        import mlx_lm

        def processor(_: Any, logits: Any) -> Any:
            if inside is not None:
                inside()
            return logits

        options: dict[str, Any] = {} if inside is None else {"logits_processors": [processor]}
        if speculative:
            options |= {"draft_model": self.pair.draft, "num_draft_tokens": 3}
        running: Iterator[Any] = mlx_lm.stream_generate(
            self.pair.target, self.pair.tokenizer, PROMPT, max_tokens=tokens, **options
        )
        return running

    def close(self) -> None:
        del self.pair

    def _whole(self) -> object:
        import mlx_lm

        return mlx_lm.generate(self.pair.target, self.pair.tokenizer, PROMPT, max_tokens=6)

    def _batch(self) -> object:
        import mlx_lm

        return mlx_lm.batch_generate(self.pair.target, self.pair.tokenizer, [PROMPT, [310]], max_tokens=[3, 6])


class LlamaCpp(Engine):
    """llama-cpp-python; a model serves one stream at a time, so each place has one of its own."""

    name = "llama_cpp"

    def __init__(self, folder: Path) -> None:
        """Build the pair in a folder; models are loaded as they are needed."""
        from otel_specdecode.tiny_pair import cycle
        from otel_specdecode.tiny_pair.gguf import convert
        from tests.engines.llama_cpp.conftest import Pair

        truth = cycle.build(folder)
        target = convert(truth.target, folder / "target.gguf", "f32")
        self.pair = Pair(target, convert(truth.draft, folder / "draft.gguf", "f32"), truth)
        self._loaded: dict[tuple[int, str], Any] = {}
        self.kinds = {
            "stream": lambda: list(self.stream(6)),
            "speculative stream": lambda: list(self.stream(6, speculative=True)),
            "whole answer": lambda: self._complete("none", stream=False),
            "prompt lookup": lambda: list(self._complete("prompt lookup")),
            "chat": lambda: self._chat("none"),
            "speculative chat": lambda: self._chat("draft model"),
            "token loop": self._loop,
            "embeddings": lambda: self._llama(0, "embeddings").create_embedding(["one", "two"]),
        }

    def stream(
        self, tokens: int, *, speculative: bool = False, place: int = 0, inside: Inside | None = None
    ) -> Iterator[Any]:
        import llama_cpp

        def criterion(*_: Any) -> bool:
            if inside is not None:
                inside()
            return False

        # Not a logits processor: those are called back from C, where what they raise is lost.
        options = {} if inside is None else {"stopping_criteria": llama_cpp.StoppingCriteriaList([criterion])}
        drafts = "draft model" if speculative else "none"
        running: Iterator[Any] = self._complete(drafts, tokens=tokens, place=place, **options)
        return running

    def _complete(self, drafts: str, *, tokens: int = 6, place: int = 0, stream: bool = True, **options: Any) -> Any:
        llama = self._llama(place, drafts)
        return llama.create_completion(PROMPT, max_tokens=tokens, temperature=0.0, stream=stream, **options)

    def _chat(self, drafts: str) -> object:
        messages = [{"role": "user", "content": "hello"}]
        return self._llama(0, drafts).create_chat_completion(messages, max_tokens=6, temperature=0.0)

    def _loop(self) -> None:
        loop = self._llama(0, "none").generate(PROMPT, temp=0.0)
        for _ in range(6):
            next(loop)
        loop.close()

    def _llama(self, place: int, drafts: str) -> Any:
        llama = self._loaded.get((place, drafts))
        if llama is None:
            llama = self._loaded[place, drafts] = self._load(drafts)
        llama.reset()
        return llama

    def _load(self, drafts: str) -> Any:
        from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

        from otel_specdecode.llama_cpp import ModelDraft

        if drafts == "embeddings":
            return self.pair.llama(embedding=True, n_ctx=256)
        if drafts == "prompt lookup":
            return self.pair.llama(LlamaPromptLookupDecoding(max_ngram_size=1, num_pred_tokens=3), n_ctx=256)
        if drafts == "draft model":
            options = {"n_ctx": 256, "n_threads": 1, "n_threads_batch": 1, "verbose": False}
            draft = ModelDraft(self.pair.draft, self.pair.target, num_pred_tokens=3, **options)
            return self.pair.llama(draft, n_ctx=256)
        return self.pair.llama(n_ctx=256)

    def close(self) -> None:
        for llama in self._loaded.values():
            draft, llama.draft_model = llama.draft_model, None
            if hasattr(draft, "llama"):
                draft.llama.close()
            llama.close()


ENGINES: dict[str, Callable[[Path], Engine]] = {"mlx_lm": MLX, "llama_cpp": LlamaCpp}
