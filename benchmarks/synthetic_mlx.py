"""An engine with MLX-LM's functions and signatures, whose models cost nothing: what is left is the hooks' cost."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import wrapt

from benchmarks.streams import DRAFT, MODEL, K
from otel_specdecode.engines.mlx_lm.calls import CallReader
from otel_specdecode.engines.mlx_lm.streams import Here, StreamHooks
from otel_specdecode.generation.observer import Observer, Relay
from otel_specdecode.identity.names import Loaded
from otel_specdecode.testing.fake import WORKED_EXAMPLE

PROMPT = list(range(16))


@dataclass(frozen=True, slots=True)
class Block:
    """Stands for an array of token ids `[1, tokens]`."""

    shape: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Response:
    """What MLX-LM's `GenerationResponse` has that the hooks read."""

    token: int
    from_draft: bool
    finish_reason: str | None = None
    text: str = " word"


ONE, WHOLE, ALL_BUT_ONE = Block((1, 1)), Block((1, len(PROMPT))), Block((1, len(PROMPT) - 1))
OWN, ACCEPTED, LAST = Response(7, False), Response(7, True), Response(7, False, "length")


class Model:
    """A model whose passes do nothing."""

    def __init__(self) -> None:
        self.args = SimpleNamespace(vocab_size=128_256)

    def __call__(self, inputs: Block, cache: Any = None) -> None:
        pass


class SyntheticMLX:
    """The functions of `mlx_lm.generate` that matter; instrumented, they are replaced on the instance."""

    def __init__(self) -> None:
        self.model, self.draft = Model(), Model()
        self.tokenizer = SimpleNamespace(name_or_path=MODEL)

    def instrument(self, observer: Observer) -> None:
        """Put the real hooks around the functions, as `MLXLMHooks` does with MLX-LM's."""
        reader = CallReader()
        reader.models.remember(self.model, Loaded(MODEL))
        reader.models.remember(self.draft, Loaded(DRAFT))
        relay = Relay()
        relay.observer = observer
        outer, steps = self.stream_generate, (self.generate_step, self.speculative_generate_step)
        hooks = StreamHooks(relay, reader, Here(), outer, steps)
        replaced: Any = self
        replaced.stream_generate = wrapt.FunctionWrapper(outer, hooks.stream_generate)
        replaced.generate_step = wrapt.FunctionWrapper(steps[0], hooks.generate_step)
        replaced.speculative_generate_step = wrapt.FunctionWrapper(steps[1], hooks.speculative_generate_step)

    def request(self, tokens: int, *, speculative: bool = False) -> Any:
        """Call `stream_generate` as a service does."""
        if not speculative:
            return self.stream_generate(self.model, self.tokenizer, PROMPT, tokens, sampler=None)
        return self.stream_generate(
            self.model, self.tokenizer, PROMPT, tokens, self.draft, num_draft_tokens=K, sampler=None
        )

    def stream_generate(
        self,
        model: Model,
        tokenizer: Any,  # noqa: ARG002
        prompt: list[int],
        max_tokens: int = 256,
        draft_model: Model | None = None,
        stream: Any = None,
        **kwargs: Any,
    ) -> Generator[Response, None, None]:
        """One response a token, the last one with a finish reason."""
        kwargs["max_tokens"] = max_tokens
        if draft_model is None:
            tokens = self.generate_step(prompt, model, stream, **kwargs)
        else:
            tokens = self.speculative_generate_step(prompt, model, draft_model, stream, **kwargs)
        for emitted, (_, _, from_draft) in enumerate(tokens, 1):
            if emitted == max_tokens:
                break
            yield ACCEPTED if from_draft else OWN
        yield LAST

    def generate_step(
        self,
        prompt: list[int],  # noqa: ARG002
        model: Model,
        stream: Any = None,  # noqa: ARG002
        *,
        max_tokens: int = 256,
        sampler: Any = None,  # noqa: ARG002
        prompt_cache: Any = None,
        input_embeddings: Any = None,  # noqa: ARG002
    ) -> Iterator[tuple[int, None, bool]]:
        """One pass for the prompt, then one ahead of each token, as MLX-LM does."""
        model(WHOLE, cache=prompt_cache)
        for _ in range(max_tokens):
            model(ONE, cache=prompt_cache)
            yield 7, None, False

    def speculative_generate_step(
        self,
        prompt: list[int],  # noqa: ARG002
        model: Model,
        draft_model: Model,
        stream: Any = None,  # noqa: ARG002
        *,
        num_draft_tokens: int = 2,
        max_tokens: int = 256,
        sampler: Any = None,  # noqa: ARG002
        prompt_cache: Any = None,
    ) -> Iterator[tuple[int, None, bool]]:
        """Rounds of 3.25 tokens on average, the target's own last."""
        model(ALL_BUT_ONE, cache=prompt_cache)
        draft_model(ALL_BUT_ONE, cache=prompt_cache)
        left = max_tokens
        for accepted in cycle(WORKED_EXAMPLE):
            proposed = min(num_draft_tokens, left)
            for _ in range(proposed):
                draft_model(ONE, cache=prompt_cache)
            model(ONE, cache=prompt_cache)
            emitted = min(accepted + 1, left)
            for place in range(emitted):
                yield 7, None, place < accepted
            left -= emitted
            if not left:
                return
