"""What stands between a token and its consumer: CPU time a token on the calling thread."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.measuring import Measure, interleaved, loop_seconds
from benchmarks.official import handler_of, official
from benchmarks.results import Comparison, Section
from benchmarks.sdk import SDK, sdk
from benchmarks.statistics import Array, Target, ratio
from benchmarks.streams import AUTOREGRESSIVE, SPECULATIVE, autoregressive, floor, speculative, watched
from benchmarks.synthetic_mlx import SyntheticMLX
from otel_specdecode.telemetry.listener import Listener

NANOSECONDS = 1e9
AT_MOST_THE_FLOOR = Target(2.0)

NOBODY = Listener()
"""Finds no provider but the API's own stand-ins."""


def in_the_loop(*, tokens: int = 1_000, repetitions: int = 80) -> Section:
    """Measure the token loop alone, and with the pass counting of MLX-LM's hooks."""
    section = Section(
        "In the loop",
        f"CPU time a token on the calling thread, between the first token and the end of {tokens:,} tokens",
    )
    with sdk() as running:
        cases = {
            "token loop, AR": _token_loop(running, tokens, speculates=False),
            "token loop, speculative": _token_loop(running, tokens, speculates=True),
            "MLX-LM hooks, AR": _hooks(running, tokens, speculates=False),
            "MLX-LM hooks, speculative": _hooks(running, tokens, speculates=True),
        }
        for case, variants in cases.items():
            samples = interleaved(variants, repetitions)
            section.keep(case, {name: values * NANOSECONDS for name, values in samples.items()})
            _tell(section, case, samples)
    return section


def _tell(section: Section, case: str, samples: dict[str, Array]) -> None:
    for variant, values in samples.items():
        comparisons = []
        if variant not in ("bare", "floor"):
            target = AT_MOST_THE_FLOOR if variant.startswith("ours") else None
            comparisons.append(Comparison("x floor", ratio(values, samples["floor"]), target))
        if variant == "ours, with an SDK":
            comparisons.append(Comparison("x less than official", ratio(samples["official, with an SDK"], values)))
        section.add(case, variant, values * NANOSECONDS, "ns", comparisons)


def _token_loop(running: SDK, tokens: int, *, speculates: bool) -> dict[str, Measure]:
    engine, request = (speculative, SPECULATIVE) if speculates else (autoregressive, AUTOREGRESSIVE)
    with_sdk = handler_of(running.tracer_provider, running.meter_provider)
    without = handler_of()
    return {
        "bare": lambda: loop_seconds(engine(None), tokens),
        "floor": lambda: loop_seconds(floor(engine(None)), tokens),
        "ours, with an SDK": lambda: loop_seconds(watched(engine, running.listener, request), tokens),
        "ours, without": lambda: loop_seconds(watched(engine, NOBODY, request), tokens),
        "official, with an SDK": lambda: loop_seconds(official(engine(None), with_sdk), tokens),
        "official, without": lambda: loop_seconds(official(engine(None), without), tokens),
    }


def _hooks(running: SDK, tokens: int, *, speculates: bool) -> dict[str, Measure]:
    bare, ours, unheard = SyntheticMLX(), SyntheticMLX(), SyntheticMLX()
    ours.instrument(running.listener)
    unheard.instrument(NOBODY)
    length = tokens + 2
    with_sdk = handler_of(running.tracer_provider, running.meter_provider)
    streams: dict[str, Callable[[], Any]] = {
        "bare": partial(bare.request, length, speculative=speculates),
        "floor": lambda: floor(bare.request(length, speculative=speculates)),
        "ours, with an SDK": partial(ours.request, length, speculative=speculates),
        "ours, without": partial(unheard.request, length, speculative=speculates),
        "official, with an SDK": lambda: official(bare.request(length, speculative=speculates), with_sdk),
    }
    return {name: partial(_made, make, tokens) for name, make in streams.items()}


def _made(make: Callable[[], Any], tokens: int) -> float:
    return loop_seconds(make(), tokens)
