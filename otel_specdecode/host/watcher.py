"""Reads the machine's state every few seconds on a thread of its own, and keeps what the readings add up to."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass

from otel_specdecode.host.durations import Seconds, StateTimes, SwapEpisodes
from otel_specdecode.host.machine import this_machine
from otel_specdecode.host.readers import Reader, reader_for
from otel_specdecode.host.state import HostState, unknown_host
from otel_specdecode.thresholds import thresholds

THREAD_NAME = "otel-specdecode-host"

NOT_READ_YET = unknown_host("not read yet")
TOO_OLD = unknown_host("the last reading is too old")

SPEAKS_FOR = 3
"""Intervals after which a reading no longer says what is: its thread hangs, or the machine was stopped."""


@dataclass(frozen=True, slots=True)
class Totals:
    """What the readings add up to since the first one.

    Attributes:
        seconds: Seconds in every state of every enum, zeros included.
        swap_episodes: How often swapping out began after a quiet time.
        readings: How many readings there were.
    """

    seconds: Seconds
    swap_episodes: int
    readings: int


class Watcher:
    """Keeps the last state of the machine and the totals of all. Nothing here raises.

    It starts when it is first asked. In the child of a fork it starts anew, with nothing read and nothing added up.
    """

    def __init__(
        self,
        make_reader: Callable[[], Reader] = reader_for,
        *,
        every: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Watch this machine.

        Args:
            make_reader: Makes what is read from, on the watching thread.
            every: Seconds between two readings; by default those of thresholds.toml.
            clock: Seconds, monotonic.
        """
        bounds = thresholds()["host"]
        self._make_reader = make_reader
        self._every = float(bounds["read_every"]) if every is None else every
        self._quiet = float(bounds["swap_quiet"])
        self._clock = clock
        self._closed = threading.Event()
        weakref.finalize(self, self._closed.set)  # also when the interpreter ends: no command is started after that
        self._begin_anew()
        if hasattr(os, "register_at_fork"):
            me = weakref.ref(self)
            os.register_at_fork(after_in_child=lambda: _after_fork(me))

    def _begin_anew(self) -> None:
        self._reader: Reader | None = None
        self._last: tuple[float, HostState] | None = None
        self._times = StateTimes(SPEAKS_FOR * self._every)
        self._swaps = SwapEpisodes(self._quiet)
        self._readings = 0
        self._adding = threading.Lock()
        self._starting = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._ending: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread where it does not run. Reads nothing on the calling thread, and waits for no one."""
        if self._runs() or self._closed.is_set() or not self._starting.acquire(blocking=False):
            return
        try:
            if self._ending is not None and self._ending.is_alive():
                self._stopped.clear()  # it hangs in a reading: it goes on rather than another beside it
                self._thread = self._ending
            elif not self._runs():
                stopped = self._stopped = threading.Event()
                thread = threading.Thread(target=self._run, args=(stopped,), name=THREAD_NAME, daemon=True)
                thread.start()
                self._thread = thread
        except RuntimeError:
            pass  # no more threads, or the interpreter is ending: the state stays unknown
        finally:
            self._starting.release()

    def _runs(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def current(self) -> HostState:
        """Return the last state read. Never waits, runs no command; starts the thread where it does not run."""
        if not self._runs():
            self.start()
        last = self._last
        if last is None:
            return NOT_READ_YET
        at, state = last
        return state if self._clock() - at <= SPEAKS_FOR * self._every else TOO_OLD

    def totals(self) -> Totals:
        """Return what the readings add up to until now; starts the thread where it does not run."""
        if not self._runs():
            self.start()
        with self._adding:
            return Totals(self._times.seconds(self._clock()), self._swaps.count, self._readings)

    def stop(self, timeout: float = 5.0) -> bool:
        """End the thread; what was read stays. The next question starts it again.

        Args:
            timeout: The longest wait for a reading that is under way, in seconds.

        Returns:
            Whether the thread has ended.
        """
        self._stopped.set()
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return thread is None
        thread.join(timeout)
        self._thread, self._ending = None, thread
        return not thread.is_alive()

    def read_once(self) -> None:
        """Take one reading, on the calling thread."""
        state = self._read()
        at = self._clock()
        with self._adding:
            self._times.observe(at, state)
            self._swaps.observe(at, state.swapped_out.value)
            self._readings += 1
            self._last = at, state

    def _read(self) -> HostState:
        try:
            if self._reader is None:
                self._reader = self._make_reader()
            return self._reader.read()
        except Exception as error:
            return unknown_host(f"reading failed ({type(error).__name__})")

    def _run(self, stopped: threading.Event) -> None:
        this_machine()  # asked for once in a process: here, where nobody waits for it
        while not stopped.is_set() and not self._closed.is_set():
            self.read_once()
            stopped.wait(self._every)


def _after_fork(reference: weakref.ref[Watcher]) -> None:
    watcher = reference()
    if watcher is not None:
        watcher._begin_anew()


host_watcher = Watcher()
"""The watcher of this process's machine."""
