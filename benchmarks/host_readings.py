"""What reading the machine costs: the two threads that read, and the readings themselves."""

from __future__ import annotations

import os
import threading
import time
import zlib
from collections.abc import Callable
from functools import partial

from benchmarks.installed import left_out
from benchmarks.measuring import Measure, interleaved
from benchmarks.real_engine import measure_runs
from benchmarks.real_llama_cpp import llama_cpp_runs
from benchmarks.real_mlx import mlx_runs
from benchmarks.real_runs import Run
from benchmarks.results import Comparison, Section
from benchmarks.sdk import sdk
from benchmarks.statistics import Target, median, ratio
from otel_specdecode.host.process_memory import MemoryProbe, ProcessMemory, process_memory
from otel_specdecode.host.readers import reader_for
from otel_specdecode.host.sampler import PeakSampler
from otel_specdecode.host.state import HostState
from otel_specdecode.host.watcher import Watcher
from otel_specdecode.thresholds import thresholds

OF_A_CORE = Target(0.2)
"""Percent of one core while a request runs."""

NONE = Target(0.0)
WATCHED_EVERY = 0.1
"""Seconds between readings of the watcher that is measured; the shipped one waits longer, and its share is less."""

BLOCK = os.urandom(1 << 18)


def host_readings(*, readings: int = 40, repetitions: int = 12, calls: int = 200, tokens: int = 64) -> Section:
    """Measure the sampler of peak memory, the watcher of the machine, single calls, and tokens a second."""
    bounds = thresholds()["host"]
    section = Section(
        "Host readings",
        f"CPU time of the reading threads, {readings} readings a sample, and of single calls. Memory is read "
        f"{bounds['memory_readings_per_second']} times a second while a request is open; a timer is a thread that wakes"
        f" as often and no more. The machine is read every {bounds['read_every']} s{left_out(mlx=True)}",
    )
    for case, meanwhile in (("nothing else runs", time.sleep), ("a thread computes", _compute)):
        _sampler(section, case, meanwhile, readings, repetitions)
    _no_request(section)
    for case, meanwhile in (("nothing else runs", time.sleep), ("a thread computes", _compute)):
        _watcher(section, case, meanwhile, readings, repetitions)
    _calls(section, calls, repetitions)
    _speed(section, tokens, repetitions)
    return section


def _compute(seconds: float) -> None:
    """Compute without the GIL, as an engine does."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        zlib.compress(BLOCK)


class Moments:
    """CPU time of the calling thread and the time, at every reading."""

    def __init__(self) -> None:
        self._taken: list[tuple[int, int]] = []

    def take(self) -> None:
        self._taken.append((time.thread_time_ns(), time.perf_counter_ns()))

    def share(self) -> float:
        """Return the share of one core between the first reading and the last, in percent."""
        (cpu, wall), (cpu_after, wall_after) = self._taken[0], self._taken[-1]
        return (cpu_after - cpu) / (wall_after - wall) * 100

    def a_reading(self) -> float:
        """Return the CPU time from one reading to the next, in nanoseconds."""
        return (self._taken[-1][0] - self._taken[0][0]) / (len(self._taken) - 1)


class _Probe(MemoryProbe):
    def __init__(self, moments: Moments) -> None:
        super().__init__()
        self._moments = moments

    def read(self) -> ProcessMemory:
        self._moments.take()
        return super().read()


class _Reader:
    def __init__(self, moments: Moments) -> None:
        self._moments = moments
        self._reader = reader_for()

    def read(self) -> HostState:
        self._moments.take()
        return self._reader.read()


def _sampler(section: Section, case: str, meanwhile: Callable[[float], None], readings: int, repetitions: int) -> None:
    period = 1 / thresholds()["host"]["memory_readings_per_second"]
    variants: dict[str, Measure] = {
        "timer": partial(_timer_share, period, meanwhile, readings),
        "ours": partial(_sampler_share, period, meanwhile, readings),
    }
    samples = interleaved(variants, repetitions)
    case = f"request open, {case}"
    section.keep(case, samples)
    section.add(case, "timer", samples["timer"], "% of a core")
    against = ratio(samples["ours"], samples["timer"])
    held = Comparison("", median(samples["ours"]), OF_A_CORE, "%")
    section.add(case, "ours", samples["ours"], "% of a core", [held, Comparison("x timer", against)])


def _sampler_share(period: float, meanwhile: Callable[[float], None], readings: int) -> float:
    moments = Moments()
    sampler = PeakSampler(make_probe=lambda: _Probe(moments), linger=0)
    token = sampler.begin()
    sampler.follow(token)
    meanwhile((readings + 1) * period)
    sampler.end(token)
    return moments.share()


def _timer_share(period: float, meanwhile: Callable[[float], None], readings: int) -> float:
    moments, over = Moments(), threading.Event()

    def wake() -> None:
        while not over.is_set():
            time.sleep(period)
            moments.take()

    thread = threading.Thread(target=wake)
    thread.start()
    meanwhile((readings + 1) * period)
    over.set()
    thread.join()
    return moments.share()


def _no_request(section: Section) -> None:
    """Count the sampler's threads once the last request is over and the time to wait for another one has passed."""
    before = set(threading.enumerate())
    sampler = PeakSampler(linger=0)
    token = sampler.begin()
    sampler.follow(token)
    sampler.end(token)
    if (thread := sampler._thread) is not None:
        thread.join(5)
    left = [float(len(set(threading.enumerate()) - before))]
    section.add("no request open", "ours", left, "threads", [Comparison("", median(left), NONE, "threads")])


