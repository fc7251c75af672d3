"""Calls that give text: what is the engine's own time and what the consumer's, and every ending told once."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_specdecode.generation import faults
from otel_specdecode.generation.folding import FoldingObserver
from otel_specdecode.generation.request import Request
from otel_specdecode.generation.running import Generation
from otel_specdecode.generation.stream import Outcome
from otel_specdecode.generation.texts import Segment, TextCall
from otel_specdecode.testing.fake import MILLISECOND, FakeClock
from tests.generation.driving import OPERATIONS, Operation, drive

REQUEST = Request("text_completion", "llama_cpp", "target")

# What the fake engine takes for each step, in ms.
TOKENIZE, PREFILL, FIRST, STEP, TEXT = 5, 100, 10, 20, 3
HOLD = 50
WAIT = TEXT + STEP
"""From one token to the next: the text of the one, and the pass that makes the other."""

Tokens = Generator[int, Any, None]
Chunk = dict[str, Any]
Follow = Callable[[Tokens], Tokens]


@dataclass
class Engine:
    """Makes tokens, and a chunk of text of each, on a clock that is moved by hand.

    Attributes:
        clock: The clock.
        call: The call that is watched; without one nothing is.
        failing_token: The token whose pass raises.
        failing_text: The token whose text raises.
        catching: Catches a LookupError that is thrown in, and goes on.
        alive: Every token loop and every stream of chunks it made, as weak references.
        closed: Tokens that each loop had made as it was closed or done.
    """

    clock: FakeClock
    call: TextCall | None = None
    failing_token: int | None = None
    failing_text: int | None = None
    catching: bool = False
    alive: list[weakref.ref[Any]] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)

    def work(self, milliseconds: int) -> None:
        """Let time pass."""
        self.clock.advance(milliseconds * MILLISECOND)

    def loop(self, tokens: int) -> Tokens:
        """The token loop, followed if the call is watched."""
        made = self._loop(tokens)
        self.alive.append(weakref.ref(made))
        return made if self.call is None else self.call.follow(made, Segment(self.call, lambda _: True))

    def _loop(self, tokens: int) -> Tokens:
        number = 0
        try:
            while number < tokens:
                number += 1
                if number == 1:
                    self.work(PREFILL)
                    if self.call is not None:
                        self.call.generation.ledger.prefill_end = self.clock()
                    self.work(FIRST)
                else:
                    if self.call is not None:
                        self.call.generation.ledger.plain_passes += 1
                    self.work(STEP)
                if number == self.failing_token:
                    raise RuntimeError("engine")
                yield number
        finally:
            self.closed.append(number)

    def chunks(self, tokens: int) -> Generator[Chunk, Any, None]:
        """A completion piece by piece, its finish reason on a last piece without text."""
        made = self._chunks(tokens)
        self.alive.append(weakref.ref(made))
        return made

    def _chunks(self, tokens: int) -> Generator[Chunk, Any, None]:
        self.work(TOKENIZE)
        for token in self.loop(tokens):
            self.work(TEXT)
            if token == self.failing_text:
                raise ValueError("text")
            try:
                sent = yield chunk(str(token))
                while sent is not None:
                    sent = yield chunk(f"sent {sent}")
            except LookupError:
                if not self.catching:
                    raise
                yield chunk("caught")
        yield chunk("", "length")

    def answer(self, tokens: int) -> Chunk:
        """A whole completion."""
        self.work(TOKENIZE)
        text = ""
        for token in self.loop(tokens):
            self.work(TEXT)
            if token == self.failing_text:
                raise ValueError("text")
            text += str(token)
        return chunk(text, "length")


def chunk(text: str, reason: str | None = None) -> Chunk:
    """A piece of text."""
    return {"text": text, "reason": reason}


def outcome(last: Chunk | None, exhausted: bool) -> Outcome:
    """The end as the last chunk tells it."""
    reason = last["reason"] if last else None
    complete = exhausted or reason is not None
    return Outcome(reason if complete else "closed", complete, False)


def watched_engine(observer: FoldingObserver, **faulty: Any) -> Engine:
    """An engine whose call is watched."""
    clock = FakeClock()
    generation = Generation(observer.admit(), lambda _: REQUEST, clock)
    return Engine(clock, TextCall(generation, outcome), **faulty)


def stream(engine: Engine, tokens: int = 3) -> Generator[Chunk, Any, None]:
    """The chunks of a watched call."""
    assert engine.call is not None
    chunks: Generator[Chunk, Any, None] = engine.call.run(lambda: engine.chunks(tokens), lazy=True)
    return chunks


def consume(engine: Engine, chunks: Iterator[Chunk], pieces: int | None = None) -> list[str]:
    """Ask for chunks, and hold each for a while."""
    texts = []
    for each in chunks:
        texts.append(each["text"])
        engine.work(HOLD)
        if len(texts) == pieces:
            break
    return texts


def milliseconds(seconds: float | None) -> float | None:
    """A duration of a record in ms."""
    return None if seconds is None else round(seconds * 1_000, 6)


def gaps(observer: FoldingObserver) -> list[float]:
    """The gaps between chunks, in ms."""
    (recording,) = observer.recordings
    return [gap / MILLISECOND for delta in recording.deltas for gap in delta.gaps]


def test_the_times_of_a_stream() -> None:
    """Tokenizing counts to the first token, text between tokens to the engine, and what the consumer holds to it."""
    observer = FoldingObserver()
    engine = watched_engine(observer)
    assert consume(engine, stream(engine)) == ["1", "2", "3", ""]
    timing = observer.record.timing
    assert milliseconds(timing.time_to_first_token) == TOKENIZE + PREFILL + FIRST
    assert milliseconds(timing.prefill) == TOKENIZE + PREFILL
    assert milliseconds(timing.decode) == FIRST + 2 * WAIT
    assert milliseconds(timing.consumer) == 2 * HOLD
    assert milliseconds(timing.wait_p50) == milliseconds(timing.time_per_token) == WAIT
    assert milliseconds(timing.time_to_first_chunk) == TOKENIZE + PREFILL + FIRST + TEXT
    assert gaps(observer) == [HOLD + STEP + TEXT, HOLD + STEP + TEXT, HOLD]
    last_chunk = TOKENIZE + PREFILL + FIRST + TEXT + 2 * (HOLD + STEP + TEXT) + HOLD
    assert milliseconds(timing.duration) == last_chunk


def test_the_times_of_a_whole_answer() -> None:
    """No consumer stands between the tokens; the end is that of the call, the last text included."""
    observer = FoldingObserver()
    engine = watched_engine(observer)
    assert engine.call is not None
    assert engine.call.run(lambda: engine.answer(3), lazy=False) == chunk("123", "length")
    timing = observer.record.timing
    assert milliseconds(timing.time_to_first_token) == TOKENIZE + PREFILL + FIRST
    assert milliseconds(timing.decode) == FIRST + 2 * WAIT
    assert timing.consumer == 0
    assert milliseconds(timing.duration) == TOKENIZE + PREFILL + FIRST + 2 * WAIT + TEXT
    assert (observer.record.ending.kind, observer.record.ending.finish_reason) == ("complete", "length")


@given(st.integers(1, 6), st.lists(st.integers(0, 90), min_size=1, max_size=5), st.booleans())
def test_every_moment_to_the_last_token_is_somebodys(tokens: int, holds: list[int], whole: bool) -> None:
    """Prefill, decode and the consumer's time add up to the last token, however long chunks are held."""
    observer = FoldingObserver()
    engine = watched_engine(observer)
    assert engine.call is not None
    held = cycle(holds)
    began = engine.clock()
    if whole:
        engine.call.run(partial(engine.answer, tokens), lazy=False)
    else:
        for _ in engine.call.run(partial(engine.chunks, tokens), lazy=True):
            engine.work(next(held))
    timing = observer.record.timing
    assert timing.prefill is not None
    assert timing.decode is not None
    assert timing.consumer is not None
    last_token = engine.call.generation.timeline.last_yield
    assert last_token is not None
    parts = milliseconds(timing.prefill + timing.decode + timing.consumer)
    assert parts == (last_token - began) / MILLISECOND
    between = 0 if whole else sum(hold for hold, _ in zip(cycle(holds), range(tokens - 1), strict=False))
    assert milliseconds(timing.consumer) == between


