"""CPU time of streams and requests, and variants that take turns."""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from itertools import islice
from typing import Any

import numpy as np

from benchmarks.statistics import Array
from otel_specdecode.telemetry.listener import recorder

DRAIN_SECONDS = 60.0

Measure = Callable[[], float]
"""Runs one variant once and returns one sample."""


def interleaved(variants: Mapping[str, Measure], repetitions: int, *, seed: int = 1) -> dict[str, Array]:
    """Run every variant once a repetition, in random order; return the samples of each by repetition.

    One repetition before the first is thrown away: it fills caches and creates time series.
    """
    order, chance = list(variants), random.Random(seed)
    samples: dict[str, Array] = {name: np.empty(repetitions) for name in variants}
    for repetition in range(-1, repetitions):
        chance.shuffle(order)
        for name in order:
            sample = variants[name]()
            if repetition >= 0:
                samples[name][repetition] = sample
    return samples


def exhaust(stream: Iterable[object]) -> None:
    """Consume a stream with as little work of our own as Python allows."""
    deque(stream, maxlen=0)


def drain() -> None:
    """Wait until everything is recorded.

    Raises:
        RuntimeError: If that takes more than a minute, or if something could not be recorded: what is not recorded
            is cheap, so that its cost would say nothing.
    """
    if not recorder.drain(DRAIN_SECONDS):
        raise RuntimeError(f"recording did not end within {DRAIN_SECONDS:.0f} s")
    told, _faults.told = _faults.told, []
    if told:
        raise RuntimeError(f"not recorded: {told[0]}")


class _Faults(logging.Handler):
    """Keeps what the library warns of."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(record.getMessage())


_faults = _Faults()
logging.getLogger("otel_specdecode").addHandler(_faults)


def loop_seconds(stream: Generator[Any, Any, None] | Any, tokens: int) -> float:
    """Return the calling thread's CPU time a token between the first token and the end, in seconds."""
    next(stream)
    began = time.thread_time_ns()
    exhaust(islice(stream, tokens))
    took = time.thread_time_ns() - began
    stream.close()
    drain()
    return took / tokens / 1e9


def calling_thread_seconds(request: Callable[[], Iterable[object]], requests: int) -> float:
    """Return the calling thread's CPU time of a whole request, in seconds; recording is over before the next one."""
    took = 0
    for _ in range(requests):
        began = time.thread_time_ns()
        exhaust(request())
        took += time.thread_time_ns() - began
        drain()
    return took / requests / 1e9


def all_threads_seconds(request: Callable[[], Iterable[object]], requests: int) -> float:
    """Return the CPU time of all threads for a whole request, recording included, in seconds."""
    began = time.process_time_ns()
    for _ in range(requests):
        exhaust(request())
    drain()
    return (time.process_time_ns() - began) / requests / 1e9
