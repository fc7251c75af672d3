"""The recording thread."""

from __future__ import annotations

import logging
import os
import threading
import time

import pytest

from otel_specdecode.generation import faults
from otel_specdecode.telemetry import recorder as module
from otel_specdecode.telemetry.recorder import THREAD_NAME, Recorder


def test_work_runs_in_order_on_one_thread() -> None:
    """What is put first runs first, never on the thread that put it."""
    recorder, ran = Recorder(), []
    recorder.ensure_thread()
    for number in range(100):
        recorder.put(lambda number=number: ran.append((number, threading.current_thread().name)))  # type: ignore[misc]
    assert recorder.drain(5)
    assert ran == [(number, THREAD_NAME) for number in range(100)]


def test_drain_without_a_thread_runs_what_waits() -> None:
    """A process whose thread never started, as after a fork, still delivers."""
    recorder, ran = Recorder(), []
    recorder.put(lambda: ran.append(1))
    assert recorder.drain(0)
    assert ran == [1]


def test_drain_gives_up_in_time() -> None:
    """Work that blocks does not block drain() beyond its timeout."""
    recorder, release = Recorder(), threading.Event()
    recorder.ensure_thread()
    recorder.put(lambda: release.wait(10) and None)
    began = time.monotonic()
    assert not recorder.drain(0.05)
    assert time.monotonic() - began < 5
    release.set()
    assert recorder.drain(5)


def test_drain_from_the_recording_thread_returns() -> None:
    """An exporter that flushes from inside the recording thread does not wait for itself."""
    recorder, answers = Recorder(), []
    recorder.ensure_thread()
    recorder.put(lambda: answers.append(recorder.drain(60)))
    assert recorder.drain(5)
    assert answers == [False]


def test_failing_work_is_told_once_and_the_rest_runs(caplog: pytest.LogCaptureFixture) -> None:
    """One warning a cause; the thread lives on."""
    faults._told.clear()
    recorder, ran = Recorder(), []
    recorder.ensure_thread()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            recorder.put(lambda: ran[7])
        recorder.put(lambda: ran.append(1))
        assert recorder.drain(5)
    assert ran == [1]
    assert len(caplog.records) == 1


def test_a_backlog_is_bounded(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Parts of running streams are refused when too much waits, with one warning; beginnings and ends never are."""
    faults._told.clear()
    monkeypatch.setattr(module, "MAX_WAITING", 10)
    recorder, ran = Recorder(), []
    with caplog.at_level(logging.WARNING):
        added = [recorder.put_unless_full(lambda: ran.append(1)) for _ in range(50)]
    recorder.put(lambda: ran.append(1))
    recorder.drain(1)
    assert added == [True] * 10 + [False] * 40
    assert len(ran) == 11
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_thread_that_cannot_start_now_may_start_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the system's limit of threads one begin fails; the next one tries again."""
    recorder, ran = Recorder(), []
    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", lambda self: (_ for _ in ()).throw(RuntimeError("no more threads")))
        with pytest.raises(RuntimeError):
            recorder.ensure_thread()
    recorder.ensure_thread()
    recorder.put(lambda: ran.append(1))
    assert recorder.drain(5)
    assert ran == [1]


def test_it_pauses_after_a_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    """After every 20 records the thread that makes tokens gets the GIL; not while somebody waits for a drain."""
    naps: list[float] = []
    monkeypatch.setattr(module.time, "sleep", naps.append)
    recorder = Recorder()
    for _ in range(60):
        recorder.pace()
    assert naps == [module.PAUSE_SECONDS] * 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_starts_empty() -> None:
    """The child drops what the parent had queued, has another epoch, and records its own work."""
    recorder, release = Recorder(), threading.Event()
    recorder.ensure_thread()
    recorder.put(lambda: release.wait(10) and None)
    recorder.put(lambda: None)
    child = os.fork()
    if child == 0:
        ran: list[int] = []
        recorder.ensure_thread()
        recorder.put(lambda: ran.append(1))
        done = recorder.drain(5)
        os._exit(0 if done and ran == [1] and recorder.epoch == 1 else 1)
    release.set()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert recorder.epoch == 0
    assert recorder.drain(5)