def test_tokens_without_text_of_their_own() -> None:
    """Two tokens to a chunk, as for a character of several bytes: a wait for each token, a gap for each chunk."""
    observer = FoldingObserver()
    engine = watched_engine(observer)

    def chunks() -> Iterator[Chunk]:
        for token in engine.loop(4):
            engine.work(TEXT)
            if token % 2 == 0:
                yield chunk("é")

    assert engine.call is not None
    assert consume(engine, engine.call.run(chunks, lazy=True)) == ["é", "é"]
    timing = observer.record.timing
    assert milliseconds(timing.decode) == FIRST + 3 * WAIT
    assert milliseconds(timing.consumer) == HOLD
    assert milliseconds(timing.time_to_first_chunk) == PREFILL + FIRST + TEXT + STEP + TEXT
    assert gaps(observer) == [HOLD + 2 * (STEP + TEXT)]
    assert observer.record.counts.tokens == 4


def test_several_chunks_after_the_last_token() -> None:
    """Text that was held back comes at the end: what the consumer holds there is not between tokens."""
    observer = FoldingObserver()
    engine = watched_engine(observer)

    def chunks() -> Iterator[Chunk]:
        tokens = list(engine.loop(2))
        yield from (chunk(str(token)) for token in tokens)
        yield chunk("", "stop")

    assert engine.call is not None
    consume(engine, engine.call.run(chunks, lazy=True))
    timing = observer.record.timing
    assert timing.consumer == 0
    assert gaps(observer) == [HOLD, HOLD]
    assert milliseconds(timing.duration) == PREFILL + FIRST + STEP + 2 * HOLD


