"""Runs requests, several at once where an arm asks for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from queue import SimpleQueue

from otel_specdecode.acceptance.measuring import Job
from otel_specdecode.acceptance.records import Measured


def run_jobs(
    jobs: Iterable[Job],
    at_once: int,
    run: Callable[[Job, int], Measured],
    keep: Callable[[Measured], None],
    stopped: threading.Event | None = None,
) -> None:
    """Run all jobs and hand out each result as it comes, on the calling thread.

    An exception ends the rest: no further request begins, and those that run are waited for.

    Args:
        jobs: What to run. Each is asked for when a thread is free for it, so that it may be waited for there.
        at_once: How many at once; one runs on the calling thread.
        run: Makes a request, given it and the number of its thread.
        keep: Takes a result.
        stopped: Is set where the rest is not to run: jobs that wait for their time no longer do then.
    """
    if at_once <= 1:
        for job in jobs:
            keep(run(job, 0))
        return
    shared = _Shared(iter(jobs), run, stopped or threading.Event())
    threads = [
        threading.Thread(target=shared.work, args=(number,), name=f"otel-specdecode-run-{number}")
        for number in range(at_once)
    ]
    try:
        for thread in threads:
            thread.start()
        shared.gather(at_once, keep)
    finally:
        shared.stopped.set()
        for thread in threads:
            with suppress(RuntimeError):  # an interrupt kept it from being started, or it starts now and runs nothing
                thread.join()


class _Shared:
    """What the threads share."""

    def __init__(self, jobs: Iterator[Job], run: Callable[[Job, int], Measured], stopped: threading.Event) -> None:
        self.stopped = stopped
        self._jobs = jobs
        self._asking = threading.Lock()
        self._run = run
        self._ended: SimpleQueue[Measured | BaseException | None] = SimpleQueue()

    def work(self, number: int) -> None:
        """Run jobs until there are no more."""
        try:
            while (job := self._next()) is not None:
                self._ended.put(self._run(job, number))
        except BaseException as error:
            self._ended.put(error)
        finally:
            self._ended.put(None)

    def gather(self, threads: int, keep: Callable[[Measured], None]) -> None:
        """Hand out results until every thread has said that it is through."""
        while threads:
            came = self._ended.get()
            if came is None:
                threads -= 1
            elif isinstance(came, BaseException):
                raise came
            else:
                keep(came)

    def _next(self) -> Job | None:
        with self._asking:
            job = None if self.stopped.is_set() else next(self._jobs, None)
            return None if self.stopped.is_set() else job  # it may have been waited for
