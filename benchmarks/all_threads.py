"""What a token costs in all: CPU time of all threads over a whole stream until everything is recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from benchmarks.measuring import Measure, all_threads_seconds, interleaved
from benchmarks.official import handler_of, official
from benchmarks.results import Comparison, Section
from benchmarks.sdk import SDK, sdk, values_per_second
from benchmarks.statistics import Array, Target, difference, ratio
from benchmarks.streams import AUTOREGRESSIVE, SPECULATIVE, autoregressive, paced, speculative, watched
from benchmarks.synthetic_mlx import SyntheticMLX
from otel_specdecode.testing.fake import FakeClock

MICROSECONDS = 1e6
A_TOKEN = Target(5.0)
BELOW_OFFICIAL = Target(5.0, "at least")

PACES = {"26 ms a token": 26_000_000, "5 ms a token": 5_000_000, "1 ms a token": 1_000_000}
EVERY_VALUE = 1e9
RATES = (2.0, 128.0)
"""Values a second that are tried beside the library's own and beside every value."""


def all_threads(*, tokens: int = 1_000, repetitions: int = 20) -> Section:
    """Measure streams as fast as Python yields them, and on a clock that advances as an engine's would."""
    section = Section(
        "All threads",
        f"CPU time a token of all threads over {tokens:,} tokens until all is recorded, by the clock the stream sees",
    )
    for mode, speculates in (("AR", False), ("speculative", True)):
        with sdk() as running:
            variants = _at_full_speed(running, tokens, speculates=speculates)
            _measure(section, f"{mode}, as fast as it can", variants, tokens, repetitions)
    for pace, nanoseconds in PACES.items():
        for mode, speculates in (("AR", False), ("speculative", True)):
            _paced(section, f"{mode}, {pace}", nanoseconds, tokens, repetitions, speculates=speculates)
    return section


def _at_full_speed(running: SDK, tokens: int, *, speculates: bool) -> dict[str, Measure]:
    bare, ours = SyntheticMLX(), SyntheticMLX()
    ours.instrument(running.listener)
    handler = handler_of(running.tracer_provider, running.meter_provider)
    streams: dict[str, Callable[[], Iterable[object]]] = {
        "bare": partial(bare.request, tokens, speculative=speculates),
        "ours": partial(ours.request, tokens, speculative=speculates),
        "official": lambda: official(bare.request(tokens, speculative=speculates), handler),
    }
    return {name: partial(all_threads_seconds, make, 1) for name, make in streams.items()}


def _paced(section: Section, case: str, nanoseconds: int, tokens: int, repetitions: int, *, speculates: bool) -> None:
    """Measure this library at several rates; each has an SDK, since series keep the rate they began with."""
    engine, request = (speculative, SPECULATIVE) if speculates else (autoregressive, AUTOREGRESSIVE)
    clock = FakeClock()
    timed = paced(engine, clock, nanoseconds, tokens)
    rates: dict[str, float | None] = {f"ours, {rate:.0f} values/s": rate for rate in RATES}
    rates |= {"ours": None, "ours, every value": EVERY_VALUE}
    running = {name: SDK() for name in rates}
    official_sdk = SDK()
    handler = handler_of(official_sdk.tracer_provider, official_sdk.meter_provider)
    try:
        variants: dict[str, Measure] = {
            "bare": lambda: all_threads_seconds(lambda: timed(None), 1),
            "official": lambda: all_threads_seconds(lambda: official(timed(None), handler), 1),
        }
        for name, rate in rates.items():
            make = partial(watched, timed, running[name].listener, request, clock)
            variants[name] = partial(_at_rate, rate, partial(all_threads_seconds, make, 1))
        _measure(section, case, variants, tokens, repetitions)
    finally:
        for each in (*running.values(), official_sdk):
            each.shutdown()


def _at_rate(rate: float | None, measure: Measure) -> float:
    with values_per_second(rate):
        return measure()


def _measure(section: Section, case: str, variants: dict[str, Measure], tokens: int, repetitions: int) -> None:
    samples: dict[str, Array] = {
        name: values * MICROSECONDS / tokens for name, values in interleaved(variants, repetitions).items()
    }
    section.keep(case, samples)
    for variant, values in samples.items():
        comparisons = []
        if variant.startswith("ours"):
            own = variant == "ours"
            over_bare = difference(values, samples["bare"])
            less = ratio(samples["official"] - samples["bare"], values - samples["bare"])
            comparisons.append(Comparison("over bare", over_bare, A_TOKEN if own else None, "us"))
            comparisons.append(Comparison("x less than official", less, BELOW_OFFICIAL if own else None))
        section.add(case, variant, values, "us", comparisons)
