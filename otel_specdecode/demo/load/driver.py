"""Runs the plan of one engine on one thread: its open streams take turns, token by token.

So requests overlap, as in a service with one processor, though neither engine may be called from several threads at
once. A stream whose reader is slow is not asked for its next token before that reader would.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from otel_specdecode.demo.load.plan import Arrival

Stream = Generator[Any, Any, Any]

MOST_OPEN = 12
"""Streams at a time; further requests wait."""

PATIENCE_SECONDS = 4.0
"""How long a request waits before it gives up: what comes late would blur when the draft was bad."""

LAST_SECONDS = 5.0
"""How long open streams may go on when the time is over."""


class Streams(Protocol):
    """The models of an engine, loaded on the thread that uses them."""

    def open(self, arrival: Arrival) -> Stream | None:
        """Return the stream of a request, None if what it needs is in use."""
        ...

    def release(self, arrival: Arrival, stream: Stream) -> None:
        """Take back what a stream used, which has ended."""
        ...

    def close(self) -> None:
        """Give the models back."""
        ...


@dataclass
class _Open:
    arrival: Arrival
    stream: Stream
    due: float
    emitted: int = 0


class Driver:
    """Runs one engine's requests.

    Attributes:
        dropped: Requests that gave up waiting: there were too many for this machine.
    """

    def __init__(
        self,
        streams: Streams,
        plan: Iterator[Arrival],
        seconds: float,
        stop: threading.Event,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with nothing open.

        Args:
            streams: What opens them.
            plan: The requests, in order.
            seconds: When the time is over.
            stop: Ends it before that.
            clock: Seconds, monotonic.
        """
        self.dropped = 0
        self._streams = streams
        self._plan = plan
        self._seconds = seconds
        self._stop = stop
        self._clock = clock
        self._began = 0.0
        self._next = next(plan, None)
        self._waiting: deque[Arrival] = deque()
        self._open: list[_Open] = []

    def run(self) -> None:
        """Run until the time is over; no stream is left open."""
        self._began = self._clock()
        try:
            while not self._stop.is_set() and (now := self._now()) < self._seconds:
                self._admit(now)
                self._turn(now)
            self._finish()
        finally:
            self.dropped += len(self._waiting)
            for each in list(self._open):
                self._end(each)

    def _now(self) -> float:
        return self._clock() - self._began

    def _admit(self, now: float) -> None:
        """Open streams for those that have come, while there is room. One whose models are in use lets others by."""
        while self._next is not None and self._next.at <= now and not self._stop.is_set():
            self._waiting.append(self._next)
            self._next = next(self._plan, None)
        while self._waiting and now - self._waiting[0].at > PATIENCE_SECONDS:
            self._waiting.popleft()
            self.dropped += 1
        for arrival in list(self._waiting):
            if len(self._open) >= MOST_OPEN:
                return
            stream = self._streams.open(arrival)
            if stream is not None:
                self._waiting.remove(arrival)
                self._open.append(_Open(arrival, stream, now))

    def _turn(self, now: float) -> None:
        """Take one token of the stream that has waited longest, or sleep until something is due."""
        first = min(self._open, key=lambda each: each.due, default=None)
        if first is not None and first.due <= now:
            self._step(first)
            return
        moments = [self._seconds, *([first.due] if first else []), *([self._next.at] if self._next else [])]
        self._stop.wait(max(min(moments) - now, 0.0))

    def _step(self, opened: _Open) -> None:
        try:
            next(opened.stream)
        except StopIteration:
            self._end(opened)
            return
        except Exception:  # its span tells: some are meant to fail, and an engine's own fault must not end the load
            self._end(opened)
            return
        opened.emitted += 1
        opened.due = self._now() + opened.arrival.pause
        if opened.emitted == opened.arrival.close_after:
            self._end(opened)

    def _finish(self) -> None:
        """Let open streams come to their ends, without their readers' pauses."""
        while self._open and not self._stop.is_set() and self._now() < self._seconds + LAST_SECONDS:
            for each in list(self._open):
                self._step(each)

    def _end(self, opened: _Open) -> None:
        self._open.remove(opened)
        with suppress(Exception):
            opened.stream.close()
        self._streams.release(opened.arrival, opened.stream)
