"""Peak memory of requests: what is shown, and what the thread behind it costs."""

from __future__ import annotations

import gc
import mmap
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from otel_specdecode.host.process_memory import LifetimePeaks, ProcessMemory
from otel_specdecode.host.sampler import THREAD_NAME, Peaks, PeakSampler, Token, peak_sampler

MIB = 1024**2


class Memory:
    """A process whose memory is set by hand. It is its own probe."""

    def __init__(self, resident: int | None = 100, footprint: int | None = None) -> None:
        self.now = ProcessMemory(resident, footprint)
        self.peaks = LifetimePeaks(None, None)
        self.probed = threading.Event()
        self.open_probes = 0

    def __call__(self) -> ProcessMemory:
        return self.now

    def refuse(self) -> ProcessMemory:
        raise AssertionError("this thread must not read")

    def lifetime(self) -> LifetimePeaks:
        return self.peaks

    def probe(self) -> Memory:
        self.open_probes += 1
        return self

    def read(self) -> ProcessMemory:
        self.probed.set()
        return self.now

    def close(self) -> None:
        self.open_probes -= 1

    def wait_until_probed(self) -> None:
        """Wait until two readings have been taken from now on: the second is whole."""
        for _ in range(2):
            self.probed.clear()
            assert self.probed.wait(10)


def threads() -> list[threading.Thread]:
    """The sampling threads that run."""
    return [thread for thread in threading.enumerate() if thread.name == THREAD_NAME]


def wait_for(condition: Callable[[], object]) -> None:
    """Wait until a callable is true."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def begin(sampler: PeakSampler) -> Token:
    """Begin a request that is read while it runs."""
    token = sampler.begin()
    sampler.follow(token)
    return token


def ended(sampler: PeakSampler, token: Token) -> Peaks:
    """End a request and return its peaks."""
    sampler.end(token)
    return sampler.peaks(token)


@pytest.fixture
def memory() -> Memory:
    """A process whose memory is set by hand."""
    return Memory()


@pytest.fixture
def sampler(memory: Memory) -> Iterator[PeakSampler]:
    """A quick sampler of that process."""
    sampling = PeakSampler(memory, memory.lifetime, memory.probe, period=0.001, linger=0.01)
    yield sampling
    wait_for(lambda: sampling._thread is None)
    assert memory.open_probes == 0


def test_the_readings_at_begin_and_end_count() -> None:
    memory = Memory(100)
    sampler = PeakSampler(memory, memory.lifetime, memory.probe, period=0.05, linger=0)
    sampler._start = lambda: None  # type: ignore[method-assign]
    begun_high = begin(sampler)
    memory.now = ProcessMemory(50)
    ended_high = begin(sampler)
    assert ended(sampler, begun_high).resident == 100
    memory.now = ProcessMemory(70)
    assert ended(sampler, ended_high).resident == 70


def test_the_thread_that_makes_tokens_reads_lifetime_marks_alone() -> None:
    """A reading opens a file, and lets another thread have the interpreter's lock for 5 ms."""
    memory = Memory(100)
    sampler = PeakSampler(memory, memory.lifetime, memory.probe)
    sampler._start = lambda: None  # type: ignore[method-assign]
    token = begin(sampler)
    sampler._read = memory.refuse
    sampler.end(token)


@pytest.mark.parametrize(("late", "expected"), [(0.001, 900), (0.1, 100)])
def test_a_last_reading_that_comes_late_is_the_next_requests(late: float, expected: int) -> None:
    memory, now = Memory(100), [50.0]
    sampler = PeakSampler(memory, memory.lifetime, memory.probe, clock=lambda: now[0])
    sampler._start = lambda: None  # type: ignore[method-assign]
    token = begin(sampler)
    sampler.end(token)
    memory.now = ProcessMemory(900)
    now[0] += late
    assert sampler.peaks(token).resident == expected


def test_a_request_that_nobody_came_to_read_reads_at_its_end() -> None:
    """What comes after it is the next one's memory."""
    memory, now = Memory(100), [50.0]
    sampler = PeakSampler(memory, memory.lifetime, memory.probe, clock=lambda: now[0])
    token = sampler.begin()
    sampler.end(token)
    now[0] += 10
    memory.now = ProcessMemory(900)
    sampler.follow(token)
    assert sampler.peaks(token).resident == 100


def test_a_peak_between_begin_and_end_is_seen(sampler: PeakSampler, memory: Memory) -> None:
    token = begin(sampler)
    memory.now = ProcessMemory(900)
    memory.wait_until_probed()
    memory.now = ProcessMemory(100)
    assert ended(sampler, token).resident == 900


