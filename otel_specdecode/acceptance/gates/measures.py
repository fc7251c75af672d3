"""Every measure that a gate may read, by name; here those of durations and of the draft."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from otel_specdecode.acceptance import figures
from otel_specdecode.acceptance.figures import Window, in_tier, tier_of
from otel_specdecode.acceptance.gates import machine, quality
from otel_specdecode.acceptance.gates.reading import Case, Evidence, Reading, UnmeasuredError
from otel_specdecode.acceptance.gates.stretches import longest
from otel_specdecode.acceptance.statistics import Estimate, quantile, ratio_of_quantiles, ratio_of_sums
from otel_specdecode.acceptance.storage import RESULTS

Unit = Literal["s", "tokens/s", "share", "bytes", "count", "p", "ratio"]


@dataclass(frozen=True, slots=True)
class Measure:
    """One measure.

    Attributes:
        read: Returns the number; raises UnmeasuredError where the run does not tell.
        unit: Of the number; a gate over the baseline has a ratio.
        keys: Keys of a gate that only some measures know, and this one does.
        samples: What a gate's `needs` counts.
    """

    read: Callable[[Case], Reading]
    unit: Unit
    keys: frozenset[str]
    samples: str


def _time_to_first_token(share: float) -> Callable[[Case], Reading]:
    def read(case: Case) -> Reading:
        if case.gate.over_autoregressive:
            return _first_token_over(case, share)
        requests = sorted(case.requests(), key=lambda each: each.started_at)
        found = [each.time_to_first_token for each in requests if each.time_to_first_token is not None]
        if case.gate.series is None:
            return case.reading(quantile(found, share), len(found), "requests")
        return _series(case, found, share)

    return read


def _series(case: Case, values: list[float], share: float) -> Reading:
    """Return the worst of the series, each of `needs` requests; what is over at the end is left out."""
    size, least = case.gate.samples, case.gate.series or 1
    parts = [values[at : at + size] for at in range(0, len(values) - size + 1, size)]
    if len(parts) < least:
        raise UnmeasuredError(f"{len(values)} requests of {case.arm.name}, of {least} x {size}")
    found = [estimate for part in parts if (estimate := quantile(part, share)) is not None]
    worst = max(found, key=lambda each: each.value)
    return case.reading(worst, size * len(parts), "requests", f"the worst of {len(parts)} series of {size}")


def _first_token_over(case: Case, share: float) -> Reading:
    """Return a quantile over the baseline's, of the prompts and repeats that both arms ran; prompts resampled."""
    drafted: dict[str, list[float]] = defaultdict(list)
    plain: dict[str, list[float]] = defaultdict(list)
    for before, after in figures.pairs(case.run, case.arm, case.takes):
        if before.time_to_first_token is not None and after.time_to_first_token is not None:
            plain[after.prompt].append(before.time_to_first_token)
            drafted[after.prompt].append(after.time_to_first_token)
    found = ratio_of_quantiles(list(drafted.values()), list(plain.values()), share)
    if found is None:
        raise UnmeasuredError(f"no such prompt of {case.arm.name} has a time to the first token in both arms")
    return case.reading(found, sum(map(len, plain.values())), "pairs")


def _round(share: float) -> Callable[[Case], Reading]:
    def read(case: Case) -> Reading:
        seconds = [each / figures.MICROSECONDS for request in case.requests() for each in request.passes.microseconds]
        return case.reading(quantile(seconds, share), len(seconds), "rounds")

    return read


def _tokens_per_second(case: Case) -> Reading:
    if case.gate.over_autoregressive:
        shortest = case.validity.shortest_answer
        count = sum(
            1
            for plain, drafted in figures.pairs(case.run, case.arm, case.takes_long)
            if plain.output_tokens >= shortest and plain.time_per_token and drafted.time_per_token
        )
        found = figures.speed_up(case.run, case.arm, case.takes_long, max(shortest, 2))
        if found is None:
            raise UnmeasuredError(f"no answer of {shortest} tokens of {case.arm.name} and its baseline")
        return case.reading(found, count, "pairs")
    requests = case.requests(case.takes_long)
    return case.reading(figures.tokens_per_second(requests), len(requests), "requests", _against(case))


