"""Applies a plan to a token loop of llama.cpp: what its draft may propose, and nothing else."""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Callable, Generator
from contextlib import suppress
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
        """Return what the draft proposes, cut off. One whose length can be set is not even asked for more."""
        inner = copy.copy(self.inner) if type(self.inner).__module__ == _LOOKUP else self.inner
        lowered = _lower(inner, self.limit)
        try:
            return inner(input_ids, **kwargs)[: self.limit]
        finally:
            if lowered:
                _restore(inner)


class _Lowered:
    """A draft whose length is lowered now: what it is of its own, and for how many calls of several threads."""

    __slots__ = ("calls", "own")

    def __init__(self, own: int) -> None:
        self.own = own
        self.calls = 0


_lowered: dict[int, _Lowered] = {}
"""By the identity of the draft, which somebody holds as long as it is here."""

_lock = threading.RLock()
"""Of the same thread again, since a draft's length may be a property that asks for another one's."""


def length_of(draft: Any) -> int | None:
    """Return the length that a draft has of its own, whether or not it is lowered now; None if it does not tell."""
    with _lock:
        kept = _lowered.get(id(draft))
        return integer(held(draft, _LENGTH)) if kept is None else kept.own


def _lower(draft: Any, limit: int) -> bool:
    """Lower a draft's length until _restore(); return whether that was done. A length that cannot be set stays."""
    with _lock:
        own = length_of(draft)
        if own is None or own <= limit:
            return False
        try:
            setattr(draft, _LENGTH, limit)
        except Exception:
            return False
        _lowered.setdefault(id(draft), _Lowered(own)).calls += 1
        return True


def _restore(draft: Any) -> None:
    """Give a draft its own length back, unless it is lowered for another call yet."""
    with _lock:
        kept = _lowered[id(draft)]
        kept.calls -= 1
        if not kept.calls:
            del _lowered[id(draft)]
            with suppress(Exception):
                setattr(draft, _LENGTH, kept.own)


def _renew_lock() -> None:
    """In the child of a fork, whose parent may have had it."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


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
