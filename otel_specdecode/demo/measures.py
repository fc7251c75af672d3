"""Figures out of the telemetry of many requests, and what they say of each draft."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from otel_specdecode.demo.capture import Recorded
from otel_specdecode.demo.engines.interface import Mode
from otel_specdecode.demo.lineups import Lineup
from otel_specdecode.demo.runs import Run
from otel_specdecode.telemetry.names import Attr

Word = Literal["pays", "hurts", "no clear difference", "too few prompts to tell"]

_ENOUGH_FOR_RESAMPLING = 6
_ENOUGH = 3
_RESAMPLES = 2000


@dataclass(frozen=True)
class SpeedUp:
    """Autoregressive over speculative time per token, the prompts weighing alike; above 1 speculation is faster.

    Attributes:
        ratio: Sum of the autoregressive times per token over that of the speculative ones.
        low, high: Interval around it: 95 % of resamples of the prompts, or with fewer than six prompts the lowest and
            the highest of them.
        prompts: How many prompts were compared.
    """

    ratio: float
    low: float
    high: float
    prompts: int

    @property
    def word(self) -> Word:
        """The verdict: only an interval that leaves 1 outside is one."""
        if self.prompts < _ENOUGH:
            return "too few prompts to tell"
        if self.low > 1:
            return "pays"
        return "hurts" if self.high < 1 else "no clear difference"


@dataclass(frozen=True)
class Verdict:
    """What is said of one draft.

    Attributes:
        mode: The draft's mode.
        speed_up: None where no request was long enough to have a time per token.
        accept_rate: Of the sums over its requests; None if nothing was compared.
        acceptance_length: Of the sums over its requests; None if there was no round.
        break_even: What a round costs, in autoregressive passes: speculation pays while the acceptance length is
            greater. None where no duration or no round was recorded.
        parted: Indices of the prompts whose text differs from the autoregressive one.
    """

    mode: Mode
    speed_up: SpeedUp | None
    accept_rate: float | None
    acceptance_length: float | None
    break_even: float | None
    parted: tuple[int, ...]

    @property
    def word(self) -> Word:
        """The verdict in a word or a few."""
        return "too few prompts to tell" if self.speed_up is None else self.speed_up.word


def verdicts(lineup: Lineup, runs: Sequence[Run], seed: int) -> list[Verdict]:
    """Return what the runs of a lineup say of each of its drafts."""
    baseline = of_mode(runs, lineup.baseline.name)
    return [_verdict(mode, of_mode(runs, mode.name), baseline, seed) for mode in lineup.drafts]


def of_mode(runs: Sequence[Run], name: str) -> list[Run]:
    """Return the runs of one mode."""
    return [run for run in runs if run.mode == name]


def value(run: Run, key: str) -> float | None:
    """Return a numeric attribute of a run's span, None if it is absent."""
    found = run.taken.attributes.get(key)
    return float(found) if isinstance(found, (int, float)) else None


def total(runs: Sequence[Run], key: str) -> float:
    """Return the sum of an attribute over runs, absent ones counting nothing."""
    return sum(value(run, key) or 0.0 for run in runs)


def mean(runs: Sequence[Run], key: str) -> float | None:
    """Return the mean of an attribute over the runs that have it."""
    found = [number for run in runs if (number := value(run, key)) is not None]
    return sum(found) / len(found) if found else None


def highest(runs: Sequence[Run], key: str) -> float | None:
    """Return the greatest value of an attribute."""
    return max((number for run in runs if (number := value(run, key)) is not None), default=None)


def accept_rate(runs: Sequence[Run]) -> float | None:
    """Return accepted over compared tokens of all runs together."""
    accepted = total(runs, Attr.SPECDECODE_DRAFT_ACCEPTED_TOKENS)
    compared = accepted + total(runs, Attr.SPECDECODE_DRAFT_REJECTED_TOKENS)
    return accepted / compared if compared else None


def acceptance_length(runs: Sequence[Run]) -> float | None:
    """Return tokens emitted per round of all runs together; the plain mean, which is 1, without a draft."""
    rounds = total(runs, Attr.SPECDECODE_VERIFY_PASSES)
    if not rounds:
        return mean(runs, Attr.SPECDECODE_ACCEPTANCE_LENGTH)
    emitted = sum(
        (value(run, Attr.SPECDECODE_ACCEPTANCE_LENGTH) or 0.0) * (value(run, Attr.SPECDECODE_VERIFY_PASSES) or 0.0)
        for run in runs
    )
    return emitted / rounds


