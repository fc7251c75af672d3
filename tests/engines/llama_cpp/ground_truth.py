"""Counts of a run from what the adapter does not look at: the context, the sampler, and a log that the draft keeps.

The adapter watches `Llama.generate` and `Llama.eval`. What is noted here lies below them, and in the draft.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, pairwise, takewhile
from typing import Any, NamedTuple

import numpy as np
import pytest

from otel_specdecode.generation.counts import POSITIONS

llama_cpp = pytest.importorskip("llama_cpp", reason="needs the [llama-cpp] extra")

from llama_cpp import _internals  # noqa: E402
from llama_cpp.llama_speculative import LlamaDraftModel, LlamaPromptLookupDecoding  # noqa: E402

from otel_specdecode.engines.llama_cpp.model_draft import ModelDraft  # noqa: E402


class Decoded(NamedTuple):
    """A pass is about to be made on a context."""

    context: Any
    width: int


class Sampled(NamedTuple):
    """A token was sampled from a context."""

    context: Any
    token: int


class Asked(NamedTuple):
    """The draft was asked what comes after so many tokens."""

    length: int


class Answered(NamedTuple):
    """The draft returned tokens."""

    tokens: tuple[int, ...]


class Judged(NamedTuple):
    """A stopping criterion was asked whether to stop."""

    stop: bool


Log = list[NamedTuple]


@contextmanager
def watched_engine() -> Iterator[Log]:
    """Note passes and samples of every context in a block, in order."""
    log: Log = []
    decode, sample = _internals.LlamaContext.decode, _internals.LlamaSampler.sample

    def noted_decode(context: Any, batch: Any) -> Any:
        log.append(Decoded(context, int(batch.n_tokens())))
        return decode(context, batch)

    def noted_sample(sampler: Any, context: Any, *rest: Any) -> Any:
        token = sample(sampler, context, *rest)
        log.append(Sampled(context, int(token)))
        return token

    _internals.LlamaContext.decode, _internals.LlamaSampler.sample = noted_decode, noted_sample
    try:
        yield log
    finally:
        _internals.LlamaContext.decode, _internals.LlamaSampler.sample = decode, sample


class Logged:
    """Mixed into a draft: notes what it is asked and what it answers.

    Attributes:
        log: Where to.
    """

    log: Log

    def __call__(self, input_ids: Any, /, **options: Any) -> Any:
        """Note a request and its answer."""
        self.log.append(Asked(len(input_ids)))
        tokens = super().__call__(input_ids, **options)  # type: ignore[misc]
        self.log.append(Answered(tuple(int(token) for token in tokens)))
        return tokens


class _Proposing(LlamaDraftModel):  # type: ignore[misc]
    def __init__(self, k: int, *, declared: bool = True) -> None:
        self.k = k
        if declared:
            self.num_pred_tokens = k

    def __call__(self, input_ids: Any, /, **_: Any) -> Any:
        return np.array(self.propose(input_ids) if self.k else [], dtype=np.intc)

    def propose(self, input_ids: Any) -> Sequence[int]:
        raise NotImplementedError


class Scripted(Logged, _Proposing):
    """Proposes what a function says, which knows the truth; a custom draft."""

    def __init__(self, propose: Any, k: int = 8, *, declared: bool = True) -> None:
        """Take `propose(input_ids)`, the draft length, and whether to tell it as `num_pred_tokens`."""
        super().__init__(k, declared=declared)
        self.propose = propose


class Generating(Logged, _Proposing):
    """Proposes what its Llama's `generate()` yields."""

    def __init__(self, llama: Any, k: int, *, declared: bool = True) -> None:
        """Hold the draft's Llama."""
        super().__init__(k, declared=declared)
        self.model = llama

    def propose(self, input_ids: Any) -> Sequence[int]:
        """Return up to k tokens."""
        loop = self.model.generate(input_ids.tolist(), temp=0.0)
        tokens = list(islice(loop, self.k))
        loop.close()
        return tokens


class Completing(Logged, _Proposing):
    """Proposes the text of its Llama's `create_completion()`, in whatever tokens it comes to."""

    def __init__(self, llama: Any, k: int, *, declared: bool = True) -> None:
        """Hold the draft's Llama."""
        super().__init__(k, declared=declared)
        self.model = llama

    def propose(self, input_ids: Any) -> Sequence[int]:
        """Return the tokens of a text that was k tokens long."""
        answer = self.model.create_completion(input_ids.tolist(), max_tokens=self.k, temperature=0.0)
        text = answer["choices"][0]["text"].encode()
        tokens: list[int] = self.model.tokenize(text, add_bos=False, special=True)
        return tokens


