"""The token loop around an engine's own generator: two clock readings and two appends a token."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial
from itertools import chain, islice
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from otel_specdecode.generation.faults import report_fault_later
from otel_specdecode.generation.record import Ending
from otel_specdecode.generation.running import Generation
from otel_specdecode.generation.timeline import CHUNK_TOKENS, FLUSH_NS

Item = TypeVar("Item")
Sent = TypeVar("Sent")


class Outcome(NamedTuple):
    """What the last item of a stream tells of its end.

    Attributes:
        finish_reason: The engine's word; for a stream closed early `closed`, or None if nobody can say.
        complete: The final response was handed out.
        last_pass_finished: The last emitted token is the target's own (correction or bonus).
    """

    finish_reason: str | None
    complete: bool
    last_pass_finished: bool


class End(NamedTuple):
    """How a stream went out.

    Attributes:
        item: The last item, None if there was none.
        exhausted: There was nothing more to come.
        failure: What went through the stream: GeneratorExit where the consumer closed it, None if nothing did.
        dropped: The failure is the consumer's own, thrown in.
        at: Clock reading (ns).
    """

    item: Any
    exhausted: bool
    failure: BaseException | None
    dropped: bool
    at: int


class Part(Protocol):
    """Which part of a generation a token stream is: how it begins and ends, and when a token counts as asked for."""

    @property
    def generation(self) -> Generation:
        """Where its tokens go."""

    @property
    def resumed(self) -> Callable[[], int]:
        """Reads the clock (ns) as the next token is asked for; called once a token."""

    def begin(self) -> int:
        """Begin at the first resume; return the clock reading (ns) at which the first token was asked for."""

    def end(self, end: End) -> None:
        """Take the end. Never raises; may run inside garbage collection."""


def watch(
    stream: Generator[Item, object, None],
    generation: Generation,
    outcome: Callable[[Generation, Item | None, bool], Outcome],
) -> Generator[Item, object, None]:
    """Follow a stream that is the whole of its generation.

    Args:
        stream: The engine's generator, one item a token, not started yet.
        generation: Where times go; it begins at the first resume and ends exactly once.
        outcome: Reads the end: the generation, the last item (None if there was none), and whether the stream was
            exhausted.
    """
    return follow(stream, _Whole(generation, outcome))


def follow(stream: Generator[Item, object, None], part: Part) -> Generator[Item, object, None]:
    """Yield what the engine yields, and keep when each token was asked for and when it came.

    Exceptions, `send`, `throw` and `close` reach the engine's generator as if nothing stood between.

    Args:
        stream: The engine's generator, one item a token, not started yet.
        part: Which part of which generation it is.
    """
    generation, resumed = part.generation, part.resumed
    timeline, clock = generation.timeline, generation.clock
    item: Item | None = None
    exhausted = dropped = False
    failure: BaseException | None = None
    began = part.begin()
    flush_at = began + FLUSH_NS
    timeline.resumes.append(began)
    source: Iterator[Item] = stream
    try:
        while True:
            before = timeline.emitted()
            resumes, yields = timeline.resumes, timeline.yields
            for item in islice(source, CHUNK_TOKENS):
                yields.append(now := clock())
                if now >= flush_at:
                    flush_at = generation.hand_over(now)
                    resumes, yields = timeline.resumes, timeline.yields
                try:
                    sent = yield item
                except GeneratorExit:
                    raise
                except BaseException as thrown:
                    dropped = True
                    resumes.append(resumed())
                    source = chain(answer(stream.throw, thrown), stream)
                    break
                resumes.append(resumed())
                if sent is not None:
                    generation.ledger.sent = True
                    source = chain(answer(stream.send, sent), stream)
                    break
            else:
                if timeline.emitted() - before < CHUNK_TOKENS:
                    exhausted = True
                    return
                flush_at = generation.hand_over(clock())
    except BaseException as error:
        failure = error
        raise
    finally:
        at = clock()
        try:
            stream.close()
        finally:
            part.end(End(item, exhausted, failure, dropped, at))
            failure = None  # its traceback holds this frame: a cycle that would hold the engine's caches


def answer(call: Callable[[Sent], Item], value: Sent) -> Iterator[Item]:
    """Yield what the engine's generator gives for a value or an exception that the consumer put in."""
    try:
        item = call(value)
    except StopIteration:
        return
    finally:
        # An exception thrown in holds this frame by its traceback: a cycle that would hold the engine's caches.
        del value
    yield item


class _Whole(Generic[Item]):
    def __init__(self, generation: Generation, outcome: Callable[[Generation, Item | None, bool], Outcome]) -> None:
        self.generation = generation
        self.resumed = generation.clock
        self._outcome = outcome

    def begin(self) -> int:
        return self.generation.begin()

    def end(self, end: End) -> None:
        generation = self.generation
        outcome = read_outcome(partial(self._outcome, generation, end.item, end.exhausted))
        generation.end(ending_of(outcome, end, generation.timeline.last_yield))


def read_outcome(outcome: Callable[[], Outcome]) -> Outcome:
    """Read how a stream ended; a fault in doing so is told later, and nothing is then known."""
    try:
        return outcome()
    except Exception as error:
        report_fault_later("the end of a generation could not be read", error)
        return Outcome(None, False, False)


def ending_of(outcome: Outcome, end: End, completed_at: int | None) -> Ending:
    """Return how a stream ended.

    Args:
        outcome: What its last item tells.
        end: How it went out.
        completed_at: Clock reading (ns) at which the final response was handed out, if it was.
    """
    failure, finished = end.failure, outcome.last_pass_finished
    closed = isinstance(failure, GeneratorExit)
    if outcome.complete and (failure is None or closed or end.dropped):
        return Ending("complete", completed_at or end.at, outcome.finish_reason, None, finished)
    if failure is None or closed:
        return Ending("closed", end.at, outcome.finish_reason, None, finished)
    return Ending("error", end.at, "error", error_type(failure), finished)


def error_type(error: BaseException) -> str:
    """Return the class name of an exception, qualified by its module unless it is a builtin."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
