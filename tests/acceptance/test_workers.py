from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

pytest.importorskip("msgspec", reason="needs the [acceptance] extra")
pytest.importorskip("scipy", reason="needs the [acceptance] extra")

from otel_specdecode.acceptance.measuring import Job
from otel_specdecode.acceptance.records import Arm, Measured
from otel_specdecode.acceptance.workers import run_jobs
from tests.acceptance.fakes import World, fake_request, prompts

JOBS = [Job(f"{number}", Arm(0), prompts(1)[0], number, "measured") for number in range(20)]


def made(job: Job, thread: int) -> Measured:
    return replace(fake_request(job.arm, job.prompt, 0, World()), id=job.id)


@pytest.mark.parametrize("at_once", [1, 2, 7, 50])
def test_each_job_runs_once_and_results_come_on_the_calling_thread(at_once: int) -> None:
    kept: list[str] = []
    threads = set()

    def keep(result: Measured) -> None:
        threads.add(threading.current_thread())
        kept.append(result.id)

    run_jobs(JOBS, at_once, made, keep)

    assert sorted(kept, key=int) == [job.id for job in JOBS]
    assert threads == {threading.current_thread()}


def test_as_many_run_at_once_as_are_asked_for() -> None:
    together = threading.Barrier(4)

    def run(job: Job, thread: int) -> Measured:
        together.wait(timeout=30)  # breaks unless four are here
        return made(job, thread)

    run_jobs(JOBS, 4, run, lambda _: None)
    assert not together.broken


@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize("error", [ValueError("bad"), KeyboardInterrupt()])
def test_an_exception_of_a_request_ends_the_rest(at_once: int, error: BaseException) -> None:
    begun = []

    def run(job: Job, thread: int) -> Measured:
        begun.append(job.id)
        if job.id == "3":
            raise error
        time.sleep(0.001)
        return made(job, thread)

    with pytest.raises(type(error)):
        run_jobs(JOBS, at_once, run, lambda _: None)
    assert len(begun) < len(JOBS)
    assert not any(thread.name.startswith("otel-specdecode-run") for thread in threading.enumerate())


def test_an_exception_of_whoever_keeps_results_ends_the_rest() -> None:
    def keep(result: Measured) -> None:
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        run_jobs(JOBS, 3, made, keep)
    assert not any(thread.name.startswith("otel-specdecode-run") for thread in threading.enumerate())


def test_a_job_that_is_waited_for_is_asked_for_by_one_thread_at_a_time() -> None:
    def jobs():
        yield from JOBS  # a generator raises where two threads are in it at once

    kept: list[str] = []
    run_jobs(jobs(), 8, made, lambda result: kept.append(result.id))
    assert len(kept) == len(JOBS)


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("number", range(3))
def test_an_interrupt_while_threads_are_started_leaves_none_running(
    number: int, before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They run an engine whose models are freed next."""
    start, started, running = threading.Thread.start, [], []

    def interrupted(thread: threading.Thread) -> None:
        if before and len(started) == number:
            raise KeyboardInterrupt
        started.append(thread)
        start(thread)
        if len(started) > number:
            raise KeyboardInterrupt

    def run(job: Job, thread: int) -> Measured:
        running.append(job.id)
        time.sleep(0.01)
        running.remove(job.id)
        return made(job, thread)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_jobs(JOBS, 3, run, lambda _: None)
    assert not running
    assert not any(thread.is_alive() for thread in started)
