"""One timed run of a real engine, and this library around it."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.measuring import drain
from otel_specdecode.engines.llama_cpp.hooks import LlamaCppHooks
from otel_specdecode.engines.mlx_lm.hooks import MLXLMHooks
from otel_specdecode.generation.observer import Observer

Run = Callable[[], tuple[float, float]]
"""Runs an engine once; returns tokens a second of wall time, and CPU time a token of all threads in microseconds."""


def timed(generate: Callable[[], int]) -> tuple[float, float]:
    """Time what generates, and returns how many tokens; recording counts as CPU time."""
    cpu, wall = time.process_time_ns(), time.perf_counter_ns()
    tokens = generate()
    wall = time.perf_counter_ns() - wall
    drain()
    return tokens / wall * 1e9, (time.process_time_ns() - cpu) / tokens / 1e3


def watched(hooks: LlamaCppHooks | MLXLMHooks, observer: Observer, run: Run) -> tuple[float, float]:
    """Run with this library's hooks in place. What a process sets up once is not a part of it."""
    hooks.install(observer)
    try:
        return run()
    finally:
        hooks.remove()
