"""Numbers of a run, arm by arm: pure functions of what was recorded. The words mean what docs/semantics.md says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from otel_specdecode.acceptance.records import Arm, Measured, Run
from otel_specdecode.acceptance.statistics import Estimate, median, quantile, ratio_of_sums
from otel_specdecode.generation.judgement import context_tier

Number = TypeVar("Number", int, float)

Where = Callable[[Measured], bool]

MICROSECONDS = 1e6


@dataclass(frozen=True, slots=True)
class Window:
    """Which tokens of an answer tell of steady decoding.

    Attributes:
        first: The first of them, counted from the answer's beginning.
        last: The last; an answer that ends before it is taken up to its end.
        least: The fewest tokens between them that say anything.
    """

    first: int = 512
    last: int = 2048
    least: int = 64


SIGN_OFF_WINDOW = Window()
"""Tokens 512 to 2048: by then caches are warm, and a machine that throttles has begun to."""

AFTER_WARM_UP = Window(first=64, last=2048, least=32)
"""All but the first 64 tokens: what short answers can tell."""


@dataclass(frozen=True, slots=True)
class Share:
    """Successes among trials."""

    passed: int
    of: int

    @property
    def value(self) -> float:
        """Successes over trials."""
        return self.passed / self.of


@dataclass(frozen=True, slots=True)
class ArmFigures:
    """What one arm's requests, or some of them, add up to. None where nothing tells.

    Attributes:
        arm: The arm.
        requests: How many requests.
        prompts: How many different prompts.
        tokens: Tokens emitted.
        rounds: Rounds, of a speculative arm.
        tokens_per_second: Decode tokens after the first burst over their time, of all requests together; prompts
            resampled.
        time_per_token_p50, time_per_token_p95: Over requests, in seconds.
        time_to_first_token_p50, time_to_first_token_p95: Over requests, in seconds, without the wait for others.
        queued_p95: What they waited for others before that, in seconds; None where requests never do.
        round_p50, round_p95, round_p99: Duration of a decode pass with its drafting, in seconds.
        accept_rate: Accepted over compared tokens, of all requests together; prompts resampled.
        accept_rate_median: Over requests.
        acceptance_length: Tokens emitted a round; 1 for an autoregressive arm.
        rollbacks_per_minute: Of decode time.
        steady: Tokens a second over the window of tokens that is asked for.
        emitted_per_second: Tokens a second in which any of the requests ran, prefill included.
        peak_rss, peak_footprint, engine_peak: Highest of all requests, in bytes.
        success: Answers that passed their checks.
        failed: Requests that ended in an error.
    """

    arm: Arm
    requests: int
    prompts: int
    tokens: int
    rounds: int
    tokens_per_second: Estimate | None
    time_per_token_p50: Estimate | None
    time_per_token_p95: Estimate | None
    time_to_first_token_p50: Estimate | None
    time_to_first_token_p95: Estimate | None
    queued_p95: Estimate | None
    round_p50: Estimate | None
    round_p95: Estimate | None
    round_p99: Estimate | None
    accept_rate: Estimate | None
    accept_rate_median: Estimate | None
    acceptance_length: float | None
    rollbacks_per_minute: float | None
    steady: Estimate | None
    emitted_per_second: float | None
    peak_rss: int | None
    peak_footprint: int | None
    engine_peak: int | None
    success: Share | None
    failed: int


def arm_figures(run: Run, arm: Arm, where: Where | None = None, window: Window = AFTER_WARM_UP) -> ArmFigures:
    """Return the figures of an arm.

    Args:
        run: The run.
        arm: One of its arms.
        where: Takes the requests that count; None: all.
        window: Tokens that `steady` is of.
    """
    chosen = [each for each in run.of(arm) if where is None or where(each)]
    seconds = sum(each.decode or 0.0 for each in chosen)
    checked = [each.check for each in chosen if each.check is not None]
    duration = busy_seconds(chosen)
    tokens = sum(each.output_tokens for each in chosen)
    compared = [each for each in chosen if each.compared]
    return ArmFigures(
        arm=arm,
        requests=len(chosen),
        prompts=len({each.prompt for each in chosen}),
        tokens=tokens,
        rounds=sum(each.rounds for each in chosen),
        tokens_per_second=tokens_per_second(chosen),
        time_per_token_p50=median(_known(each.time_per_token for each in chosen)),
        time_per_token_p95=quantile(_known(each.time_per_token for each in chosen), 0.95),
        time_to_first_token_p50=median(_known(each.time_to_first_token for each in chosen)),
        time_to_first_token_p95=quantile(_known(each.time_to_first_token for each in chosen), 0.95),
        queued_p95=quantile(_known(each.queued for each in chosen), 0.95),
        round_p50=_round(chosen, 0.5),
        round_p95=_round(chosen, 0.95),
        round_p99=_round(chosen, 0.99),
        accept_rate=accept_rate(chosen),
        accept_rate_median=median([each.accepted / each.compared for each in compared]),
        acceptance_length=acceptance_length(chosen) if arm.speculative else 1.0,
        rollbacks_per_minute=sum(each.rollbacks for each in chosen) * 60 / seconds if seconds else None,
        steady=steady(chosen, window),
        emitted_per_second=tokens / duration if duration else None,
        peak_rss=max(_known(each.peak_rss for each in chosen), default=None),
        peak_footprint=max(_known(each.peak_footprint for each in chosen), default=None),
        engine_peak=max(_known(each.engine_peak for each in chosen), default=None),
        success=Share(sum(checked), len(checked)) if checked else None,
        failed=sum(
            1
            for each in run.results
            if each.arm == arm.name
            and each.phase == "measured"
            and each.error is not None
            and (where is None or where(each))
        ),
    )


def busy_seconds(requests: Iterable[Measured]) -> float:
    """Return the seconds in which any of some requests ran; those of another arm in between are no part of it."""
    return sum(ended - begun for begun, ended in busy_times(requests))


def busy_times(requests: Iterable[Measured]) -> list[tuple[float, float]]:
    """Return from when to when any of some requests ran, in order; what overlaps is one."""
    found: list[tuple[float, float]] = []
    for begun, ended in sorted((each.ended_at - each.duration, each.ended_at) for each in requests):
        if found and begun <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], ended)
        else:
            found.append((begun, ended))
    return found


def acceptance_length(requests: Iterable[Measured]) -> float | None:
    """Return tokens emitted a round, (accepted + finished rounds) / rounds, of all requests together."""
    chosen = list(requests)
    rounds = sum(each.rounds for each in chosen)
    return sum(each.accepted + each.finished_rounds for each in chosen) / rounds if rounds else None


def tokens_per_second(requests: Sequence[Measured]) -> Estimate | None:
    """Return decode tokens a second after the first burst, of all requests together; prompts resampled."""
    timed = [each for each in requests if each.time_per_token]
    return _by_prompt(timed, _tokens, lambda each: each.output_tokens * (each.time_per_token or 0.0))


def accept_rate(requests: Sequence[Measured]) -> Estimate | None:
    """Return accepted over compared tokens, of all requests together that compared any; prompts resampled."""
    compared = [each for each in requests if each.compared]
    return _by_prompt(compared, lambda each: each.accepted, lambda each: each.compared)


def speed_up(run: Run, arm: Arm, where: Where | None = None, least_tokens: int = 2) -> Estimate | None:
    """Return autoregressive over speculative time per token: above 1 speculation is faster.

    Each request is held against the one of the arm's baseline with the same prompt and repeat; a prompt's times are
    summed over its repeats, and prompts are resampled.

    Args:
        run: The run.
        arm: A speculative arm.
        where: Takes the speculative requests that count; None: all.
        least_tokens: Pairs with an answer of fewer tokens do not count.
    """
    before: dict[str, float] = defaultdict(float)
    after: dict[str, float] = defaultdict(float)
    for plain, drafted in pairs(run, arm, where):
        enough = min(plain.output_tokens, drafted.output_tokens) >= least_tokens
        if enough and plain.time_per_token and drafted.time_per_token:
            before[drafted.prompt] += plain.time_per_token * drafted.weight
            after[drafted.prompt] += drafted.time_per_token * drafted.weight
    return ratio_of_sums(list(before.values()), list(after.values()))


def pairs(run: Run, arm: Arm, where: Where | None = None) -> list[tuple[Measured, Measured]]:
    """Return the requests of an arm's baseline and of the arm that had the same prompt and repeat."""
    plain = {(each.prompt, each.repeat): each for each in run.of(arm.baseline)}
    chosen = [each for each in run.of(arm) if where is None or where(each)]
    return [(plain[key], each) for each in chosen if (key := (each.prompt, each.repeat)) in plain]


