"""Peak memory of the process while a request runs, read about 20 times a second."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from otel_specdecode.host.process_memory import (
    LifetimePeaks,
    MemoryProbe,
    ProcessMemory,
    lifetime_peaks,
    process_memory,
)
from otel_specdecode.thresholds import thresholds

THREAD_NAME = "otel-specdecode-memory"

LAST_READING_SECONDS = 0.005
"""How long after its end a reading still counts as the request's own: the next one may fill memory by then."""

LINGER_SECONDS = 1.0
"""How long the thread waits for another request before it ends. It waits without waking up."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """Memory of the process, in bytes; None where the system does not tell.

    Requests at the same time share the process, so they share its peaks.

    Attributes:
        resident: The highest resident set size while the request ran: the highest reading, or the lifetime mark if that
            rose meanwhile, so that a peak between two readings is not missed.
        resident_lifetime: The highest resident set size since the process began.
        footprint: The highest physical footprint while the request ran; macOS only.
        footprint_lifetime: The highest physical footprint since the process began; macOS only.
    """

    resident: int | None
    resident_lifetime: int | None
    footprint: int | None
    footprint_lifetime: int | None


class Token:
    """One request: what its readings have shown so far.

    Attributes:
        before: Lifetime marks at its beginning.
        after: Lifetime marks at its end.
        ended: Clock reading (s) of its end, None while it is open.
    """

    __slots__ = ("__weakref__", "_edges", "_while_open", "after", "before", "ended")

    def __init__(self, before: LifetimePeaks) -> None:
        """Begin with the lifetime marks and no reading."""
        self.before = self.after = before
        self.ended: float | None = None
        # Two threads write: each has its own, so that none overwrites a higher value of the other.
        self._while_open = self._edges = ProcessMemory(None, None)

    def take(self, reading: ProcessMemory) -> None:
        """Keep the highest values of the sampling thread."""
        self._while_open = _higher(self._while_open, reading)

    def take_edge(self, reading: ProcessMemory) -> None:
        """Keep the highest values of the readings at the beginning and at the end."""
        self._edges = _higher(self._edges, reading)

    @property
    def highest(self) -> ProcessMemory:
        """The highest values so far."""
        return _higher(self._while_open, self._edges)


class Probe(Protocol):
    """Takes readings until it is closed."""

    def read(self) -> ProcessMemory:
        """Take one reading. Never raises."""
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...


class PeakSampler:
    """Reads the memory of the process for all open requests at once.

    One daemon thread reads while a request is open, and ends soon after the last one. Requests that follow each other
    closely find it waiting, so a short one starts no thread. end() takes no lock, so it may run in a finalizer. In the
    child of a fork nothing is open. Nothing here raises.
    """

    def __init__(
        self,
        read: Callable[[], ProcessMemory] = process_memory,
        lifetime: Callable[[], LifetimePeaks] = lifetime_peaks,
        make_probe: Callable[[], Probe] = MemoryProbe,
        *,
        period: float | None = None,
        linger: float = LINGER_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Sample this process.

        Args:
            read: Takes one reading.
            lifetime: Reads the high-water marks.
            make_probe: Makes what reads while a request is open.
            period: Seconds between two readings; by default by thresholds.toml.
            linger: Seconds that the thread waits for another request.
            clock: Seconds, monotonic.
        """
        self._read = read
        self._lifetime = lifetime
        self._make_probe = make_probe
        self._period = 1.0 / thresholds()["host"]["memory_readings_per_second"] if period is None else period
        self._linger = linger
        self._clock = clock
        self._begin_anew()
        if hasattr(os, "register_at_fork"):
            me = weakref.ref(self)
            os.register_at_fork(
                before=lambda: _before_fork(me),
                after_in_parent=lambda: _after_fork_in_parent(me),
                after_in_child=lambda: _after_fork(me),
            )

    def _begin_anew(self) -> None:
        self._open: dict[int, weakref.ref[Token]] = {}
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._waiting = False
        self._wake = threading.Event()
        self._probe: Probe | None = None
        # Held while the probe is opened or closed: a file that is open and not in _probe is one no child can close.
        self._opening = threading.RLock()

    def begin(self) -> Token:
        """Open a request. Takes the lifetime marks alone, for which no thread lets go of the interpreter's lock."""
        token = Token(self._lifetime())
        opened, key = self._open, id(token)
        opened[key] = weakref.ref(token, lambda _: opened.pop(key, None))  # one that is dropped keeps no thread running
        return token

    def follow(self, token: Token) -> None:
        """Take a first reading, and have the open requests read about 20 times a second.

        Starts a thread now and then, and reads: not for the thread that makes tokens.
        """
        reading = self._read()
        if token.ended is None:  # asked afterwards: a reading that was held up is not of its time
            token.take_edge(reading)
        if self._waiting:
            self._wake.set()
        elif self._thread is None and self._open:
            self._start()

    def end(self, token: Token) -> None:
        """Close a request, with the lifetime marks of now. Reads nothing else unless follow() has not come by then.

        A token that has ended already, or began before a fork, does no harm.
        """
        self._open.pop(id(token), None)
        if token.ended is None:
            if token.highest.resident is None:  # nobody came to read while it ran; later is the next one's memory
                token.take_edge(self._read())
            token.after = self._lifetime()
            token.ended = self._clock()

    def peaks(self, token: Token) -> Peaks:
        """Return the peaks of a closed request, off the thread that makes tokens.

        Takes its last reading where that is not too late to be its own.
        """
        if token.ended is None:
            self.end(token)
        highest, after = token.highest, token.after
        reading = self._read()
        if self._clock() - (token.ended or 0.0) < LAST_READING_SECONDS:
            token.take_edge(reading)
            highest = token.highest
        return Peaks(
            _peak(highest.resident, token.before.resident, after.resident),
            _highest(highest.resident, after.resident),
            _peak(highest.footprint, token.before.footprint, after.footprint),
            _highest(highest.footprint, after.footprint),
        )

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
                self._thread = thread
                try:
                    thread.start()
                except RuntimeError:
                    self._thread = None  # no more threads, or the interpreter is ending: two readings a request remain

    def _run(self) -> None:
        while True:
            with self._opening:
                probe = self._probe = self._make_probe()
            try:
                self._sample(probe)
            finally:
                with self._opening:
                    self._probe = None
                    probe.close()
            if not self._another_came() and self._ended():
                return

    def _sample(self, probe: Probe) -> None:
        """Read until nothing is open."""
        while True:
            time.sleep(self._period)
            if not self._open:
                return
            begun = list(self._open.values())
            self._give(probe.read(), begun)

    @staticmethod
    def _give(reading: ProcessMemory, begun: Sequence[weakref.ref[Token]]) -> None:
        """Give a reading to the requests that began before it and have not ended by now."""
        for reference in begun:
            token = reference()
            if token is not None and token.ended is None:
                token.take(reading)

    def _another_came(self) -> bool:
        """Wait for a request. The flag is up before the last look at what is open, so begin() sees it or is seen."""
        self._wake.clear()
        self._waiting = True
        came = bool(self._open) or self._wake.wait(self._linger)
        self._waiting = False
        return came

    def _ended(self) -> bool:
        """Give up the place of the thread, unless a request came at the last moment."""
        with self._starting:
            self._thread = None
            if self._open:
                self._thread = threading.current_thread()
            return self._thread is None