def _time_per_token_p95(case: Case) -> Reading:
    times = [each.time_per_token for each in case.requests(case.takes_long) if each.time_per_token is not None]
    return case.reading(quantile(times, 0.95), len(times), "requests", _against(case))


def _against(case: Case) -> str:
    """Tell what autoregressive decoding reaches here, beside what it did where the bound was chosen."""
    if case.gate.against is None:
        return ""
    plain = [each for each in case.run.of(case.arm.baseline) if case.takes_long(each)]
    if case.gate.measure == "tokens_per_second":
        found = figures.tokens_per_second(plain)
    else:
        found = quantile([each.time_per_token for each in plain if each.time_per_token is not None], 0.95)
    here = "not measured" if found is None else f"{found.value:.3g}"
    return f"autoregressive {here} here, {case.gate.against:g} where the bound was chosen"


def _steady(case: Case) -> Reading:
    first, last = case.gate.window or (0, 0)
    window = Window(max(first, case.gate.drop or 0), last) if last else figures.SIGN_OFF_WINDOW
    if case.gate.over_autoregressive:
        found = figures.steady_speed_up(case.run, case.arm, window, case.takes)
    else:
        found = figures.steady(case.requests(), window)
    if found is None:
        raise UnmeasuredError(f"no answer of {case.arm.name} and its baseline reaches tokens {first} to {last}")
    return case.reading(found, found.samples, "prompts")


def _accept_rate(case: Case) -> Reading:
    requests = case.requests()
    return case.reading(figures.accept_rate(requests), sum(each.rounds for each in requests), "rounds")


def _accept_rate_median(case: Case) -> Reading:
    rates = [each.accepted / each.compared for each in case.requests() if each.compared]
    return case.reading(quantile(rates, 0.5), len(rates), "requests")


def _accept_rate_by_context(case: Case) -> Reading:
    requests = case.requests()
    found: dict[str, tuple[Estimate, int]] = {}
    told = []
    for tier in dict.fromkeys(map(tier_of, requests)):
        inside = list(filter(in_tier(tier), requests))
        rounds = sum(each.rounds for each in inside)
        rate = figures.accept_rate(inside)
        if rate is None or rounds < case.gate.samples:
            told.append(f"{tier}: only {rounds} rounds")
        else:
            found[tier] = rate, rounds
            told.append(f"{tier}: {rate.value:.2f}")
    if not found:
        raise UnmeasuredError(f"no context tier has {case.gate.samples} rounds ({', '.join(told)})")
    rate, rounds = min(found.values(), key=lambda each: each[0].value)
    return case.reading(rate, rounds, "rounds", ", ".join(told))


def _break_even_margin(case: Case) -> Reading:
    found = figures.break_even_margin(case.run, case.arm, case.takes)
    pairs = figures.pairs(case.run, case.arm, case.takes)
    told = [drafted for plain, drafted in pairs if plain.passes.microseconds and drafted.passes.microseconds]
    return case.reading(found, sum(each.rounds for each in told), "rounds")


def _emitted_per_second(case: Case) -> Reading:
    requests = case.requests()
    lasted = longest(case.run, case.arm, case.validity.pause)
    if case.gate.seconds is not None and lasted < case.gate.seconds:
        raise UnmeasuredError(f"{case.arm.name} ran for {lasted:.0f} s without a break, of {case.gate.seconds:g}")
    if case.arm.concurrency == 1:
        found = ratio_of_sums([each.output_tokens for each in requests], [each.duration for each in requests])
        return case.reading(found, len(requests), "requests")
    tokens, busy = sum(each.output_tokens for each in requests), figures.busy_seconds(requests)
    estimate = Estimate(tokens / busy, None, None, len(requests)) if busy else None
    return case.reading(estimate, len(requests), "requests")