def test_a_closed_stream_was_held_to_its_end() -> None:
    """Closed while the consumer held a chunk: that time is the consumer's, and the end is the close."""
    observer = FoldingObserver()
    engine = watched_engine(observer)
    chunks = stream(engine)
    consume(engine, chunks, pieces=2)
    chunks.close()
    record = observer.record
    assert milliseconds(record.timing.consumer) == 2 * HOLD
    assert milliseconds(record.timing.decode) == FIRST + WAIT
    total = TOKENIZE + PREFILL + FIRST + TEXT + HOLD + STEP + TEXT + HOLD
    assert milliseconds(record.timing.duration) == total
    assert (record.ending.kind, record.ending.finish_reason, record.ending.error_type) == ("closed", "closed", None)


def test_a_complete_call_ends_with_its_last_chunk() -> None:
    """However long and however the consumer keeps it before it is dropped."""
    for drop in ("close", "throw", "del"):
        observer = FoldingObserver()
        engine = watched_engine(observer)
        chunks = stream(engine, tokens=1)
        assert [next(chunks)["reason"], next(chunks)["reason"]] == [None, "length"]
        engine.work(60_000)
        if drop == "close":
            chunks.close()
        elif drop == "throw":
            with pytest.raises(TimeoutError):
                chunks.throw(TimeoutError())
        del chunks
        assert (observer.record.ending.kind, observer.record.ending.finish_reason) == ("complete", "length")
        assert milliseconds(observer.record.timing.duration) == TOKENIZE + PREFILL + FIRST + TEXT
        assert observer.record.timing.consumer == 0