def _higher(one: ProcessMemory, other: ProcessMemory) -> ProcessMemory:
    return ProcessMemory(_highest(one.resident, other.resident), _highest(one.footprint, other.footprint))


def _peak(reading: int | None, lifetime_before: int | None, lifetime_after: int | None) -> int | None:
    """A lifetime mark that rose meanwhile is the peak; whether it did is not known without the one before."""
    rose = None not in (lifetime_before, lifetime_after) and lifetime_after > lifetime_before  # type: ignore[operator]
    return _highest(reading, lifetime_after if rose else None)


def _highest(one: int | None, other: int | None) -> int | None:
    return max(one or 0, other or 0) or None


def _before_fork(reference: weakref.ref[PeakSampler]) -> None:
    sampler = reference()
    if sampler is not None:
        sampler._opening.acquire()


def _after_fork_in_parent(reference: weakref.ref[PeakSampler]) -> None:
    sampler = reference()
    if sampler is not None:
        with contextlib.suppress(RuntimeError):  # one that another thread made since the fork began holds nothing
            sampler._opening.release()


def _after_fork(reference: weakref.ref[PeakSampler]) -> None:
    sampler = reference()
    if sampler is not None:
        if sampler._probe is not None:
            sampler._probe.close()
        sampler._begin_anew()


peak_sampler = PeakSampler()
"""The sampler of this process."""
