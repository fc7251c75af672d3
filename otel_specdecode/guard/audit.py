"""The audit trail: every transition as a line in a file, written where no request waits for it."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue

from otel_specdecode.generation.faults import report_fault, warn_once
from otel_specdecode.generation.transition import Transition
from otel_specdecode.guard.audit_files import AuditFiles
from otel_specdecode.guard.lines import loss_line, transition_line

THREAD_NAME = "otel-specdecode-audit"

MAX_WAITING = 4096
"""Lines that are kept while they cannot be written, about 4 MB; of more, the newest are lost, and counted."""

RETRY_SECONDS = 5.0
"""After which lines that could not be written are tried again, if nothing new comes."""

EXIT_SECONDS = 3.0
"""The longest that a disk which hangs holds up the end of the process."""


class _Order:
    """What somebody waits for: that all before it is written, and after the last one that the thread ends."""

    def __init__(self, *, last: bool = False) -> None:
        self.last = last
        self.kept = False
        self.done = threading.Event()


class AuditTrail:
    """Writes transitions, in the order in which they come, on a thread of its own.

    A line that is written is on the disk: it is lost neither with the process nor with the machine. While the disk is
    full or the folder is not there, lines are kept and tried again; how many were lost beyond `most_waiting` is a line
    itself. The child of a fork begins files of its own and leaves its parent's alone.
    """

    def __init__(
        self,
        folder: Path,
        most_bytes: int,
        files: int,
        *,
        policy: str = "",
        clock: Callable[[], int] = time.time_ns,
        most_waiting: int = MAX_WAITING,
        retry_seconds: float = RETRY_SECONDS,
        afterwards: Callable[[], None] | None = None,
    ) -> None:
        """Start without a thread and without a file; the first transition makes both.

        Args:
            folder: Of the files of all processes; made when it is needed.
            most_bytes: Size at which a file is closed and a new one begun.
            files: Closed files of this process that are kept.
            policy: Digest, for the first line of each file.
            clock: Time of day, ns.
            most_waiting: Lines that are kept while they cannot be written.
            retry_seconds: After which they are tried again, if nothing new comes.
            afterwards: Called on the thread after each batch, written or not; to save state, for example.
        """
        self._make_files = partial(AuditFiles, Path(os.path.abspath(folder)), most_bytes, files, policy, clock)
        self._clock = clock
        self._most_waiting = most_waiting
        self._retry_seconds = retry_seconds
        self._afterwards = afterwards
        self._closed = False
        self._begin()
        me = weakref.ref(self)
        self._at_exit = partial(_close_at_exit, me)
        atexit.register(self._at_exit)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=partial(_after_fork, me))

    def _begin(self) -> None:
        self._queue: SimpleQueue[Transition | _Order] = SimpleQueue()
        self._thread: threading.Thread | None = None
        # Of the same thread again, since a garbage collection in between may end a request that writes.
        self._lock = threading.RLock()
        self._lost = 0
        self._lines: deque[bytes] = deque()
        self._last = 0
        self._retrying = False
        self._files = self._make_files()

    def write(self, transition: Transition) -> None:
        """Have a transition written. Waits for nothing and raises nothing."""
        if self._closed or self._queue.qsize() + len(self._lines) >= self._most_waiting:
            with self._lock:
                self._lost += 1
            return
        self._queue.put(transition)
        self._ensure_thread()

    def flush(self, timeout: float) -> bool:
        """Try to write everything now.

        Args:
            timeout: The longest wait, in seconds.

        Returns:
            Whether it is all on the disk.
        """
        return self._have_done(_Order(), timeout)

    def close(self, timeout: float = EXIT_SECONDS) -> bool:
        """Write what waits, end the thread and close the file; whatever comes afterwards is dropped.

        Args:
            timeout: The longest wait, in seconds; a disk that hangs is left to itself then.

        Returns:
            Whether it is all on the disk.
        """
        self._closed = True
        atexit.unregister(self._at_exit)
        began = time.monotonic()
        kept = self._have_done(_Order(last=True), timeout)
        thread = self._thread
        if thread is not None:
            thread.join(max(0.0, timeout - (time.monotonic() - began)))
        if not kept:
            warn_once("the last lines of the guard's audit trail could not be written")
        return kept

    def _have_done(self, order: _Order, timeout: float) -> bool:
        self._queue.put(order)
        thread = self._thread
        if thread is None or not thread.is_alive():
            self._do(self._waiting(None))
        return order.done.wait(timeout) and order.kept

    def _ensure_thread(self) -> None:
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
                    try:
                        self._thread.start()
                    except RuntimeError:  # the interpreter ends: close() writes it
                        self._thread = None

    def _run(self) -> None:
        going = True
        while going:
            going = self._do(self._waiting(self._retry_seconds if self._retrying else None, wait=True))

    def _waiting(self, timeout: float | None, *, wait: bool = False) -> list[Transition | _Order]:
        """Return what waits, in order; with `wait`, once there is anything or the time is over."""
        found: list[Transition | _Order] = []
        try:
            if wait:
                found.append(self._queue.get(timeout=timeout))
            while True:
                found.append(self._queue.get_nowait())
        except Empty:
            return found

    def _do(self, work: list[Transition | _Order]) -> bool:
        """Write what there is, and return whether there may be more to come."""
        orders = [each for each in work if isinstance(each, _Order)]
        for each in work:
            if isinstance(each, Transition):
                self._add(partial(transition_line, transition=each))
        kept = self._write_lines()
        self._retrying = not kept
        if self._afterwards is not None and len(work) > len(orders):
            try:
                self._afterwards()
            except Exception as error:
                report_fault("what follows a line of the guard's audit trail failed", error)
        last = any(order.last for order in orders)
        if last:
            self._files.close()
        for order in orders:
            order.kept = kept
            order.done.set()
        return not last

    def _add(self, line: Callable[[int], bytes]) -> None:
        try:
            self._lines.append(line(self._last + 1))
            self._last += 1
        except Exception as error:
            with self._lock:
                self._lost += 1
            report_fault("a transition of the guard could not be put into its audit trail", error)

    def _write_lines(self) -> bool:
        """Return whether everything is on the disk."""
        try:
            self._files.append(self._lines)
            with self._lock:
                lost, self._lost = self._lost, 0
            if lost:
                warn_once("lines of the guard's audit trail were lost; it tells how many")
                self._add(partial(loss_line, at=self._clock(), count=lost))
                self._files.append(self._lines)
        except Exception as error:
            report_fault("the guard's audit trail cannot be written now; its lines are kept and tried again", error)
            return False
        return True

    def _forget_parent(self) -> None:
        self._files.close()
        self._begin()


def _close_at_exit(reference: weakref.ref[AuditTrail]) -> None:
    trail = reference()
    if trail is not None:
        trail.close()


def _after_fork(reference: weakref.ref[AuditTrail]) -> None:
    trail = reference()
    if trail is not None:
        trail._forget_parent()
