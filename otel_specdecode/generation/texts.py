"""Calls whose engine makes text of its tokens itself, so that the caller does not get what its token loop yields."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Iterator
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from otel_specdecode.generation.faults import report_fault_later
from otel_specdecode.generation.running import Generation
from otel_specdecode.generation.stream import End, Outcome, answer, ending_of, follow, read_outcome

Item = TypeVar("Item")
Chunks = Generator[Any, object, None]

ReadsEnd = Callable[[Any, bool], Outcome]
"""Reads the end of a call from its last chunk or whole answer, and whether there was nothing more to come."""


class TextCall:
    """One call: one recording, and inside it the token stream of one completion or of several, one after another.

    Attributes:
        generation: Where tokens and facts go.
        held: Time (ns) the consumer held chunks since the last token came.
        dropped: The consumer closed the stream of chunks or threw into it.
    """

    def __init__(self, generation: Generation, outcome: ReadsEnd, keep: Callable[[Any], None] | None = None) -> None:
        """Prepare a call; it begins at its first resume or with its first token stream.

        Args:
            generation: Where tokens and facts go.
            outcome: Reads the end.
            keep: Takes each chunk or the whole answer, where the user opted in to content.
        """
        self.generation = generation
        self.held = 0
        self.dropped = False
        self._outcome = outcome
        self._keep = keep
        self._began: int | None = None
        self._asked: int | None = None
        self._resumed = False
        self._segment: weakref.ref[Generator[Any, object, None]] | None = None

    def begin(self) -> None:
        """Begin to record, once."""
        if self._began is None:
            self._began = self._asked = self.generation.begin()

    def ask(self) -> int:
        """Return the clock reading (ns) at which a completion's first token is asked for.

        The first completion's is the beginning of the call, so that the time to the first token holds all before it,
        but for the time that the consumer held chunks that came earlier.
        """
        self.begin()
        asked, self._asked = self._asked, None
        held, self.held = self.held, 0
        return self.generation.clock() if asked is None else asked + held

    def follow(self, stream: Generator[Item, object, None], segment: Segment) -> Generator[Item, object, None]:
        """Follow the token stream of the next completion."""
        followed = follow(stream, segment)
        self._segment = weakref.ref(followed)
        return followed

    def run(self, function: Callable[[], Any], *, lazy: bool) -> Any:
        """Run the engine's function, and end with it unless it gives chunks one by one.

        Args:
            function: The engine's function with its arguments.
            lazy: The caller asked for chunks, so that the call begins when the first one is asked for, or with the
                first token if that comes earlier.

        Returns:
            What the function returns; in the place of an iterator a generator of the same chunks.
        """
        if lazy:
            self.generation.timeline.chunks = []
        else:
            self.begin()
        try:
            result = function()
        except BaseException as error:
            self.begin()
            self._end(End(None, True, error, False, self.generation.clock()), None)
            raise
        if isinstance(result, Iterator):
            return self._lazily(result)
        self.begin()
        self._hold(result)
        self._end(End(result, True, None, False, self.generation.clock()), None)
        return result

    def _lazily(self, result: Iterator[Any]) -> Chunks:
        chunks = self._chunks(result)
        if self._began is not None:
            # Tokens came before the first chunk was asked for. A generator that is never resumed runs no end.
            weakref.finalize(chunks, self._unused).atexit = False
        return chunks

    def _chunks(self, source: Iterator[Any]) -> Chunks:
        generation, clock = self.generation, self.generation.clock
        last: Any = None
        exhausted = False
        failure: BaseException | None = None
        self._resumed = True
        self.begin()
        if generation.timeline.chunks is None:
            generation.timeline.chunks = []
        handed: int | None = None
        coming = source
        try:
            while True:
                for last in coming:
                    self._hold(last)
                    handed = clock()
                    generation.timeline.chunks.append(handed)
                    try:
                        sent = yield last
                    except GeneratorExit:
                        self.dropped = True
                        raise
                    except BaseException as thrown:
                        self.dropped = True
                        coming = chain(answer(getattr(source, "throw", _raise), thrown), source)
                        break
                    finally:
                        self.held += clock() - handed
                    if sent is not None:
                        coming = chain(answer(getattr(source, "send", lambda _: next(source)), sent), source)
                        break
                else:
                    exhausted = True
                    return
        except BaseException as error:
            failure = error
            raise
        finally:
            at = clock()
            try:
                _close(source)
            finally:
                self._end(End(last, exhausted, failure, self.dropped, at), handed)
                failure = None  # its traceback holds this frame

    def _unused(self) -> None:
        """Take the end of a stream that was lost before its first chunk; later a generator tells its end itself."""
        if not self._resumed:
            self._end(End(None, False, None, False, self.generation.clock()), None)

    def _hold(self, item: Any) -> None:
        if self._keep is not None:
            self._keep(item)

    def _end(self, end: End, handed: int | None) -> None:
        """Take the end of the call; `handed`: when the last chunk was. May run inside garbage collection."""
        stream = None if self._segment is None else self._segment()
        if stream is not None:
            # An exception's traceback keeps the engine's token loop alive, which has nothing left to do.
            try:
                stream.close()
            except Exception as error:
                report_fault_later("the end of a completion could not be recorded", error)
        outcome = read_outcome(partial(self._outcome, end.item, end.exhausted))
        self.generation.end(ending_of(outcome, end, handed))


class Segment:
    """One completion of a call, as a part of its generation.

    From one token to the next the engine works on the text, which counts as its own time: only the time that the
    consumer held chunks is taken off.

    Attributes:
        generation: Where its tokens go.
    """

    def __init__(self, call: TextCall, finished: Callable[[Any], bool]) -> None:
        """Prepare a completion.

        Args:
            call: The call it is a part of.
            finished: Tells whether the last token is the target's own (correction or bonus).
        """
        self.generation = call.generation
        self._call = call
        self._finished = finished

    def begin(self) -> int:
        """Begin at the first resume of the engine's token loop."""
        self.generation.timeline.loop_resumed = self.generation.clock()
        return self._call.ask()

    def resumed(self) -> int:
        """Return the clock reading at which the next token counts as asked for."""
        timeline = self.generation.timeline
        timeline.loop_resumed = now = self.generation.clock()
        held, self._call.held = self._call.held, 0
        return now if timeline.last_yield is None else timeline.last_yield + held

    def end(self, end: End) -> None:
        """Take the end of the completion."""
        last = self.generation.timeline.last_yield
        held_until = last + self._call.held if last is not None and self._call.dropped else None
        self._call.held = 0
        try:
            finished = self._finished(end.item)
        except Exception as error:
            report_fault_later("the end of a completion could not be read", error)
            finished = False
        self.generation.end_segment(finished, held_until)


def _raise(error: BaseException) -> Any:
    """Take the place of `throw` for an iterator that has none."""
    try:
        raise error
    finally:
        del error  # its traceback holds this frame


def _close(chunks: Any) -> None:
    if hasattr(chunks, "close"):
        chunks.close()
