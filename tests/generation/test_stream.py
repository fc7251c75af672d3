"""The token loop: nothing but clock readings is added, and every ending is told once."""

from __future__ import annotations

import gc
import logging
import sys
import threading
import tracemalloc
import weakref
from collections.abc import Callable, Generator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_specdecode.generation import faults
from otel_specdecode.generation.folding import FoldingObserver
from otel_specdecode.generation.request import Request
from otel_specdecode.generation.running import Generation
from otel_specdecode.generation.stream import Outcome, error_type, watch
from otel_specdecode.testing.fake import MILLISECOND, FakeClock, Script, fake_stream
from tests.generation.driving import OPERATIONS, Operation, drive

REQUEST = Request("text_completion", "mlx", "target")
FINAL = 5


def bare(failing_at: int | None = None, catching: bool = False) -> Generator[int, Any, None]:
    """An engine's generator of five tokens, the last one final, that takes sent values and may catch what is thrown."""
    number = 0
    while number < FINAL:
        number += 1
        if number == failing_at:
            raise RuntimeError("engine")
        try:
            sent = yield number
        except LookupError:
            if not catching:
                raise
            sent = 0
        if sent:
            number += sent


def outcome(_: Generation, item: int | None, exhausted: bool) -> Outcome:
    """The last token is final."""
    complete = exhausted or (item or 0) >= FINAL
    return Outcome("stop" if complete else "closed", complete, True)


def watched(
    make: Callable[[], Generator[int, Any, None]], observer: FoldingObserver, clock: FakeClock | None = None
) -> Generator[int, Any, None]:
    """The same generator, watched."""
    generation = Generation(observer.admit(), lambda _: REQUEST, clock or FakeClock())
    generation.ledger.plain_passes = FINAL
    return watch(make(), generation, outcome)


@given(OPERATIONS, st.one_of(st.none(), st.integers(1, FINAL)), st.booleans())
def test_a_watched_generator_answers_as_a_bare_one(
    operations: list[Operation], failing_at: int | None, catching: bool
) -> None:
    """next, send, throw and close give and raise the same, in any order, whatever the engine does with them."""
    observer = FoldingObserver()
    stream = watched(lambda: bare(failing_at, catching), observer)
    assert drive(stream, operations) == drive(bare(failing_at, catching), operations)
    stream.close()
    assert all(len(recording.endings) == 1 for recording in observer.recordings)


def test_a_stream_consumed_to_its_end_is_complete() -> None:
    """Exhausted: complete, with the engine's finish reason, at the last token's time."""
    observer = FoldingObserver()
    assert list(watched(bare, observer)) == [1, 2, 3, 4, 5]
    ending = observer.record.ending
    assert (ending.kind, ending.finish_reason, ending.error_type) == ("complete", "stop", None)


def test_a_stream_dropped_after_its_final_response_is_complete() -> None:
    """Closed or thrown into after the final response: complete all the same, and the later time does not count."""
    for drop in ("close", "throw"):
        observer, clock = FoldingObserver(), FakeClock()
        stream = watched(bare, observer, clock)
        for _ in range(FINAL):
            next(stream)
        clock.advance(60_000 * MILLISECOND)
        if drop == "close":
            stream.close()
        else:
            with pytest.raises(LookupError):
                stream.throw(LookupError("late"))
        assert observer.record.ending.kind == "complete"
        assert observer.record.timing.duration == 0


def test_a_stream_closed_early_is_closed() -> None:
    """close() before the final response: closed, no error."""
    observer = FoldingObserver()
    stream = watched(bare, observer)
    next(stream)
    stream.close()
    ending = observer.record.ending
    assert (ending.kind, ending.finish_reason, ending.error_type) == ("closed", "closed", None)


def test_an_engine_error_is_an_error() -> None:
    """An exception of the engine reaches the caller unchanged and is told by its class."""
    observer = FoldingObserver()
    with pytest.raises(RuntimeError, match="engine"):
        list(watched(lambda: bare(failing_at=3), observer))
    ending = observer.record.ending
    assert (ending.kind, ending.finish_reason, ending.error_type) == ("error", "error", "RuntimeError")
    assert observer.record.counts.tokens == 2


def test_an_exception_thrown_in_is_an_error() -> None:
    """throw() before the final response: an error of that class."""
    observer = FoldingObserver()
    stream = watched(bare, observer)
    next(stream)
    with pytest.raises(KeyboardInterrupt):
        stream.throw(KeyboardInterrupt())
    assert observer.record.ending.error_type == "KeyboardInterrupt"


def test_a_stream_never_iterated_leaves_nothing() -> None:
    """Without a first resume nothing begins, and nothing is kept."""
    observer = FoldingObserver()
    alive = []

    def make() -> Generator[int, Any, None]:
        engine = bare()
        alive.append(weakref.ref(engine))
        return engine

    stream = watched(make, observer)
    del stream
    assert observer.recordings == []
    assert alive[0]() is None


