"""The recording thread: everything that costs time happens here, not where tokens are made."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue

from otel_specdecode.generation.faults import report_fault, tell_faults, warn_once

THREAD_NAME = "otel-specdecode-recorder"

BURST = 20
"""Records between two pauses; at about 10-20 us each, a token waits a fraction of a millisecond for the GIL at most."""

PAUSE_SECONDS = 0.0005

PAUSE_FOR_FORK_SECONDS = 1.0
"""The longest that a fork waits for the recording thread, which an exporter may block."""

MAX_WAITING = 10_000
"""Work that may wait before parts of running streams are refused: more means that an exporter blocks the thread."""

Work = Callable[[], None]


class Recorder:
    """Runs work in the order it was put, on one daemon thread.

    put() is safe in a finalizer, on any thread, under any lock: it only appends to a queue.

    Attributes:
        epoch: Rises in the child of a fork; work of an earlier epoch belongs to the parent.
    """

    def __init__(self) -> None:
        """Start without a thread; ensure_thread() starts it."""
        self.epoch = 0
        self._queue: SimpleQueue[Work] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._records = 0
        self._hurried = 0
        self._working = threading.RLock()
        self._paused = False
        if hasattr(os, "register_at_fork"):
            me = weakref.ref(self)
            os.register_at_fork(
                before=lambda: _before_fork(me),
                after_in_parent=lambda: _after_fork_in_parent(me),
                after_in_child=lambda: _after_fork(me),
            )

    def ensure_thread(self) -> None:
        """Start the thread where it does not run. Takes a lock, so not for finalizers."""
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
                    thread.start()
                    self._thread = thread

    def put(self, work: Work) -> None:
        """Add work to the end of the queue."""
        self._queue.put(work)

    def put_unless_full(self, work: Work) -> bool:
        """Add work, unless more waits than the recording thread can be expected to catch up with.

        Returns:
            Whether it was added.
        """
        if self._queue.qsize() < MAX_WAITING:
            self._queue.put(work)
            return True
        warn_once(
            "recording cannot keep up, an exporter or processor blocks it; numbers of running streams are dropped"
        )
        return False

    def pace(self) -> None:
        """Count one record; pause now and then, so that the thread that makes tokens gets the GIL."""
        self._records += 1
        if self._records >= BURST:
            self._records = 0
            if not self._hurried:
                time.sleep(PAUSE_SECONDS)

    def drain(self, timeout: float) -> bool:
        """Wait until everything put so far is recorded.

        Args:
            timeout: The longest wait, in seconds.

        Returns:
            Whether it was all recorded in time.
        """
        if threading.current_thread() is self._thread:
            return False
        if self._thread is None:
            self._run_waiting()
            return True
        done = threading.Event()
        self._hurry(1)
        try:
            self._queue.put(done.set)
            return done.wait(timeout)
        finally:
            self._hurry(-1)

    def _hurry(self, change: int) -> None:
        with self._starting:
            self._hurried += change

    def _run(self) -> None:
        queue, working = self._queue, self._working
        while True:
            work = queue.get()
            with working:
                _run_one(work)

    def _pause(self) -> None:
        """Wait until the thread is between two pieces of work.

        Inside one it may hold a lock of the SDK, which the child of a fork would find held for ever.
        """
        self._paused = self._working.acquire(timeout=PAUSE_FOR_FORK_SECONDS)

    def _go_on(self) -> None:
        if self._paused:
            self._working.release()

    def _run_waiting(self) -> None:
        while True:
            try:
                work = self._queue.get_nowait()
            except Empty:
                return
            _run_one(work)

    def _forget_parent(self) -> None:
        self.epoch += 1
        self._queue = SimpleQueue()
        self._thread = None
        self._starting = threading.Lock()
        self._working = threading.RLock()
        self._records = self._hurried = 0


def _run_one(work: Work) -> None:
    try:
        work()
    except BaseException as error:
        report_fault("a recording failed", error)
    finally:
        tell_faults()


def _before_fork(reference: weakref.ref[Recorder]) -> None:
    recorder = reference()
    if recorder is not None:
        recorder._pause()


def _after_fork_in_parent(reference: weakref.ref[Recorder]) -> None:
    recorder = reference()
    if recorder is not None:
        recorder._go_on()


def _after_fork(reference: weakref.ref[Recorder]) -> None:
    recorder = reference()
    if recorder is not None:
        recorder._forget_parent()