def test_each_request_has_the_peak_of_its_own_time(sampler: PeakSampler, memory: Memory) -> None:
    first = begin(sampler)
    memory.now = ProcessMemory(900)
    memory.wait_until_probed()
    second = begin(sampler)
    memory.now = ProcessMemory(950)
    memory.wait_until_probed()
    memory.now = ProcessMemory(100)
    assert ended(sampler, first).resident == 950
    third = begin(sampler)
    assert ended(sampler, second).resident == 950
    assert ended(sampler, third).resident == 100


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (LifetimePeaks(500, 600), LifetimePeaks(500, 600), Peaks(100, 500, 70, 600)),
        (LifetimePeaks(500, 600), LifetimePeaks(501, 601), Peaks(501, 501, 601, 601)),
        (LifetimePeaks(500, None), LifetimePeaks(500, None), Peaks(100, 500, 70, 70)),
        (LifetimePeaks(None, None), LifetimePeaks(None, None), Peaks(100, 100, 70, 70)),
        (LifetimePeaks(None, None), LifetimePeaks(300, 300), Peaks(100, 300, 70, 300)),
    ],
    ids=["did not rise", "rose", "resident only", "none kept", "known only afterwards"],
)
def test_a_lifetime_mark_that_rose_meanwhile_is_the_peak(
    before: LifetimePeaks, after: LifetimePeaks, expected: Peaks
) -> None:
    """A peak between two readings is then not missed; a mark from earlier is not taken for this request's."""
    memory = Memory(100, 70)
    sampler = PeakSampler(memory, memory.lifetime, memory.probe, period=0.001, linger=0)
    memory.peaks = before
    token = begin(sampler)
    memory.peaks = after
    assert ended(sampler, token) == expected
    wait_for(lambda: sampler._thread is None)


def test_what_the_system_does_not_tell_is_none() -> None:
    memory = Memory(None)
    sampler = PeakSampler(memory, memory.lifetime, memory.probe, period=0.001, linger=0)
    assert ended(sampler, begin(sampler)) == Peaks(None, None, None, None)
    wait_for(lambda: sampler._thread is None)


def test_one_thread_samples_for_all_and_ends_soon_after_the_last(sampler: PeakSampler, memory: Memory) -> None:
    before = threads()
    tokens = [begin(sampler) for _ in range(5)]
    assert len(threads()) == len(before) + 1
    for token in tokens:
        ended(sampler, token)
    wait_for(lambda: threads() == before)
    assert memory.open_probes == 0


def test_a_request_after_the_thread_has_ended_starts_it_again(sampler: PeakSampler, memory: Memory) -> None:
    ended(sampler, begin(sampler))
    wait_for(lambda: sampler._thread is None)
    token = begin(sampler)
    memory.now = ProcessMemory(900)
    memory.wait_until_probed()
    memory.now = ProcessMemory(100)
    assert ended(sampler, token).resident == 900


