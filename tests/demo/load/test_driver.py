"""One thread, many open streams: on a clock that moves only while somebody waits or makes a token."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace

import pytest

from otel_specdecode.demo.load.driver import MOST_OPEN, Driver, Stream
from otel_specdecode.demo.load.plan import Arrival

STEP = 0.01
PLAIN = Arrival(0.0, "alone", 0, False, 3, 0.0, 0, "acme", None, 0.0, False)


class Time(threading.Event):
    """A halt that nobody waits for really: time moves at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.now += timeout + 1e-6  # as any real wait, a little too long
        return self.is_set()


class FakeStreams:
    """An engine that takes a hundredth of a second a token, and notes what happens when."""

    def __init__(self, time: Time, most: int = 100) -> None:
        self.time = time
        self.most = most
        self.held = 0
        self.tokens: list[tuple[float, float]] = []
        self.released: list[Arrival] = []

    def open(self, arrival: Arrival) -> Stream | None:
        if self.held == self.most:
            return None
        self.held += 1
        return self._stream(arrival)

    def release(self, arrival: Arrival, stream: Stream) -> None:
        self.held -= 1
        self.released.append(arrival)

    def close(self) -> None:
        raise AssertionError("whoever loaded the models gives them back")

    def _stream(self, arrival: Arrival) -> Generator[int, None, None]:
        for place in range(arrival.tokens):
            self.time.now += STEP
            if arrival.fails and place == 1:
                raise RuntimeError("on purpose")
            self.tokens.append((arrival.at, self.time.now - 100.0))
            yield place


def run(plan: Sequence[Arrival], seconds: float = 10.0, most: int = 100) -> tuple[FakeStreams, Driver]:
    time = Time()
    streams = FakeStreams(time, most)
    driver = Driver(streams, iter(plan), seconds, time, time)
    driver.run()
    assert streams.held == 0
    return streams, driver


def test_every_request_runs_to_its_end_and_gives_back_what_it_used() -> None:
    plan = [replace(PLAIN, at=0.5), replace(PLAIN, at=7.0)]
    streams, driver = run(plan)
    assert streams.released == plan
    assert len(streams.tokens) == 6
    assert driver.dropped == 0
    assert streams.tokens[3] == (7.0, pytest.approx(7.0 + STEP, abs=1e-4))


def test_streams_take_turns() -> None:
    streams, _ = run([PLAIN, replace(PLAIN, at=0.001)])
    assert [at for at, _ in streams.tokens[1:5]] in ([0.0, 0.001] * 2, [0.001, 0.0] * 2)


def test_a_slow_reader_holds_up_nobody_else() -> None:
    streams, _ = run([replace(PLAIN, pause=1.0), replace(PLAIN, at=0.1)])
    slow = [when for at, when in streams.tokens if at == 0.0]
    fast = [when for at, when in streams.tokens if at == 0.1]
    assert slow[1] - slow[0] >= 1.0
    assert fast[-1] < slow[1]


def test_a_reader_who_leaves_gets_no_more_tokens() -> None:
    streams, _ = run([replace(PLAIN, tokens=50, close_after=4)])
    assert len(streams.tokens) == 4


def test_a_request_that_fails_ends_alone() -> None:
    streams, _ = run([replace(PLAIN, fails=True), replace(PLAIN, at=0.005)])
    assert len(streams.released) == 2
    assert sum(at == 0.005 for at, _ in streams.tokens) == 3


def test_a_request_waits_for_what_it_needs_and_gives_up_after_a_while() -> None:
    held = replace(PLAIN, tokens=100, pause=0.05)
    streams, driver = run([held, replace(PLAIN, at=0.5), replace(PLAIN, at=5.0)], seconds=20, most=1)
    assert driver.dropped == 1
    assert [each.at for each in streams.released] == [0.0, 5.0]


def test_no_more_than_so_many_are_open() -> None:
    time = Time()
    streams = FakeStreams(time)
    most = 0

    def open_(arrival: Arrival) -> Stream | None:
        nonlocal most
        stream = FakeStreams.open(streams, arrival)
        most = max(most, streams.held)
        return stream

    streams.open = open_  # type: ignore[method-assign]
    Driver(streams, iter([replace(PLAIN, at=n / 100) for n in range(40)]), 10.0, time, time).run()
    assert most == MOST_OPEN


def test_when_the_time_is_over_open_streams_end_without_their_readers_pauses() -> None:
    streams, _ = run([replace(PLAIN, tokens=30, pause=0.5)], seconds=1.0)
    assert len(streams.tokens) == 30
    assert streams.tokens[-1][1] < 2.0


def test_a_stream_that_does_not_end_is_closed() -> None:
    streams, _ = run([replace(PLAIN, tokens=100_000)], seconds=1.0)
    assert streams.tokens[-1][1] < 7.0


def test_a_halt_closes_what_is_open() -> None:
    time = Time()
    streams = FakeStreams(time)
    plan = [replace(PLAIN, tokens=1000), replace(PLAIN, at=0.5), replace(PLAIN, at=9.0)]
    original = streams.open

    def open_(arrival: Arrival) -> Stream | None:
        if arrival.at == 0.5:
            time.set()
        return original(arrival)

    streams.open = open_  # type: ignore[method-assign]
    Driver(streams, iter(plan), 10.0, time, time).run()
    assert streams.held == 0
    assert [each.at for each in streams.released] == [0.0, 0.5]
    assert len(streams.tokens) < 60


def test_a_halt_ends_a_crowd_that_comes_all_at_once() -> None:
    time = Time()
    streams = FakeStreams(time)

    def crowd() -> Iterator[Arrival]:
        for number in range(5000):
            if number == 10:
                time.set()
            yield PLAIN

    driver = Driver(streams, crowd(), 10.0, time, time)
    driver.run()
    assert driver.dropped + len(streams.released) == 10