class Lookup(Logged, LlamaPromptLookupDecoding):  # type: ignore[misc]
    """The engine's own prompt lookup."""


class SecondModel(Logged, ModelDraft):
    """The second model that this package offers."""


@dataclass(frozen=True)
class Round:
    """A pass that verifies proposed tokens.

    Attributes:
        draft: Proposed tokens that reached the target.
        emitted: Tokens emitted from it.
    """

    draft: tuple[int, ...]
    emitted: tuple[int, ...]

    @property
    def accepted(self) -> int:
        """Proposed tokens equal to the emitted token at their place."""
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(self.draft, self.emitted, strict=False)))

    @property
    def finished(self) -> bool:
        """Whether the target's own token was emitted."""
        return len(self.emitted) > self.accepted

    @property
    def rejected(self) -> int:
        """Proposed tokens from the first that differs on."""
        return len(self.draft) - self.accepted if self.finished else 0

    @property
    def unverified(self) -> int:
        """Proposed tokens that nothing was compared with."""
        return 0 if self.finished else len(self.draft) - self.accepted


@dataclass(frozen=True)
class Truth:
    """What a run was.

    Attributes:
        tokens: Tokens the token loop yielded.
        fed: Prompt tokens that were evaluated.
        prefill_passes: Target passes before the first token was sampled.
        widths: Tokens in each later target pass.
        calls: Of each answered request for a proposal, tokens emitted before it and what reached the target.
        draft_widths: Of each request, tokens in each pass of the draft.
    """

    tokens: tuple[int, ...]
    fed: int
    prefill_passes: int
    widths: tuple[int, ...]
    calls: tuple[tuple[int, tuple[int, ...]], ...]
    draft_widths: tuple[tuple[int, ...], ...]

    @property
    def passes(self) -> list[Round]:
        """Every pass that followed a request for a proposal."""
        calls = [*self.calls, (len(self.tokens), ())]
        return [Round(draft, self.tokens[start:end]) for (start, draft), (end, _) in pairwise(calls)]

    @property
    def rounds(self) -> list[Round]:
        """The passes that verified something."""
        return [each for each in self.passes if each.draft]

    @property
    def draft_passes(self) -> int:
        """Draft passes that yielded a token which reached the target: a pass yields one token at most."""
        return sum(
            min(len(draft), len(widths)) for (_, draft), widths in zip(self.calls, self.draft_widths, strict=True)
        )

    def by_position(self, *, accepted: bool) -> list[int]:
        """Proposed or accepted tokens at each place of their draft, the last place holding all further ones."""
        places = [0] * POSITIONS
        for each in self.rounds:
            for place in range(each.accepted if accepted else len(each.draft)):
                places[min(place, POSITIONS - 1)] += 1
        return places


def truth_of(log: Log, llama: Any, prompt: int) -> Truth:
    """Work out what a run was.

    Args:
        log: What `watched_engine()`, the draft and the stopping criteria noted of it alone.
        llama: The target.
        prompt: Tokens of the prompt, those of the KV cache included.

    Raises:
        AssertionError: If what the draft was asked and answered is not what was sampled and decoded.
    """
    target, limit = llama._ctx, int(llama.n_ctx())
    before: list[int] = []
    widths: list[int] = []
    tokens: list[int] = []
    calls: list[tuple[int, tuple[int, ...]]] = []
    draft_widths: list[tuple[int, ...]] = []
    of_draft: list[int] = []
    undecided = True
    for event in log:
        if isinstance(event, Asked):
            of_draft = []
            assert event.length == min(prompt + len(tokens), limit)
        elif isinstance(event, Answered):
            room = limit - prompt - len(tokens)  # where the context is full the engine itself takes all but the last
            calls.append((len(tokens), event.tokens[:room]))
            draft_widths.append(tuple(of_draft))
        elif isinstance(event, Decoded):
            (of_draft if event.context is not target else widths if tokens else before).append(event.width)
        elif isinstance(event, Sampled) and event.context is target:
            tokens.append(event.token)
            undecided = True
        elif isinstance(event, Judged):
            if event.stop and undecided:
                tokens.pop()  # the loop ends without yielding it; asked again after the loop, nothing is lost
            undecided = False
    if calls:
        assert widths == [1 + len(draft) for _, draft in calls]
    return Truth(
        tokens=tuple(tokens),
        fed=sum(before),
        prefill_passes=len(before),
        widths=tuple(widths),
        calls=tuple(calls),
        draft_widths=tuple(draft_widths),
    )
