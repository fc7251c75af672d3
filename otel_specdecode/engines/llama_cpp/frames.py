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


class Frames(Generic[Owner]):
    """Frames of calls in flight and who watches them. A finished or lost generator is forgotten by itself."""

    def __init__(self, emptied: Callable[[], None] = lambda: None) -> None:
        """Know no frame.

        Args:
            emptied: Called when the last one is gone, maybe inside garbage collection.
        """
        self._emptied = emptied
        self._of_generators: dict[int, tuple[weakref.ref[GeneratorType[Any, Any, Any]], Owner]] = {}
        self._of_functions: dict[int, Owner] = {}

    def __len__(self) -> int:
        """Return how many calls are in flight."""
        return len(self._of_generators) + len(self._of_functions)

    def claim(self, generator: GeneratorType[Any, Any, Any], owner: Owner) -> None:
        """Note who watches a generator, as long as that lives."""
        key = id(generator.gi_frame)
        self._of_generators[key] = weakref.ref(generator, lambda _: self._forget(self._of_generators, key)), owner

    @contextmanager
    def claimed(self, frame: FrameType, owner: Owner) -> Iterator[None]:
        """Note who watches the code that a function's frame calls in a block."""
        key = id(frame)
        self._of_functions[key] = owner
        try:
            yield
        finally:
            self._forget(self._of_functions, key)

    def _forget(self, held: dict[int, Any], key: int) -> None:
        held.pop(key, None)
        if not self:
            self._emptied()

    def owner(self, frame: FrameType) -> Owner | None:
        """Return who watches this very generator."""
        found = self._of_generators.get(id(frame))
        if found is None:
            return None
        generator = found[0]()
        return found[1] if generator is not None and generator.gi_frame is frame else None

    def nearest(self, frame: FrameType | None) -> Owner | None:
        """Return who watches the frame or the nearest of those that called it."""
        if not self._of_generators and not self._of_functions:
            return None
        for _ in range(DEPTH):
            if frame is None:
                return None
            owner = self.owner(frame)
            if owner is None:
                owner = self._of_functions.get(id(frame))
            if owner is not None:
                return owner
            frame = frame.f_back
        return None
