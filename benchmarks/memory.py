"""What a stream in flight holds: Python allocations, recording thread included."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

from benchmarks.measuring import drain, exhaust
from benchmarks.results import Comparison, Row, Section
from benchmarks.sdk import SDK, sdk
from benchmarks.statistics import Estimate, Target
from benchmarks.streams import AUTOREGRESSIVE, autoregressive, watched

BYTES_A_TOKEN = Target(10.0)
LATER = Target(64.0)
"""Buckets of waits may still fill: at most some 1,900 of them between 100 ns and 10 s."""

LEFT = Target(64.0)
SETTLING, STREAMS = 80, 40
CHUNK = 256
FOLDED = 4_096
"""From this many tokens on waits are kept in buckets: memory does not grow any more."""


def memory(*, longest: int = 40_000) -> Section:
    """Measure what streams of several lengths hold before they end, and what is left after."""
    section = Section(
        "Memory", "Python allocations of a stream in flight and after its end, all threads; each length once"
    )
    lengths = (CHUNK, FOLDED - CHUNK, 2 * FOLDED, longest)
    with sdk() as running, tracing():
        held(running, FOLDED)
        in_flight = {tokens: held(running, tokens) for tokens in lengths}
        left = _left_after(running)
    for tokens, size in in_flight.items():
        section.rows.append(_row(f"{tokens:,} tokens in flight", size / 1024, "KiB"))
    growth = (in_flight[FOLDED - CHUNK] - in_flight[CHUNK]) / (FOLDED - 2 * CHUNK)
    section.rows.append(_row("growth from 256 tokens to 3,840", growth, "bytes a token", BYTES_A_TOKEN))
    later = in_flight[longest] - in_flight[2 * FOLDED]
    section.rows.append(_row(f"growth from 8,192 tokens to {longest:,}", later / 1024, "KiB", LATER))
    section.rows.append(_row("left after the end", left, "bytes a stream", LEFT))
    return section


@contextmanager
def tracing() -> Iterator[None]:
    """Count allocations; what is replaced in this block must have been allocated in it to be seen as freed."""
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


def _left_after(running: SDK) -> float:
    """Return the bytes that each ended stream leaves; the first fill the SDK's exemplars and do not count."""
    for _ in range(SETTLING):
        held(running, CHUNK)
    before = _allocated()
    for _ in range(STREAMS):
        held(running, CHUNK)
    return (_allocated() - before) / STREAMS


def held(running: SDK, tokens: int) -> int:
    """Return the bytes held by a stream after some tokens; end it."""
    before = _allocated()
    stream = watched(autoregressive, running.listener, AUTOREGRESSIVE)
    exhaust(islice(stream, tokens))
    drain()
    in_flight = _allocated() - before
    stream.close()
    del stream
    drain()
    running.tracer_provider.force_flush()
    return in_flight


def _allocated() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def _row(case: str, value: float, unit: str, target: Target | None = None) -> Row:
    exactly = Estimate(value, value, value)
    return Row(case, "ours", exactly, unit, (Comparison("", exactly, target, unit),) if target else ())