def _watcher(section: Section, case: str, meanwhile: Callable[[float], None], readings: int, repetitions: int) -> None:
    every = float(thresholds()["host"]["read_every"])
    took = interleaved({"ours": partial(_watcher_reading, meanwhile, readings)}, repetitions)["ours"]
    share = took / every / 1e9 * 100
    case = f"watcher, {case}"
    section.keep(case, {"ours": share})
    held = Comparison("", median(share), OF_A_CORE, "%")
    section.add(case, "ours", share, "% of a core", [held])


def _watcher_reading(meanwhile: Callable[[float], None], readings: int) -> float:
    moments = Moments()
    watcher = Watcher(lambda: _Reader(moments), every=WATCHED_EVERY)
    watcher.start()
    meanwhile((readings // 4 + 2) * WATCHED_EVERY)
    watcher.stop()
    return moments.a_reading()


def _calls(section: Section, calls: int, repetitions: int) -> None:
    """Measure single calls on the calling thread, one after the other: caches are warm."""
    sampler, watcher, reader = PeakSampler(), Watcher(), reader_for()
    watcher.read_once()
    watcher.start()
    timed: dict[str, Callable[[], object]] = {
        "begin and end of a request": partial(_followed, sampler),
        "memory of the process": process_memory,
        "last state of the machine": watcher.current,
        "state of the machine, read": reader.read,
    }
    samples = interleaved({name: partial(_thread_us, call, calls) for name, call in timed.items()}, repetitions)
    watcher.stop()
    section.keep("one call", samples)
    for name, values in samples.items():
        section.add("one call", name, values, "us")


def _followed(sampler: PeakSampler) -> None:
    """Do what the thread that makes tokens does: the readings themselves are taken elsewhere meanwhile."""
    token = sampler.begin()
    token.take_edge(ProcessMemory(1))
    sampler.end(token)


def _thread_us(call: Callable[[], object], calls: int) -> float:
    began = time.thread_time_ns()
    for _ in range(calls):
        call()
    return (time.thread_time_ns() - began) / calls / 1e3


def _speed(section: Section, tokens: int, repetitions: int) -> None:
    """Measure the real engines bare, and bare while the memory is read."""
    sampler = PeakSampler()
    with sdk() as running:
        for runs_of in (mlx_runs, llama_cpp_runs):
            with runs_of(running, tokens) as by_case:
                for case, runs in by_case.items():
                    read = partial(_while_reading, sampler, runs["bare"])
                    measure_runs(section, case, {"bare": runs["bare"], "ours": read}, 3 * repetitions)


def _while_reading(sampler: PeakSampler, run: Run) -> tuple[float, float]:
    token = sampler.begin()
    sampler.follow(token)
    try:
        return run()
    finally:
        sampler.end(token)
