"""Whether the recording thread shows in the gaps between tokens: an engine that computes without the GIL."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.measuring import drain, exhaust
from benchmarks.results import Comparison, Row, Section
from benchmarks.sdk import sdk
from benchmarks.statistics import Array, Estimate, Target, quantile_difference
from benchmarks.streams import AUTOREGRESSIVE, OWN, Stream, watched
from otel_specdecode.generation.running import Generation

PACE_SECONDS = 0.001
EXPORT_MILLISECONDS = 1_000
"""Ten times as often as by default, so that a stream of a few seconds has exports in it."""

ADDED = {0.5: Target(0.05), 0.99: Target(0.5), 0.999: Target(1.0)}
"""Quantile, and by how many ms it may grow."""


def token_gaps(*, tokens: int = 1_000, repetitions: int = 12) -> Section:
    """Measure the time between tokens at the consumer, bare and instrumented in turns."""
    section = Section(
        "Token gaps",
        f"wall time between tokens; each token hashes for about {PACE_SECONDS * 1e3:.0f} ms with the GIL released, "
        "metrics are collected every second",
    )
    engine = hashing(_calibrated())
    bare, ours = np.empty((repetitions, tokens)), np.empty((repetitions, tokens))
    chance = random.Random(3)
    for repetition in range(repetitions):
        turns: list[Callable[[], None]] = [
            partial(_bare, bare[repetition], engine),
            partial(_instrumented, ours[repetition], engine),
        ]
        chance.shuffle(turns)
        for turn in turns:
            turn()
    section.samples = {"bare": bare.ravel().tolist(), "ours": ours.ravel().tolist()}
    _tell(section, bare, ours)
    return section


def _tell(section: Section, bare: Array, ours: Array) -> None:
    for share, target in ADDED.items():
        added = quantile_difference(ours, bare, share)
        for variant, gaps in (("bare", bare), ("ours", ours)):
            # A quantile's own interval is that of its difference from nothing.
            value: Estimate = quantile_difference(gaps, np.zeros_like(gaps), share)
            comparisons = (Comparison("over bare", added, target, "ms"),) if variant == "ours" else ()
            section.rows.append(Row(f"p{share * 100:g}", variant, value, "ms", comparisons))


def _bare(gaps: Array, engine: Callable[[Generation | None], Stream]) -> None:
    _fill(gaps, engine(None))


def _instrumented(gaps: Array, engine: Callable[[Generation | None], Stream]) -> None:
    with sdk(EXPORT_MILLISECONDS) as running:
        for _ in range(2):  # series are created here, as a service's first requests do
            exhaust(_first(watched(engine, running.listener, AUTOREGRESSIVE), 4))
        drain()
        _fill(gaps, watched(engine, running.listener, AUTOREGRESSIVE))


def _first(stream: Any, count: int) -> Iterable[object]:
    for _ in range(count):
        yield next(stream)
    stream.close()


def _fill(gaps: Array, stream: Stream) -> None:
    """Consume one token more than there are gaps; gaps are in ms."""
    next(stream)
    before = time.perf_counter_ns()
    for place in range(len(gaps)):
        next(stream)
        now = time.perf_counter_ns()
        gaps[place] = (now - before) / 1e6
        before = now
    stream.close()
    drain()


def hashing(size: int) -> Callable[[Generation | None], Stream]:
    """Return an engine whose token is one hash of this many bytes."""
    block = bytes(size)

    def engine(generation: Generation | None) -> Stream:
        while True:
            if generation is not None:
                generation.ledger.plain_passes += 1
            hashlib.sha256(block).digest()
            yield OWN

    return engine


def _calibrated(probe: int = 1 << 20) -> int:
    """Return how many bytes hash in PACE_SECONDS."""
    block = bytes(probe)
    took = []
    for _ in range(15):
        began = time.perf_counter()
        hashlib.sha256(block).digest()
        took.append(time.perf_counter() - began)
    return int(probe * PACE_SECONDS / sorted(took)[len(took) // 2])
