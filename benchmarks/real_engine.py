"""Instrumented against bare runs of the real engines on the tiny pair."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np

from benchmarks.installed import left_out
from benchmarks.real_llama_cpp import llama_cpp_runs
from benchmarks.real_mlx import mlx_runs
from benchmarks.real_runs import Run
from benchmarks.results import Comparison, Section
from benchmarks.sdk import sdk
from benchmarks.statistics import Array, Target, ratio

SPEED_KEPT = Target(0.99, "at least")


def real_engine(*, tokens: int = 64, repetitions: int = 60) -> Section:
    """Measure tokens a second and CPU time a token, in all modes."""
    section = Section(
        "Real engine",
        f"the tiny pair, three prompts of up to {tokens} tokens; wall time, and CPU time of all threads"
        f"{left_out(mlx=True)}",
    )
    with sdk() as running:
        for runs_of in (mlx_runs, llama_cpp_runs):
            with runs_of(running, tokens) as by_case:
                for case, runs in by_case.items():
                    measure_runs(section, case, runs, repetitions)
    return section


def measure_runs(section: Section, case: str, runs: Mapping[str, Run], repetitions: int) -> None:
    """Run the variants of a case in turns, and add tokens a second and CPU time a token, each against bare."""
    speed: dict[str, Array] = {variant: np.empty(repetitions) for variant in runs}
    cpu: dict[str, Array] = {variant: np.empty(repetitions) for variant in runs}
    order, chance = list(runs), random.Random(5)
    for repetition in range(-2, repetitions):
        chance.shuffle(order)
        for variant in order:
            found = runs[variant]()
            if repetition >= 0:
                speed[variant][repetition], cpu[variant][repetition] = found
    _tell(section, f"{case}, speed", speed, "tokens/s", SPEED_KEPT)
    _tell(section, f"{case}, CPU time", cpu, "us a token", None)


def _tell(section: Section, case: str, samples: dict[str, Array], unit: str, target: Target | None) -> None:
    section.keep(case, samples)
    for variant, values in samples.items():
        compared = []
        if variant != "bare":
            held = target if variant == "ours" else None
            compared.append(Comparison("x bare", ratio(values, samples["bare"]), held))
        section.add(case, variant, values, unit, compared)
