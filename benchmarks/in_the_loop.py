"""What stands between a token and its consumer: CPU time a token on the calling thread."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.installed import left_out
from benchmarks.llama_cpp_variants import Llamas, synthetic_llamas
from benchmarks.measuring import Measure, interleaved, loop_seconds
from benchmarks.official import handler_of, official
from benchmarks.results import Comparison, Section
from benchmarks.sdk import NOBODY, SDK, sdk
from benchmarks.statistics import Array, Target, ratio
from benchmarks.streams import AUTOREGRESSIVE, SPECULATIVE, autoregressive, floor, speculative, watched
from benchmarks.synthetic_llama_cpp import PROMPT
from benchmarks.synthetic_mlx import SyntheticMLX

NANOSECONDS = 1e9
AT_MOST_THE_FLOOR = Target(2.0)

Streams = dict[str, Callable[[], Any]]
"""Makes a stream, by variant."""


def in_the_loop(*, tokens: int = 1_000, repetitions: int = 80) -> Section:
    """Measure the token loop alone, and with the pass counting of both engines' hooks."""
    section = Section(
        "In the loop",
        f"CPU time a token on the calling thread, between the first token and the end of {tokens:,} tokens{left_out()}",
    )
    with sdk() as running, synthetic_llamas(running) as llamas:
        cases = {
            "token loop, AR": _token_loop(running, tokens, speculates=False),
            "token loop, speculative": _token_loop(running, tokens, speculates=True),
            "MLX-LM hooks, AR": _hooks(running, tokens, speculates=False),
            "MLX-LM hooks, speculative": _hooks(running, tokens, speculates=True),
        }
        for mode, by_variant in llamas.items():
            cases[f"llama.cpp hooks, generate, {mode}"] = _llama_cpp_loop(by_variant, tokens)
            cases[f"llama.cpp hooks, completion, {mode}"] = _llama_cpp_completion(by_variant, tokens)
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
        if variant == "ours, with an SDK" and "official, with an SDK" in samples:
            comparisons.append(Comparison("x less than official", ratio(samples["official, with an SDK"], values)))
        if variant == "ours, with an SDK" and "peer, with an SDK" in samples:
            comparisons.append(Comparison("x peer", ratio(values, samples["peer, with an SDK"])))
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
    streams: Streams = {
        "bare": partial(bare.request, length, speculative=speculates),
        "ours, with an SDK": partial(ours.request, length, speculative=speculates),
        "ours, without": partial(unheard.request, length, speculative=speculates),
        "official, with an SDK": lambda: official(bare.request(length, speculative=speculates), with_sdk),
    }
    return _measured(streams, tokens)


def _llama_cpp_loop(llamas: Llamas, tokens: int) -> dict[str, Measure]:
    """The token loop that a program runs itself, which the peer does not watch."""
    return _measured(
        {name: partial(llama.generate, PROMPT) for name, llama in llamas.items() if not name.startswith("peer")}, tokens
    )


def _llama_cpp_completion(llamas: Llamas, tokens: int) -> dict[str, Measure]:
    """A stream of chunks, one a token."""
    length = tokens + 2
    return _measured(
        {
            name: partial(llama.create_completion, PROMPT, max_tokens=length, stream=True)
            for name, llama in llamas.items()
        },
        tokens,
    )


def _measured(streams: Streams, tokens: int) -> dict[str, Measure]:
    """Return the variants with the floor after the bare one."""
    bare = streams["bare"]
    floored: Streams = {"bare": bare, "floor": lambda: floor(bare())}
    return {name: partial(_made, make, tokens) for name, make in (floored | streams).items()}


def _made(make: Callable[[], Any], tokens: int) -> float:
    return loop_seconds(make(), tokens)
