"""The token loop around an engine's own generator: two clock readings and two appends a token."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial
from itertools import chain, islice
from typing import NamedTuple, TypeVar

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


def watch(
    stream: Generator[Item, object, None],
    generation: Generation,
    outcome: Callable[[Generation, Item | None, bool], Outcome],
) -> Generator[Item, object, None]:
    """Yield what the engine yields, and keep when each token was asked for and when it came.

    Exceptions, `send`, `throw` and `close` reach the engine's generator as if nothing stood between.

    Args:
        stream: The engine's generator, one item a token, not started yet.
        generation: Where times go; it begins at the first resume and ends exactly once.
        outcome: Reads the end: the generation, the last item (None if there was none), and whether the stream was
            exhausted.
    """
    timeline, clock = generation.timeline, generation.clock
    item: Item | None = None
    exhausted = dropped = False
    failure: BaseException | None = None
    began = generation.begin()
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
                    resumes.append(clock())
                    source = chain(_answer(stream.throw, thrown), stream)
                    break
                resumes.append(clock())
                if sent is not None:
                    source = chain(_answer(stream.send, sent), stream)
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
            _tell_end(generation, partial(outcome, generation, item, exhausted), failure, dropped, at)
            failure = None  # its traceback holds this frame: a cycle that would hold the engine's caches


def _answer(call: Callable[[Sent], Item], value: Sent) -> Iterator[Item]:
    try:
        item = call(value)
    except StopIteration:
        return
    finally:
        # An exception thrown in holds this frame by its traceback: a cycle that would hold the engine's caches.
        del value
    yield item


def _tell_end(
    generation: Generation, outcome: Callable[[], Outcome], failure: BaseException | None, dropped: bool, at: int
) -> None:
    """Tell how a stream ended; `dropped`: the failure is the consumer's own, thrown in."""
    try:
        found = outcome()
    except Exception as error:
        report_fault_later("the end of a generation could not be read", error)
        found = Outcome(None, False, False)
    generation.end(_ending(found, failure, dropped, at, generation.timeline.last_yield))


def _ending(outcome: Outcome, failure: BaseException | None, dropped: bool, at: int, last_yield: int | None) -> Ending:
    closed = isinstance(failure, GeneratorExit)
    if outcome.complete and (failure is None or closed or dropped):
        return Ending("complete", last_yield or at, outcome.finish_reason, None, outcome.last_pass_finished)
    if failure is None or closed:
        return Ending("closed", at, outcome.finish_reason, None, outcome.last_pass_finished)
    return Ending("error", at, "error", error_type(failure), outcome.last_pass_finished)


def error_type(error: BaseException) -> str:
    """Return the class name of an exception, qualified by its module unless it is a builtin."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