def test_several_completions_in_one_call() -> None:
    """Counts and times add, the time to the first token is the first's, and no wait spans two."""
    observer = FoldingObserver()
    engine = watched_engine(observer)

    def handler() -> Chunk:
        first = engine.answer(2)
        engine.work(1_000)
        return chunk(first["text"] + engine.answer(3)["text"], "stop")

    assert engine.call is not None
    assert engine.call.run(handler, lazy=False)["text"] == "12123"
    timing = observer.record.timing
    assert observer.record.counts.tokens == 5
    assert observer.record.counts.prefill_tokens == 2
    assert milliseconds(timing.time_to_first_token) == TOKENIZE + PREFILL + FIRST
    assert milliseconds(timing.prefill) == TOKENIZE + 2 * PREFILL
    assert milliseconds(timing.decode) == 2 * FIRST + 3 * WAIT
    assert milliseconds(timing.wait_p99) == WAIT
    assert timing.consumer == 0
    assert len(observer.recordings[0].endings) == 1


@pytest.mark.parametrize("first", ["whole", "streamed"])
def test_a_stream_after_another_completion(first: str) -> None:
    """A handler picks a tool, then streams: the first chunk is the first that was handed out, and gaps are between two
    that were.
    """
    observer = FoldingObserver()
    engine = watched_engine(observer)

    def whole_then_stream() -> Iterator[Chunk]:
        engine.answer(2)
        return engine.chunks(2)

    def two_streams() -> Iterator[Chunk]:
        yield from engine.chunks(2)
        yield from engine.chunks(2)

    assert engine.call is not None
    handler = whole_then_stream if first == "whole" else two_streams
    consume(engine, engine.call.run(handler, lazy=True))
    timing, begin = observer.record.timing, PREFILL + FIRST
    within = [HOLD + STEP + TEXT, HOLD]
    assert observer.record.counts.tokens == 4
    assert milliseconds(timing.decode) == 2 * FIRST + 2 * WAIT
    if first == "whole":  # begins with its first token loop: before, nobody had asked for anything
        assert milliseconds(timing.time_to_first_token) == begin
        assert milliseconds(timing.time_to_first_chunk) == begin + TEXT + WAIT + TOKENIZE + begin + TEXT
        assert gaps(observer) == within
        assert milliseconds(timing.consumer) == HOLD
    else:
        assert milliseconds(timing.time_to_first_token) == TOKENIZE + begin
        assert milliseconds(timing.time_to_first_chunk) == TOKENIZE + begin + TEXT
        assert gaps(observer) == [*within, HOLD + TOKENIZE + begin + TEXT, *within]
        assert milliseconds(timing.consumer) == 2 * HOLD


@given(OPERATIONS, st.sampled_from(["failing_token", "failing_text"]), st.integers(1, 5), st.booleans())
def test_a_watched_call_answers_as_a_bare_one(
    operations: list[Operation], where: str, failing_at: int, catching: bool
) -> None:
    """next, send, throw and close give and raise the same, in any order; the engine makes and closes the same."""
    observer = FoldingObserver()
    options: dict[str, Any] = {where: failing_at, "catching": catching}
    engine, bare = watched_engine(observer, **options), Engine(FakeClock(), **options)
    chunks, bare_chunks = stream(engine), bare.chunks(3)
    assert drive(chunks, operations) == drive(bare_chunks, operations)
    chunks.close()
    bare_chunks.close()
    assert engine.closed == bare.closed
    assert all(len(recording.endings) == 1 for recording in observer.recordings)


class Pieces:
    """An iterator of chunks that is no generator."""

    def __init__(self, source: Iterator[Chunk]) -> None:
        self._source = source

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        return next(self._source)


def test_an_iterator_that_is_no_generator() -> None:
    """Its chunks and its errors come through; what is thrown in is raised, since it takes nothing."""
    for throws in (False, True):
        observer = FoldingObserver()
        engine = watched_engine(observer)
        assert engine.call is not None
        chunks = engine.call.run(partial(Pieces, engine.chunks(2)), lazy=True)
        assert next(chunks)["text"] == "1"
        if throws:
            with pytest.raises(LookupError):
                chunks.throw(LookupError())
            assert observer.record.ending.error_type == "LookupError"
        else:
            assert [each["text"] for each in chunks] == ["2", ""]
            assert observer.record.ending.kind == "complete"