def paired(run: Run, arm: Arm) -> Run:
    """Return a run with the requests alone that `pairs` holds against each other: both arms answered the same."""
    return replace(run, results=tuple(each for pair in pairs(run, arm) for each in pair))


def break_even_margin(run: Run, arm: Arm, where: Where | None = None) -> Estimate | None:
    """Return by what share a round's tokens exceed what it costs, in autoregressive passes; above 0 it pays.

    Break-even is where the acceptance length equals the mean duration of a round over that of an autoregressive decode
    pass, over the same prompts (docs/semantics.md). Prompts are resampled.
    """
    gains: dict[str, float] = defaultdict(float)
    costs: dict[str, float] = defaultdict(float)
    for plain, drafted in pairs(run, arm, where):
        passes, rounds = plain.passes, drafted.passes
        if not passes.microseconds or not rounds.microseconds or not drafted.rounds:
            continue
        pass_seconds = sum(passes.microseconds) / sum(passes.tokens)
        gains[drafted.prompt] += sum(rounds.tokens) * pass_seconds * drafted.weight
        costs[drafted.prompt] += sum(rounds.microseconds) * drafted.weight
    found = ratio_of_sums(list(gains.values()), list(costs.values()))
    if found is None:
        return None
    low, high = (None if end is None else end - 1 for end in (found.low, found.high))
    return Estimate(found.value - 1, low, high, found.samples)


