"""What a request costs once, however many tokens it has: measured on a request of one token."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from benchmarks.installed import left_out
from benchmarks.llama_cpp_variants import Llamas, synthetic_llamas
from benchmarks.measuring import all_threads_seconds, calling_thread_seconds, interleaved
from benchmarks.official import handler_of, official
from benchmarks.results import Comparison, Section
from benchmarks.sdk import NOBODY, SDK, sdk
from benchmarks.statistics import Array, Target, difference, ratio
from benchmarks.synthetic_llama_cpp import PROMPT
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
        "CPU time of a one-token request, stream_generate or create_completion: call, first resume, one token, end; "
        f"models cost nothing{left_out()}",
    )
    with sdk() as running, synthetic_llamas(running) as llamas:
        cases = {
            "MLX-LM, AR": _mlx(running, speculates=False),
            "MLX-LM, speculative": _mlx(running, speculates=True),
        }
        for mode, by_variant in llamas.items():
            cases[f"llama.cpp stream, {mode}"] = _llama_cpp(by_variant, stream=True)
            cases[f"llama.cpp answer, {mode}"] = _llama_cpp(by_variant, stream=False)
        for case, variants in cases.items():
            for where, timer, target in WHERE:
                timed = {name: partial(timer, request, requests) for name, request in variants.items()}
                samples = {name: each * MICROSECONDS for name, each in interleaved(timed, repetitions).items()}
                _tell(section, f"{where}, {case}", samples, target)
    return section


def _mlx(running: SDK, *, speculates: bool) -> dict[str, Request]:
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


def _llama_cpp(llamas: Llamas, *, stream: bool) -> dict[str, Request]:
    """A stream of chunks, or a whole answer; of that one the keys are what is consumed."""
    return {
        name: partial(llama.create_completion, PROMPT, max_tokens=1, stream=stream) for name, llama in llamas.items()
    }


def _tell(section: Section, case: str, samples: dict[str, Array], target: Target) -> None:
    section.keep(case, samples)
    for variant, values in samples.items():
        comparisons = []
        if variant != "bare":
            held = target if variant == "ours, with an SDK" else None
            comparisons.append(Comparison("over bare", difference(values, samples["bare"]), held, "us"))
        if variant == "ours, with an SDK":
            others = (each for each in ("official", "peer") if f"{each}, with an SDK" in samples)
            comparisons += [Comparison(f"x {each}", ratio(values, samples[f"{each}, with an SDK"])) for each in others]
        section.add(case, variant, values, "us", comparisons)