def test_a_failing_iterator_that_is_no_generator() -> None:
    """The engine's error, after the tokens that came."""
    observer = FoldingObserver()
    engine = watched_engine(observer, failing_token=3)
    assert engine.call is not None
    with pytest.raises(RuntimeError):
        list(engine.call.run(lambda: Pieces(engine.chunks(5)), lazy=True))
    assert (observer.record.ending.kind, observer.record.counts.tokens) == ("error", 2)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_engine_error_in_a_whole_answer(error: type[BaseException]) -> None:
    """Before the first token, or after some: an error with the tokens so far."""
    for tokens_before in (0, 2):
        observer = FoldingObserver()
        engine = watched_engine(observer)

        def failing(engine: Engine = engine, tokens: int = tokens_before) -> Chunk:
            for token in engine.loop(3) if tokens else ():
                if token == tokens:
                    break
            raise error

        assert engine.call is not None
        with pytest.raises(error):
            engine.call.run(failing, lazy=False)
        ending = observer.record.ending
        assert (ending.kind, ending.finish_reason, ending.error_type) == ("error", "error", error.__name__)
        assert observer.record.counts.tokens == tokens_before


def test_a_function_that_fails_before_it_gives_a_stream() -> None:
    """The caller asked for chunks and got an exception: the call began and failed."""
    observer = FoldingObserver()
    engine = watched_engine(observer)

    def refusing() -> Iterator[Chunk]:
        raise ValueError("refused")

    assert engine.call is not None
    with pytest.raises(ValueError, match="refused"):
        engine.call.run(refusing, lazy=True)
    assert observer.record.ending.error_type == "ValueError"


def test_a_whole_answer_where_chunks_were_asked_for() -> None:
    """The engine's answer is handed through, and the call is complete."""
    observer = FoldingObserver()
    engine = watched_engine(observer)
    assert engine.call is not None
    assert engine.call.run(lambda: engine.answer(2), lazy=True)["text"] == "12"
    assert observer.record.ending.kind == "complete"


def test_a_stream_never_asked_for_leaves_nothing() -> None:
    """No recording begins, and the engine's generator goes with it."""
    observer = FoldingObserver()
    engine = watched_engine(observer)
    chunks = stream(engine)
    (alive,) = engine.alive
    assert alive() is not None
    del chunks
    assert alive() is None
    assert observer.recordings == []


def eager(engine: Engine) -> Generator[Chunk, Any, None]:
    """The chunks of a call that made tokens before the first chunk is asked for."""

    def function() -> Iterator[Chunk]:
        engine.answer(2)
        return engine.chunks(2)

    assert engine.call is not None
    chunks: Generator[Chunk, Any, None] = engine.call.run(function, lazy=True)
    return chunks


def test_tokens_made_before_the_first_chunk_and_the_stream_dropped() -> None:
    """They were made, so the call is told: closed, once."""
    observer = FoldingObserver()
    engine = watched_engine(observer)
    chunks = eager(engine)
    assert observer.recordings[0].record is None
    del chunks
    (recording,) = observer.recordings
    assert [ending.kind for ending in recording.endings] == ["closed"]
    assert observer.record.counts.tokens == 2


@pytest.mark.parametrize("pieces", [1, 2, 3])
def test_tokens_made_before_the_first_chunk_and_the_stream_dropped_later(pieces: int) -> None:
    """Dropped by its last reference after some chunks, or after the final one, it ends as any other stream does."""
    observer = FoldingObserver()
    engine = watched_engine(observer)
    chunks = eager(engine)
    consume(engine, chunks, pieces)
    del chunks
    (recording,) = observer.recordings
    assert [ending.kind for ending in recording.endings] == ["complete" if pieces == 3 else "closed"]
    assert observer.record.counts.tokens == 2 + min(pieces, 2)
    assert milliseconds(observer.record.timing.consumer) == (HOLD if pieces == 3 else pieces * HOLD)