def _failures(case: Case) -> Reading:
    runs = case.runs
    every = [[each for each in run.results if each.arm == case.arm.name and each.phase == "measured"] for run in runs]
    failed = [each for found in every for each in found if each.error is not None]
    told = ", ".join(sorted({each.error for each in failed if each.error is not None}))
    evidence = tuple(
        Evidence(run.head.run_id, RESULTS, len(found), "requests") for run, found in zip(runs, every, strict=True)
    )
    samples = sum(map(len, every))
    if not samples:
        raise UnmeasuredError(f"no request of {case.arm.name}")
    return Reading(len(failed), len(failed), len(failed), samples, evidence, told)


_SCOPE: Final = frozenset({"tier", "kind", "min_input_tokens", "max_input_tokens", "k", "concurrency", "arm", "run"})
_ARM: Final = frozenset({"k", "concurrency", "arm"})
_RELATIVE: Final = frozenset({"over_autoregressive"})
_NOBODY: Final = frozenset[str]()

MEASURES: Final[Mapping[str, Measure]] = {
    "time_to_first_token_p50": Measure(_time_to_first_token(0.5), "s", _SCOPE | _RELATIVE | {"series"}, "requests"),
    "time_to_first_token_p95": Measure(_time_to_first_token(0.95), "s", _SCOPE | _RELATIVE | {"series"}, "requests"),
    "round_p50": Measure(_round(0.5), "s", _SCOPE, "rounds"),
    "round_p95": Measure(_round(0.95), "s", _SCOPE, "rounds"),
    "round_p99": Measure(_round(0.99), "s", _SCOPE, "rounds"),
    "tokens_per_second": Measure(_tokens_per_second, "tokens/s", _SCOPE | _RELATIVE | {"against"}, "requests"),
    "time_per_token_p95": Measure(_time_per_token_p95, "s", _SCOPE | {"against"}, "requests"),
    "steady": Measure(_steady, "tokens/s", _SCOPE | _RELATIVE | {"window", "drop"}, "prompts"),
    "emitted_per_second": Measure(_emitted_per_second, "tokens/s", _SCOPE | {"seconds"}, "requests"),
    "accept_rate": Measure(_accept_rate, "share", _SCOPE, "rounds"),
    "accept_rate_median": Measure(_accept_rate_median, "share", _SCOPE, "requests"),
    "accept_rate_by_context": Measure(_accept_rate_by_context, "share", _SCOPE - {"tier"}, "rounds"),
    "break_even_margin": Measure(_break_even_margin, "share", _SCOPE, "rounds"),
    "success_difference": Measure(quality.success_difference, "share", _SCOPE, "prompts"),
    "different_answers": Measure(quality.different_answers, "count", _SCOPE | {"quantised_difference"}, "pairs"),
    "opening_p_value": Measure(quality.opening_p_value, "p", _SCOPE, "requests"),
    "failures": Measure(_failures, "count", _ARM, "requests"),
    "peak_memory": Measure(machine.peak_memory, "bytes", _ARM, "requests"),
    "peak_memory_share": Measure(machine.peak_memory_share, "share", _ARM, "requests"),
    "memory_rise": Measure(machine.memory_rise, "share", _ARM | {"swap_episodes", "days"}, "requests"),
    "swap_growth": Measure(machine.swap_growth, "bytes", _NOBODY, "samples"),
    "swapped_in": Measure(machine.swapped_in, "bytes", frozenset({"run"}), "samples"),
    "swapped_out": Measure(machine.swapped_out, "bytes", _NOBODY, "samples"),
    "pressure_critical": Measure(machine.pressure_critical, "s", _NOBODY, "samples"),
    "throttle_events": Measure(machine.throttle_events, "count", _NOBODY, "samples"),
}

SPECIAL_KEYS: Final = frozenset().union(*(each.keys for each in MEASURES.values()))
"""Keys of a gate that not every measure knows."""
