"""What a request costs once, however many tokens it has: measured on a request of one token."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from benchmarks.in_the_loop import NOBODY
from benchmarks.measuring import all_threads_seconds, calling_thread_seconds, interleaved
from benchmarks.official import handler_of, official
from benchmarks.results import Comparison, Section
from benchmarks.sdk import SDK, sdk
from benchmarks.statistics import Array, Target, difference, ratio
from benchmarks.synthetic_mlx import SyntheticMLX

MICROSECONDS = 1e6

Request = Callable[[], Iterable[object]]
Timer = Callable[[Request, int], float]

WHERE: tuple[tuple[str, Timer, Target], ...] = (
    ("calling thread", calling_thread_seconds, Target(60.0)),
    ("all threads", all_threads_seconds, Target(400.0)),
)


def outside_the_loop(*, requests: int = 10, repetitions: int = 60) -> Section:
    """Measure a one-token request: on the calling thread, and on all threads until it is recorded."""
    section = Section(
        "Outside the loop",
        "CPU time of a one-token stream_generate request: call, first resume, one token, end; models cost nothing",
    )
    with sdk() as running:
        for mode, speculates in (("AR", False), ("speculative", True)):
            variants = _requests(running, speculates=speculates)
            for where, timer, target in WHERE:
                timed = {name: partial(timer, request, requests) for name, request in variants.items()}
                samples = interleaved(timed, repetitions)
                _tell(
                    section, f"{where}, {mode}", {name: each * MICROSECONDS for name, each in samples.items()}, target
                )
    return section


def _requests(running: SDK, *, speculates: bool) -> dict[str, Request]:
    bare, ours, unheard = SyntheticMLX(), SyntheticMLX(), SyntheticMLX()
    ours.instrument(running.listener)
    unheard.instrument(NOBODY)
    handler = handler_of(running.tracer_provider, running.meter_provider)
    return {
        "bare": partial(bare.request, 1, speculative=speculates),
        "ours, with an SDK": partial(ours.request, 1, speculative=speculates),
        "ours, without": partial(unheard.request, 1, speculative=speculates),
        "official, with an SDK": lambda: official(bare.request(1, speculative=speculates), handler),
    }


def _tell(section: Section, case: str, samples: dict[str, Array], target: Target) -> None:
    section.keep(case, samples)
    for variant, values in samples.items():
        comparisons = []
        if variant != "bare":
            held = target if variant == "ours, with an SDK" else None
            comparisons.append(Comparison("over bare", difference(values, samples["bare"]), held, "us"))
        if variant == "ours, with an SDK":
            comparisons.append(Comparison("x official", ratio(values, samples["official, with an SDK"])))
        section.add(case, variant, values, "us", comparisons)
