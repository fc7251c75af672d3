"""Instrumented against bare runs of the real MLX-LM on the tiny pair."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

import otel_specdecode
from benchmarks.measuring import drain
from benchmarks.results import Comparison, Section
from benchmarks.sdk import SDK, sdk
from benchmarks.statistics import Array, Target, ratio
from otel_specdecode.tiny_pair import PROMPTS, model_path

SPEED_KEPT = Target(0.99, "at least")
K = 4


def real_engine(*, tokens: int = 64, repetitions: int = 60) -> Section:
    """Measure tokens a second and CPU time a token, in both modes."""
    import mlx_lm

    section = Section(
        "Real engine",
        f"MLX-LM on the tiny pair, three prompts of up to {tokens} tokens; wall time, and CPU time of all threads",
    )
    model, tokenizer = mlx_lm.load(str(model_path("target")))[:2]
    draft = mlx_lm.load(str(model_path("draft")))[0]
    with sdk() as running:
        modes: dict[str, dict[str, Any]] = {"AR": {}, "speculative": {"draft_model": draft, "num_draft_tokens": K}}
        for mode, options in modes.items():
            bench = _Bench(model, tokenizer, tokens, options, running)
            _measure(section, mode, bench, repetitions)
    return section


class _Bench:
    """Runs three prompts, bare or instrumented."""

    def __init__(self, model: Any, tokenizer: Any, tokens: int, options: Mapping[str, Any], running: SDK) -> None:
        self._call = (model, tokenizer)
        self._options = {**options, "max_tokens": tokens}
        self._sdk = running

    def run(self, instrumented: bool) -> tuple[float, float]:
        """Return tokens a second of wall time, and CPU time a token in microseconds."""
        import mlx_lm

        if instrumented:
            otel_specdecode.instrument(
                tracer_provider=self._sdk.tracer_provider, meter_provider=self._sdk.meter_provider
            )
        try:
            tokens, cpu, wall = 0, time.process_time_ns(), time.perf_counter_ns()
            for prompt in PROMPTS[:3]:
                for _ in mlx_lm.stream_generate(*self._call, prompt, **self._options):
                    tokens += 1
            wall = time.perf_counter_ns() - wall
            drain()
            return tokens / wall * 1e9, (time.process_time_ns() - cpu) / tokens / 1e3
        finally:
            if instrumented:
                otel_specdecode.uninstrument()


def _measure(section: Section, mode: str, bench: _Bench, repetitions: int) -> None:
    speed: dict[str, Array] = {"bare": np.empty(repetitions), "ours": np.empty(repetitions)}
    cpu: dict[str, Array] = {"bare": np.empty(repetitions), "ours": np.empty(repetitions)}
    order, chance = ["bare", "ours"], random.Random(5)
    for repetition in range(-2, repetitions):
        chance.shuffle(order)
        for variant in order:
            found = bench.run(variant == "ours")
            if repetition >= 0:
                speed[variant][repetition], cpu[variant][repetition] = found
    section.keep(f"{mode}, speed", speed)
    section.keep(f"{mode}, CPU time", cpu)
    kept, spent = ratio(speed["ours"], speed["bare"]), ratio(cpu["ours"], cpu["bare"])
    for variant in ("bare", "ours"):
        against = (Comparison("x bare", kept, SPEED_KEPT),) if variant == "ours" else ()
        section.add(f"{mode}, speed", variant, speed[variant], "tokens/s", against)
    for variant in ("bare", "ours"):
        against = (Comparison("x bare", spent),) if variant == "ours" else ()
        section.add(f"{mode}, CPU time", variant, cpu[variant], "us a token", against)
