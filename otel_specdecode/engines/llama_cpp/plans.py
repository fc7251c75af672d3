"""Applies a plan to a token loop of llama.cpp: what its draft may propose, and nothing else."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from otel_specdecode.engines.arguments import held, integer
from otel_specdecode.generation.plan import Plan

_LENGTH = "num_pred_tokens"
_LOOKUP = "llama_cpp.llama_speculative"
"""Where the engine's own draft is from. It keeps nothing between calls, so one may serve several Llamas at once."""


class ShorterDraft:
    """A draft that proposes fewer tokens, in the place of the one that it asks.

    Attributes:
        inner: The draft that it asks.
        limit: The most tokens that it proposes.
    """

    def __init__(self, inner: Any, limit: int) -> None:
        """Stand in for a draft."""
        self.inner = inner
        self.limit = limit

    def __call__(self, input_ids: Any, /, **kwargs: Any) -> Any:
        """Return what the draft proposes, cut off. One that has a length of its own is not even asked for more."""
        inner = self.inner
        own = integer(held(inner, _LENGTH))
        if own is None or own <= self.limit:
            return inner(input_ids, **kwargs)[: self.limit]
        if type(inner).__module__ == _LOOKUP:
            inner = copy.copy(inner)
        setattr(inner, _LENGTH, self.limit)
        try:
            return inner(input_ids, **kwargs)[: self.limit]
        finally:
            setattr(inner, _LENGTH, own)


def changes(plan: Plan, asked: int | None) -> bool:
    """Return whether a plan lets a draft of this length propose less than it would."""
    return asked != 0 and plan.length(asked) != asked


def limited(stream: Generator[Any, Any, None], llama: Any, plan: Plan) -> Generator[Any, Any, None]:
    """Yield what a token loop yields, while its Llama has the draft that a plan allows, or none.

    The Llama has its own draft whenever the loop is not running, so that nobody else meets another one.
    """
    step: Callable[[], Any] = partial(stream.send, None)
    while True:
        own = llama.draft_model
        stand_in = None if plan.autoregressive or own is None else ShorterDraft(own, plan.draft_length or 0)
        llama.draft_model = stand_in
        try:
            token = step()
        except StopIteration:
            return
        finally:
            if llama.draft_model is stand_in:  # else the program gave it another one meanwhile
                llama.draft_model = own
            del step  # an exception thrown in holds this frame by its traceback: a cycle that would hold the Llama
        try:
            step = partial(stream.send, (yield token))
        except GeneratorExit:
            stream.close()
            raise
        except BaseException as thrown:
            step = partial(stream.throw, thrown)