def steady(requests: Sequence[Measured], window: Window = SIGN_OFF_WINDOW) -> Estimate | None:
    """Return tokens a second over a window of each answer: the slope of tokens over decode time; prompts resampled."""
    tokens: dict[str, float] = defaultdict(float)
    seconds: dict[str, float] = defaultdict(float)
    for each in requests:
        found = _in_window(each, window)
        if found is not None:
            tokens[each.prompt] += found[0] * each.weight
            seconds[each.prompt] += found[1] * each.weight
    return ratio_of_sums(list(tokens.values()), list(seconds.values()))


def steady_speed_up(
    run: Run, arm: Arm, window: Window = SIGN_OFF_WINDOW, where: Where | None = None
) -> Estimate | None:
    """Return the speculative over the autoregressive slope of tokens over time, pair by pair; prompts resampled."""
    before: dict[str, float] = defaultdict(float)
    after: dict[str, float] = defaultdict(float)
    for plain, drafted in pairs(run, arm, where):
        one, other = _in_window(plain, window), _in_window(drafted, window)
        if one is not None and other is not None:
            before[drafted.prompt] += one[1] / one[0] * drafted.weight
            after[drafted.prompt] += other[1] / other[0] * drafted.weight
    return ratio_of_sums(list(before.values()), list(after.values()))


def tier_of(request: Measured) -> str:
    """Return the context tier of a request, by the tokens that the engine counted."""
    return context_tier(request.input_tokens)


def in_tier(tier: str) -> Where:
    """Return what takes the requests of a tier."""
    return lambda request: tier_of(request) == tier


def of_kind(kind: str) -> Where:
    """Return what takes the requests of a kind of prompt."""
    return lambda request: request.kind == kind


def _in_window(request: Measured, window: Window) -> tuple[float, float] | None:
    """Return how many tokens lie in a window and how many seconds they took, by a line of least squares."""
    if not request.passes.tokens:
        return None
    reached = np.cumsum(request.passes.tokens) + request.output_tokens - sum(request.passes.tokens)
    at = np.cumsum(request.passes.microseconds) / MICROSECONDS
    inside = (reached >= window.first) & (reached <= window.last)
    if inside.sum() < 3:
        return None
    tokens = float(reached[inside][-1] - reached[inside][0])
    if tokens < window.least:
        return None
    # The line's slope, not last minus first: a pause at either end would weigh as much as all between.
    apart = at[inside] - at[inside].mean()
    rate = float(apart @ (reached[inside] - reached[inside].mean()) / (apart @ apart)) if apart.any() else 0.0
    return (tokens, tokens / rate) if rate > 0 else None


def _tokens(request: Measured) -> float:
    return request.output_tokens


def _by_prompt(
    requests: Sequence[Measured], numerator: Callable[[Measured], float], denominator: Callable[[Measured], float]
) -> Estimate | None:
    upper: dict[str, float] = defaultdict(float)
    lower: dict[str, float] = defaultdict(float)
    for each in requests:
        upper[each.prompt] += numerator(each) * each.weight
        lower[each.prompt] += denominator(each) * each.weight
    return ratio_of_sums(list(upper.values()), list(lower.values()))


def _round(requests: Sequence[Measured], share: float) -> Estimate | None:
    lengths = [np.asarray(each.passes.microseconds, dtype=float) for each in requests]
    return quantile(np.concatenate(lengths) / MICROSECONDS if lengths else [], share)


def _known(values: Iterable[Number | None]) -> list[Number]:
    return [value for value in values if value is not None]