def rollbacks_per_minute(runs: Sequence[Run]) -> float | None:
    """Return rollbacks per minute of decode time of all runs together."""
    seconds = total(runs, Attr.SPECDECODE_DECODE_DURATION)
    return total(runs, Attr.SPECDECODE_ROLLBACKS) * 60 / seconds if seconds else None


def time_per_token(run: Run) -> float | None:
    """Return seconds of decode per token after the first burst."""
    per_second = value(run, Attr.SPECDECODE_DECODE_TOKENS_PER_SECOND)
    return 1 / per_second if per_second else None


def recorded_rounds(runs: Sequence[Run]) -> Recorded:
    """Return the recorded round durations of all runs together."""
    return Recorded(sum(run.taken.rounds.count for run in runs), sum(run.taken.rounds.total for run in runs))


def mean_pass(runs: Sequence[Run]) -> float | None:
    """Return the mean duration of a decode pass with its drafting, in seconds.

    It is made of exact sums: on a fast engine, round durations are only a sample. Where the end of prefill is unknown,
    decode begins after its first pass.
    """
    passes = sum(
        (value(run, Attr.SPECDECODE_DECODE_PASSES) or 0) - (value(run, Attr.SPECDECODE_PREFILL_DURATION) is None)
        for run in runs
    )
    return total(runs, Attr.SPECDECODE_DECODE_DURATION) / passes if passes > 0 else None


def round_cost(runs: Sequence[Run], baseline: Sequence[Run]) -> float | None:
    """Return what a round cost, in autoregressive passes.

    A decode pass for which the draft proposed nothing emits one token, as an autoregressive pass does, and is taken to
    cost as much: what it cost beyond, the draft's search for example, is the rounds' to earn.
    """
    speculative, autoregressive = mean_pass(runs), mean_pass(baseline)
    rounds = total(runs, Attr.SPECDECODE_VERIFY_PASSES)
    if not speculative or not autoregressive or not rounds:
        return None
    passes = total(runs, Attr.SPECDECODE_DECODE_PASSES)
    return (passes * speculative / autoregressive - (passes - rounds)) / rounds


def accepted_per_round(runs: Sequence[Run], length: int) -> list[float]:
    """Return the share of rounds with 0, 1, ... `length` accepted tokens.

    A round with j accepted tokens has them at the places 0 to j - 1, so the counters by place tell how many had more.
    """
    rounds = total(runs, Attr.SPECDECODE_VERIFY_PASSES)
    reached = [rounds, *(sum(run.taken.accepted_by_position.get(place, 0) for run in runs) for place in range(length))]
    return [(here - after) / rounds if rounds else 0.0 for here, after in zip(reached, [*reached[1:], 0], strict=True)]


def _verdict(mode: Mode, runs: Sequence[Run], baseline: Sequence[Run], seed: int) -> Verdict:
    partners = {run.pair: run for run in baseline}
    times = [
        (before, after)
        for run in runs
        if (before := time_per_token(partners[run.pair])) is not None and (after := time_per_token(run)) is not None
    ]
    return Verdict(
        mode=mode,
        speed_up=speed_up(times, seed) if times else None,
        accept_rate=accept_rate(runs),
        acceptance_length=acceptance_length(runs),
        break_even=round_cost(runs, baseline),
        parted=tuple(sorted({run.prompt for run in runs if run.text != partners[run.pair].text})),
    )


def speed_up(times: Sequence[tuple[float, float]], seed: int) -> SpeedUp:
    """Return the speed-up of pairs of an autoregressive and a speculative time per token, one pair a prompt."""
    pairs = np.asarray(times)
    ratio = float(pairs[:, 0].sum() / pairs[:, 1].sum())
    if len(pairs) < _ENOUGH_FOR_RESAMPLING:
        each = pairs[:, 0] / pairs[:, 1]
        return SpeedUp(ratio, float(each.min()), float(each.max()), len(pairs))
    chosen = np.random.default_rng(seed).integers(0, len(pairs), (_RESAMPLES, len(pairs)))
    sums = pairs[chosen].sum(axis=1)
    low, high = np.quantile(sums[:, 0] / sums[:, 1], (0.025, 0.975))
    return SpeedUp(ratio, float(low), float(high), len(pairs))
