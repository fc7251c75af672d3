"""The watcher: its thread, its last state, its totals."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator

import pytest

from otel_specdecode.host.readers import Reader
from otel_specdecode.host.state import HostState
from otel_specdecode.host.watcher import NOT_READ_YET, THREAD_NAME, TOO_OLD, Watcher
from tests.host.states import host_state


class Script:
    """A reader that gives these states in turn, the last one for ever, while its gate is open."""

    def __init__(self, *states: HostState) -> None:
        self.states = list(states)
        self.threads: list[str] = []
        self.gate = threading.Event()
        self.gate.set()

    def read(self) -> HostState:
        self.threads.append(threading.current_thread().name)
        self.gate.wait(10)
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]


class Clock:
    """A clock that is moved by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Watchers:
    """Makes watchers and stops them."""

    def __init__(self) -> None:
        self.made: list[Watcher] = []

    def __call__(self, reader: Reader, *, every: float = 5.0, clock: Clock | None = None) -> Watcher:
        watcher = Watcher(lambda: reader, every=every, clock=clock or time.monotonic)
        self.made.append(watcher)
        return watcher


@pytest.fixture
def watchers() -> Iterator[Watchers]:
    made = Watchers()
    yield made
    assert all(watcher.stop() for watcher in made.made)


def wait_for(condition: object) -> None:
    """Wait until a callable is true."""
    deadline = time.monotonic() + 10
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_the_first_question_starts_the_thread_and_is_answered_at_once(watchers: Watchers) -> None:
    reader = Script(host_state(thermal_state="fair"))
    reader.gate.clear()
    watcher = watchers(reader)
    assert watcher.current() is NOT_READ_YET
    reader.gate.set()
    wait_for(lambda: watcher.current() is not NOT_READ_YET)
    assert watcher.current().thermal_state.value == "fair"
    assert set(reader.threads) == {THREAD_NAME}


def test_before_the_first_reading_every_value_says_so() -> None:
    assert {reading.why_unknown for reading in NOT_READ_YET.readings().values()} == {"not read yet"}


def test_a_watcher_that_nobody_asks_has_no_thread() -> None:
    threads = threading.active_count()
    Watcher(lambda: Script(host_state()))
    assert threading.active_count() == threads
    assert THREAD_NAME not in {thread.name for thread in threading.enumerate()}


def test_importing_starts_no_thread() -> None:
    script = """
        import threading
        from otel_specdecode.host.sampler import peak_sampler
        from otel_specdecode.host.watcher import host_watcher
        print(threading.active_count(), host_watcher._last)
    """
    finished = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60, check=True
    )
    assert finished.stdout == "1 None\n"


def test_a_reader_that_hangs_keeps_nobody_waiting(watchers: Watchers) -> None:
    reader = Script(host_state())
    reader.gate.clear()
    watcher = watchers(reader)
    watcher.start()
    wait_for(lambda: reader.threads)
    began = time.monotonic()
    assert watcher.current() is NOT_READ_YET
    assert watcher.totals().readings == 0
    assert not watcher.stop(timeout=0)
    assert time.monotonic() - began < 1
    reader.gate.set()
    wait_for(lambda: THREAD_NAME not in {thread.name for thread in threading.enumerate()})


def test_it_reads_again_and_again(watchers: Watchers) -> None:
    watcher = watchers(Script(host_state(thermal_state="fair")), every=0.001)
    watcher.start()
    wait_for(lambda: watcher.totals().readings >= 3)


