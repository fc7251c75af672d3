"""Several engines, each on a thread of its own: what becomes of all when one of them dies."""

from __future__ import annotations

import threading
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from otel_specdecode.demo.load import crew
from otel_specdecode.demo.load.crew import Crew
from otel_specdecode.demo.load.driver import Stream
from otel_specdecode.demo.load.plan import Arrival, load_of

LOAD = load_of(20, 20, 1, burst_seconds=0)


class Streams:
    """An engine that gives everyone one token, is in use for the first requests, and dies at some time.

    Attributes:
        came: When its requests came, in seconds since the beginning.
    """

    def __init__(self, dies_at: float = float("inf"), busy_until: float = 0.0) -> None:
        self.dies_at = dies_at
        self.busy_until = busy_until
        self.came: list[float] = []

    def open(self, arrival: Arrival) -> Stream | None:
        self.came.append(arrival.at)
        if arrival.at >= self.dies_at:
            raise MemoryError("no room for another model")
        return None if arrival.at < self.busy_until else self._stream()

    def release(self, arrival: Arrival, stream: Stream) -> None:
        """Nothing is in use."""

    def close(self) -> None:
        """Nothing is held."""

    def _stream(self) -> Generator[int, None, None]:
        yield 1


def crew_of(monkeypatch: pytest.MonkeyPatch, scratch: Path, **engines: Streams | BaseException) -> Crew:
    """Return a crew of these; one that is an error cannot be loaded."""

    def streams_of(name: str) -> Any:
        def make(folder: Path, seed: int) -> Streams:
            made = engines[name]
            if isinstance(made, BaseException):
                raise made
            return made

        return make, ("alone",)

    monkeypatch.setattr(crew, "_streams_of", streams_of)
    chosen: list[Any] = [SimpleNamespace(name=name) for name in engines]
    return Crew(chosen, LOAD, threading.Event(), scratch)


def test_an_engine_that_dies_ends_the_others_and_is_told_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    living = Streams()
    made = crew_of(monkeypatch, tmp_path, living=living, dying=Streams(dies_at=0.5))
    with pytest.raises(MemoryError, match="no room for another model"):
        made.work()
    assert living.came
    assert max(living.came) < LOAD.seconds / 2


def test_a_crew_that_was_never_begun_ends_with_its_block(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    waiting = Streams()
    with pytest.raises(BrokenPipeError), crew_of(monkeypatch, tmp_path, waiting=waiting):
        raise BrokenPipeError
    assert not [thread for thread in threading.enumerate() if thread.name == "load-waiting"]
    assert waiting.came == []


def test_an_engine_that_gets_no_thread_ends_those_that_have_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "load-second":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        crew_of(monkeypatch, tmp_path, first=Streams(), second=Streams())
    assert not [thread for thread in threading.enumerate() if thread.name == "load-first"]


def test_an_engine_that_cannot_be_loaded_is_told_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    living = Streams()
    with pytest.raises(OSError, match="no such model"):
        crew_of(monkeypatch, tmp_path, living=living, absent=OSError("no such model"))
    assert living.came == []


def test_requests_that_gave_up_are_counted_over_all_engines_one_that_died_included(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dying, busy = Streams(dies_at=0.5, busy_until=0.5), Streams(busy_until=LOAD.seconds)
    made = crew_of(monkeypatch, tmp_path, dying=dying, busy=busy)
    with pytest.raises(MemoryError):
        made.work()
    assert len(set(dying.came)) > 1
    assert made.dropped >= len(set(dying.came)) + len(set(busy.came))