def test_a_dropped_stream_ends_at_once() -> None:
    """Dropping the last reference closes the engine's generator and tells the end, without a collector run."""
    observer = FoldingObserver()
    closed = []

    def engine() -> Generator[int, Any, None]:
        try:
            yield from (1, 2)
        finally:
            closed.append(True)

    stream = watched(engine, observer)
    next(stream)
    del stream
    assert closed == [True]
    assert observer.record.ending.kind == "closed"


def test_a_stream_in_a_cycle_ends_when_collected() -> None:
    """A stream that only the garbage collector finds ends then, on whatever thread that runs."""
    observer = FoldingObserver()
    holder: dict[str, Any] = {}
    holder["self"], holder["stream"] = holder, watched(bare, observer)
    next(holder["stream"])
    del holder
    collector = threading.Thread(target=gc.collect)
    collector.start()
    collector.join()
    assert observer.record.ending.kind == "closed"


def test_nothing_is_held_after_the_end() -> None:
    """A finished generator object holds no token, no engine generator and no recording."""

    class Token:
        pass

    observer = FoldingObserver()
    alive = []

    def engine() -> Generator[Token, Any, None]:
        token = Token()
        alive.append(weakref.ref(token))
        yield token

    generation = Generation(observer.admit(), lambda _: REQUEST, FakeClock())
    stream = watch(engine(), generation, lambda _, item, exhausted: Outcome("stop", True, True))
    del generation
    for _ in stream:
        pass
    del _
    assert alive[0]() is None
    assert len(observer.recordings) == 1


def test_telemetry_that_raises_never_reaches_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    """Begin, progress and finish may all fail: the stream goes on, one warning a cause, no text of the exception."""

    class Failing(FoldingObserver):
        def begin(self, request: Request, began: int, ago: int) -> Any:
            raise ValueError("secret prompt")

    class FailingLater(FoldingObserver):
        def begin(self, request: Request, began: int, ago: int) -> Any:
            recording = super().begin(request, began, ago)
            recording.progress = recording.finish = None  # type: ignore[method-assign, assignment]
            return recording

    faults.tell_faults()
    faults._told.clear()
    caplog.clear()
    with caplog.at_level(logging.DEBUG):
        for observer in (Failing(), FailingLater(), Failing(), FailingLater()):
            assert list(watched(bare, observer)) == [1, 2, 3, 4, 5]
        faults.tell_faults()
    assert [record.levelname for record in caplog.records] == ["WARNING", "DEBUG"] * 2
    assert "secret" not in caplog.text


def test_an_outcome_that_raises_never_reaches_the_caller() -> None:
    """Reading the last item may fail; the stream ends as the engine ended it, and is told to have ended."""

    def broken(_: Generation, item: int | None, exhausted: bool) -> Outcome:
        raise TypeError

    observer = FoldingObserver()
    generation = Generation(observer.admit(), lambda _: REQUEST, FakeClock())
    generation.ledger.plain_passes = FINAL
    assert list(watch(bare(), generation, broken)) == [1, 2, 3, 4, 5]
    assert observer.record.counts.tokens == FINAL


def test_a_long_stream_is_not_dark() -> None:
    """About once a second, and at least every 256 tokens, what there is is handed over."""
    observer, clock = FoldingObserver(), FakeClock()
    script = Script(tokens=600, target_step=26 * MILLISECOND)
    for number, _ in enumerate(fake_stream(observer, script, clock), 1):
        assert number - observer.recordings[0].tally.totals.tokens <= 39
    fast = FoldingObserver()
    for number, _ in enumerate(fake_stream(fast, Script(tokens=600, target_step=1_000), clock), 1):
        assert number - fast.recordings[0].tally.totals.tokens <= 256
    assert observer.record.counts.tokens == fast.record.counts.tokens == 600


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="counts CPython's allocations")
def test_memory_stays_bounded() -> None:
    """At most 10 bytes a token beyond one chunk, constant above 4,096 tokens, and nothing after the end."""

    def engine(tokens: int) -> Generator[int, Any, None]:
        yield from (1 for _ in range(tokens))

    class Forgetful(FoldingObserver):
        def begin(self, request: Request, began: int, ago: int) -> Any:
            recording = super().begin(request, began, ago)
            recording.deltas = _Nowhere()  # type: ignore[assignment]
            return recording

    chunk = 60_000
    sizes = {}
    for tokens in (256, 4_000, 8_000, 40_000):
        observer = Forgetful()
        generation = Generation(observer.admit(), lambda _: REQUEST)
        stream = watch(engine(tokens + 1), generation, outcome)
        gc.collect()
        tracemalloc.start()
        for _ in range(tokens):
            next(stream)
        sizes[tokens] = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        stream.close()
    assert sizes[4_000] - sizes[256] <= 10 * 4_000 + chunk
    assert sizes[40_000] <= sizes[8_000] + chunk


class _Nowhere(list[Any]):
    def append(self, value: object) -> None:
        pass


def test_error_types_are_qualified_unless_builtin() -> None:
    """error.type is the class name with its module, without one for a builtin."""

    class OwnError(Exception):
        pass

    assert error_type(KeyError("secret")) == "KeyError"
    assert error_type(OwnError()).endswith(
        "test_stream.test_error_types_are_qualified_unless_builtin.<locals>.OwnError"
    )