def test_short_requests_close_to_each_other_start_no_thread(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = PeakSampler(memory, memory.lifetime, memory.probe, period=0.001, linger=0.5)
    ended(sampler, begin(sampler))
    wait_for(lambda: sampler._waiting)
    thread = sampler._thread
    monkeypatch.setattr(sampler, "_start", lambda: pytest.fail("a thread was started"))
    for _ in range(20):
        ended(sampler, begin(sampler))
        wait_for(lambda: sampler._waiting)
    assert sampler._thread is thread
    sampler._linger = 0
    sampler._wake.set()
    wait_for(lambda: sampler._thread is None)


def test_a_request_wakes_the_waiting_thread(memory: Memory) -> None:
    sampler = PeakSampler(memory, memory.lifetime, memory.probe, period=0.001, linger=60)
    ended(sampler, begin(sampler))
    wait_for(lambda: sampler._waiting)
    token = begin(sampler)
    memory.now = ProcessMemory(900)
    memory.wait_until_probed()
    memory.now = ProcessMemory(100)
    sampler._linger = 0
    assert ended(sampler, token).resident == 900
    wait_for(lambda: sampler._thread is None)


def test_a_request_that_comes_while_the_thread_goes_is_still_sampled(memory: Memory) -> None:
    """Before it waits and before it ends, the thread looks once more at what is open."""
    sampler = PeakSampler(memory, memory.lifetime, memory.probe, linger=0)
    sampler._thread = threading.current_thread()
    token = begin(sampler)
    assert sampler._another_came()
    assert not sampler._ended()
    assert sampler._thread is threading.current_thread()
    ended(sampler, token)
    assert not sampler._another_came()
    assert sampler._ended()
    assert sampler._thread is None


def test_while_nothing_is_open_the_waiting_thread_does_nothing(memory: Memory) -> None:
    sampler = PeakSampler(memory, memory.lifetime, memory.probe, period=0.001, linger=0.2)
    ended(sampler, begin(sampler))
    wait_for(lambda: sampler._waiting)
    memory.probed.clear()
    assert memory.open_probes == 0
    wait_for(lambda: sampler._thread is None)
    assert not memory.probed.is_set()


def test_a_token_that_is_dropped_keeps_no_thread_running(sampler: PeakSampler) -> None:
    token = begin(sampler)
    del token
    gc.collect()
    assert not sampler._open
    wait_for(lambda: sampler._thread is None)


def test_ending_twice_does_no_harm(sampler: PeakSampler) -> None:
    token = begin(sampler)
    assert ended(sampler, token) == ended(sampler, token)


def test_a_request_may_end_in_a_finalizer_under_the_samplers_own_lock(sampler: PeakSampler) -> None:
    token = begin(sampler)
    with sampler._starting:
        assert ended(sampler, token).resident == 100


def test_thirty_two_threads_at_once(sampler: PeakSampler, memory: Memory) -> None:
    sampler._linger = 0.5  # a thread that ends beside the next one that begins is no second one
    others = set(threads())  # that of this process may wait for another request yet
    gate, peaks = threading.Barrier(32), list[int | None]()

    def requests() -> None:
        gate.wait()
        for _ in range(50):
            peaks.append(ended(sampler, begin(sampler)).resident)

    running = [threading.Thread(target=requests) for _ in range(32)]
    for thread in running:
        thread.start()
    most = 0
    while any(thread.is_alive() for thread in running):
        most = max(most, len(set(threads()) - others))
    for thread in running:
        thread.join()
    assert peaks == [100] * 1600
    assert most <= 1
    assert not sampler._open


def test_where_no_thread_can_be_had_two_readings_remain(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    sampler = PeakSampler(memory, memory.lifetime, memory.probe)
    assert ended(sampler, begin(sampler)).resident == 100
    assert sampler._thread is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_the_child_of_a_fork_has_nothing_open_and_a_thread_of_its_own(sampler: PeakSampler, memory: Memory) -> None:
    token = begin(sampler)
    memory.wait_until_probed()
    with sampler._starting:
        child = os.fork()
        if child == 0:
            clean = not sampler._open and sampler._thread is None and memory.open_probes == 0
            inherited = ended(sampler, token).resident
            memory.probed.clear()
            own = begin(sampler)
            sampled = memory.probed.wait(10)
            os._exit(0 if clean and sampled and inherited == ended(sampler, own).resident == 100 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    memory.now = ProcessMemory(900)
    memory.wait_until_probed()
    assert ended(sampler, token).resident == 900


@pytest.mark.skipif(sys.platform != "linux", reason="reads the /proc of Linux")
def test_no_descriptor_is_left_open() -> None:
    sampler = PeakSampler(period=0.001, linger=0)
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(3):
        ended(sampler, begin(sampler))
        wait_for(lambda: sampler._thread is None)
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_memory_that_is_taken_and_given_back_shows_in_its_request_and_not_in_the_next() -> None:
    """200 MB, held for as long as the next reading takes to come: 50 ms, or more where the machine gives no time."""
    linger = threads()
    first = begin(peak_sampler)
    before = first.highest.resident
    assert before is not None
    block = mmap.mmap(-1, 200 * MIB)  # not out of the heap, which may keep what is given back
    for page in range(0, len(block), mmap.PAGESIZE):
        block[page] = 1
    wait_for(lambda: (first.highest.resident or 0) >= before + 190 * MIB)
    block.close()
    peak = ended(peak_sampler, first)
    rest = psutil.Process().memory_info().rss
    following = ended(peak_sampler, begin(peak_sampler))
    assert peak.resident is not None
    assert following.resident is not None
    assert peak.resident >= rest + 190 * MIB
    assert following.resident < rest + 50 * MIB
    # The kernel's counters of what is and of what was highest differ by some pages.
    assert following.resident_lifetime is not None
    assert following.resident_lifetime >= 0.99 * peak.resident
    wait_for(lambda: threads() == linger or peak_sampler._waiting)


def test_the_sampler_of_this_process_reads_twenty_times_a_second() -> None:
    assert peak_sampler._period == pytest.approx(0.05)


def test_a_process_ends_at_once_while_a_request_is_open() -> None:
    script = """
        from otel_specdecode.host.sampler import PeakSampler
        sampler = PeakSampler(period=0.001)
        token = sampler.begin()
        sampler.follow(token)
    """
    finished = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=20, check=True
    )
    assert (finished.stdout, finished.stderr) == ("", "")


def test_a_reading_that_was_held_up_is_not_of_a_request_that_ended_meanwhile() -> None:
    """As where the recording thread is not given time between asking and reading."""
    memory = Memory(100)
    sampler = PeakSampler(memory, memory.lifetime, memory.probe)
    sampler._start = lambda: None  # type: ignore[method-assign]
    token = sampler.begin()

    def held_up() -> ProcessMemory:
        sampler._read = memory
        sampler.end(token)
        memory.now = ProcessMemory(900)
        return memory.now

    sampler._read = held_up
    sampler.follow(token)
    token.ended = (token.ended or 0.0) - 1.0
    assert sampler.peaks(token).resident == 100