@pytest.mark.parametrize("lazy", [True, False])
def test_an_error_between_tokens_closes_the_token_loop(lazy: bool) -> None:
    """The exception's traceback keeps the loop, which has nothing left to do: it is closed with the call, once."""
    observer = FoldingObserver()
    engine = watched_engine(observer, failing_text=2)
    assert engine.call is not None
    call, function = engine.call, engine.chunks if lazy else engine.answer
    with pytest.raises(ValueError, match="text") as caught:
        list(call.run(partial(function, 3), lazy=lazy))
    assert caught.traceback
    assert engine.closed == [2]
    assert observer.record.ending.error_type == "ValueError"
    assert observer.record.counts.tokens == 2
    assert milliseconds(observer.record.timing.decode) == FIRST + WAIT


def run_and_drop(lazy: bool, how: str) -> tuple[Engine, FoldingObserver]:
    """Run a call to an ending and drop everything but the engine."""
    observer = FoldingObserver()
    engine = watched_engine(observer, **({"failing_text": 2} if how == "text fails" else {}))
    if how == "token fails":
        engine.failing_token = 2
    assert engine.call is not None
    try:
        if not lazy:
            engine.call.run(lambda: engine.answer(3), lazy=False)
        else:
            chunks = stream(engine)
            next(chunks)
            if how == "thrown into":
                chunks.throw(TimeoutError())
            elif how == "consumed":
                list(chunks)
            elif how != "dropped":
                next(chunks)
    except (ValueError, RuntimeError, TimeoutError):
        pass
    return engine, observer


@pytest.mark.parametrize(
    ("lazy", "how"),
    [
        (True, "consumed"),
        (True, "dropped"),
        (True, "thrown into"),
        (True, "text fails"),
        (True, "token fails"),
        (False, "consumed"),
        (False, "text fails"),
        (False, "token fails"),
    ],
)
def test_nothing_is_held_after_the_end(lazy: bool, how: str) -> None:
    """The engine's generators, and with them model and caches, are freed at once, without a collector run."""
    gc.collect()
    gc.disable()
    try:
        engine, observer = run_and_drop(lazy, how)
        assert [made() for made in engine.alive] == [None] * (1 + lazy)
        assert len(observer.recordings[0].endings) == 1
    finally:
        gc.enable()


def test_content_is_taken_as_it_is_handed_out() -> None:
    """Each chunk of a stream, or the answer, goes to whoever keeps content."""
    for lazy in (True, False):
        kept: list[Chunk] = []
        clock = FakeClock()
        generation = Generation(FoldingObserver().admit(), lambda _: REQUEST, clock)
        engine = Engine(clock, TextCall(generation, outcome, kept.append))
        assert engine.call is not None
        if lazy:
            list(stream(engine, 2))
        else:
            engine.call.run(partial(engine.answer, 2), lazy=False)
        assert [each["text"] for each in kept] == (["1", "2", ""] if lazy else ["12"])


def test_faults_in_reading_the_end_never_reach_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    """The last chunk cannot be read, nor whether the last pass finished: chunks come all the same, and it is told."""

    def broken(*_: Any) -> Any:
        raise TypeError("secret prompt")

    observer = FoldingObserver()
    clock = FakeClock()
    call = TextCall(Generation(observer.admit(), lambda _: REQUEST, clock), broken)
    engine = Engine(clock)

    def chunks() -> Iterator[Chunk]:
        for token in call.follow(engine.loop(2), Segment(call, broken)):
            call.generation.ledger.plain_passes += token - 1
            yield chunk(str(token))

    assert [each["text"] for each in call.run(chunks, lazy=True)] == ["1", "2"]
    faults.tell_faults()
    assert observer.record.counts.tokens == 2
    assert len(caplog.records) == 2
    assert "secret" not in caplog.text