def test_many_threads_that_ask_at_once_start_one_thread(watchers: Watchers) -> None:
    watcher = watchers(Script(host_state()))
    gate = threading.Barrier(32)

    def ask() -> None:
        gate.wait()
        watcher.current()
        watcher.totals()

    asking = [threading.Thread(target=ask) for _ in range(32)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert [thread.name for thread in threading.enumerate()].count(THREAD_NAME) == 1


def test_nobody_waits_for_another_who_starts_the_thread(watchers: Watchers) -> None:
    watcher = watchers(Script(host_state()))
    asking = threading.Thread(target=watcher.current)
    with watcher._starting:
        asking.start()
        asking.join(5)
        assert not asking.is_alive()
    assert watcher._thread is None


def test_after_stop_the_next_question_starts_it_again(watchers: Watchers) -> None:
    watcher = watchers(Script(host_state(thermal_state="fair")))
    watcher.start()
    wait_for(lambda: watcher.totals().readings == 1)
    assert watcher.stop()
    assert THREAD_NAME not in {thread.name for thread in threading.enumerate()}
    assert watcher._last is not None
    watcher.current()
    wait_for(lambda: watcher.totals().readings == 2)


def test_stop_before_start_does_nothing() -> None:
    assert Watcher(lambda: Script(host_state())).stop()


@pytest.fixture
def by_hand() -> tuple[Watcher, Clock, Script]:
    """A watcher without a thread, whose readings are taken by hand."""
    clock, reader = Clock(), Script(host_state())
    watcher = Watcher(lambda: reader, every=5.0, clock=clock)
    watcher._closed.set()
    return watcher, clock, reader


def test_totals_of_two_exports(by_hand: tuple[Watcher, Clock, Script]) -> None:
    """A critical phase of one reading between two exports is in the second one; so is a swap episode."""
    watcher, clock, reader = by_hand
    hot = {6, 7}
    reader.states = [
        host_state(thermal_state="critical" if number in hot else "nominal", swapped_out=100 + (number > 8))
        for number in range(25)
    ]
    seen = []
    for number in range(25):
        clock.now = 5.0 * number
        watcher.read_once()
        if number in {2, 14, 24}:
            totals = watcher.totals()
            seen.append((totals.seconds["thermal_state"]["critical"], totals.swap_episodes, totals.readings))
    assert seen == [(0, 0, 3), (10, 1, 15), (10, 1, 25)]
    assert watcher.totals().seconds["thermal_state"]["nominal"] == 110


def test_a_state_that_is_old_is_not_handed_out(by_hand: tuple[Watcher, Clock, Script]) -> None:
    watcher, clock, _ = by_hand
    watcher.read_once()
    clock.now = 15.0
    assert watcher.current() not in {NOT_READ_YET, TOO_OLD}
    clock.now = 15.1
    assert watcher.current() is TOO_OLD
    watcher.read_once()
    assert watcher.current() is not TOO_OLD


def test_a_reader_that_raises_makes_an_unknown_state(by_hand: tuple[Watcher, Clock, Script]) -> None:
    watcher, _, reader = by_hand
    reader.states = []
    watcher.read_once()
    assert watcher.current().thermal_state.why_unknown == "reading failed (IndexError)"
    assert watcher.totals().readings == 1


def test_a_reader_that_cannot_be_made_makes_an_unknown_state() -> None:
    def make() -> Reader:
        raise OSError("/home/someone")

    watcher = Watcher(make)
    watcher._closed.set()
    watcher.read_once()
    assert watcher.current().thermal_state.why_unknown == "reading failed (OSError)"


def test_where_no_thread_can_be_had_the_state_stays_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    watcher = Watcher(lambda: Script(host_state()))
    assert watcher.current() is NOT_READ_YET
    assert watcher.totals().readings == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_the_child_of_a_fork_starts_anew(watchers: Watchers) -> None:
    """It has nothing read and nothing added up, and a thread of its own once it is asked."""
    watcher = watchers(Script(host_state(thermal_state="fair")))
    watcher.start()
    wait_for(lambda: watcher.totals().readings == 1)
    with watcher._adding, watcher._starting:
        child = os.fork()
        if child == 0:
            fresh = watcher._last is None and watcher.current().thermal_state.value in {"unknown", "fair"}
            deadline = time.monotonic() + 10
            while watcher.totals().readings < 1 and time.monotonic() < deadline:
                time.sleep(0.001)
            os._exit(0 if fresh and watcher.current().thermal_state.value == "fair" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert watcher.totals().readings == 1


def test_a_process_ends_at_once_while_a_reading_hangs() -> None:
    """At its end no thread is started and no command is run any more."""
    script = """
        import atexit, threading, time
        asked_last = []
        atexit.register(lambda: print(asked_last[0].totals().readings, asked_last[0]._thread))
        from otel_specdecode.host.watcher import Watcher
        inside = threading.Event()
        class Hangs:
            def read(self):
                inside.set()
                time.sleep(60)
        asked_last.append(Watcher(Hangs))
        watcher = Watcher(Hangs)
        watcher.start()
        inside.wait(10)
    """
    began = time.monotonic()
    finished = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=30, check=True
    )
    assert (finished.stdout, finished.stderr) == ("0 None\n", "")
    assert time.monotonic() - began < 15


def test_a_reading_that_hangs_is_not_joined_by_another_thread() -> None:
    """Instrumented and uninstrumented again and again, meanwhile."""
    reading, go_on = threading.Event(), threading.Event()

    class Hanging:
        def read(self) -> HostState:
            reading.set()
            go_on.wait(20)
            return host_state(power_mode="low")

    before = {thread for thread in threading.enumerate() if thread.name == THREAD_NAME}
    watcher = Watcher(Hanging)
    for _ in range(4):
        watcher.start()
        assert reading.wait(10)
        assert not watcher.stop(timeout=0.0)
    running = [thread for thread in threading.enumerate() if thread.name == THREAD_NAME and thread not in before]
    assert len(running) == 1
    watcher.start()
    go_on.set()
    deadline = time.monotonic() + 10
    while watcher.current().power_mode.value != "low":
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert watcher.stop()
