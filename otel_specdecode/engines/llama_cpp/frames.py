"""Which watched call a piece of code runs in, told by the frames it is called from.

llama-cpp-python hands nothing through from a completion to the passes it makes, and each chunk of a stream may be asked
for on another thread with another context, as web servers do. The frame of a generator stays the same through all that.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, GeneratorType
from typing import Any, Generic, TypeVar

Owner = TypeVar("Owner")

DEPTH = 60
"""Frames looked at upwards: the calls of a draft or a chat handler are a few deep."""


class _Held(Generic[Owner]):
    __slots__ = ("generator", "owner")

    def __init__(self, generator: weakref.ref[GeneratorType[Any, Any, Any]] | None, owner: Owner) -> None:
        self.generator = generator
        self.owner = owner

    def is_live(self) -> bool:
        """Return whether the generator has not ended."""
        generator = None if self.generator is None else self.generator()
        return generator is not None and generator.gi_frame is not None

    def is_of(self, frame: FrameType) -> bool:
        """Return whether the frame is still that of the generator, or of the function that is running."""
        if self.generator is None:
            return True
        generator = self.generator()
        return generator is not None and generator.gi_frame is frame


class Frames(Generic[Owner]):
    """Frames of calls in flight and who watches them. A finished or lost generator is forgotten by itself.

    Attributes:
        held: Owners by the identity of their frame; empty while nothing is in flight.
    """

    def __init__(self, emptied: Callable[[], None] = lambda: None) -> None:
        """Know no frame.

        Args:
            emptied: Called when the last one is gone, maybe inside garbage collection.
        """
        self._emptied = emptied
        self.held: dict[int, _Held[Owner]] = {}

    def claim(self, generator: GeneratorType[Any, Any, Any], owner: Owner) -> None:
        """Note who watches a generator, as long as that lives."""
        key = id(generator.gi_frame)
        self.held[key] = _Held(weakref.ref(generator, lambda gone: self._forget(key, gone)), owner)

    @contextmanager
    def claimed(self, key: int, owner: Owner) -> Iterator[None]:
        """Note who watches the code that a function calls in a block.

        Args:
            key: Identity of the function's frame. A local variable that held the frame would hold itself.
            owner: Who watches.
        """
        self.held[key] = _Held(None, owner)
        try:
            yield
        finally:
            self._forget(key, None)

    def nearest(self, frame: FrameType) -> Owner | None:
        """Return who watches the frame or the nearest of those that called it."""
        if not self.held:
            return None
        found = self._found(frame)
        return None if found is None else found.owner

    def any_runs(self) -> bool:
        """Return whether a call is in flight; a generator that has ended may be held by whoever ran it."""
        return any(held.generator is None or held.is_live() for held in list(self.held.values()))

    def runs(self, frame: FrameType) -> bool:
        """Return whether the frame or one of those that called it is watched."""
        return bool(self.held) and self._found(frame) is not None

    def _found(self, start: FrameType) -> _Held[Owner] | None:
        frame: FrameType | None = start
        for _ in range(DEPTH):
            if frame is None:
                return None
            found = self.held.get(id(frame))
            if found is not None and found.is_of(frame):
                return found
            frame = frame.f_back
        return None

    def _forget(self, key: int, generator: weakref.ref[GeneratorType[Any, Any, Any]] | None) -> None:
        """Forget a frame, unless its identity is another's by now."""
        found = self.held.get(key)
        if found is not None and found.generator is generator:
            del self.held[key]
        if not self.held:
            self._emptied()
