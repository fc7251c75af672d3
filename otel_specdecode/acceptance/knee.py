"""Which draft length is best, and whether any is worth it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from otel_specdecode.acceptance.figures import Where, break_even_margin, speed_up
from otel_specdecode.acceptance.records import Arm, Run
from otel_specdecode.acceptance.statistics import Estimate


@dataclass(frozen=True, slots=True)
class Candidate:
    """A speculative arm, held against its baseline.

    Attributes:
        arm: The arm.
        speed_up: Autoregressive over speculative time per token.
        margin: By what share a round's tokens exceed its cost.
    """

    arm: Arm
    speed_up: Estimate
    margin: Estimate | None

    @property
    def pays(self) -> bool | None:
        """Whether it is faster than its baseline; None where the interval holds 1, or there is none."""
        if self.speed_up.low is None or self.speed_up.high is None:
            return None
        if self.speed_up.low > 1:
            return True
        return False if self.speed_up.high < 1 else None


@dataclass(frozen=True, slots=True)
class Knee:
    """The best of some arms.

    Attributes:
        candidates: All that could be held against their baseline, in the order of the run.
        best: The one with the highest speed-up; None where there is none to compare.
        stay: Whether the advice is to stay on autoregressive decoding.
        why: The advice and its reason, as one sentence.
    """

    candidates: tuple[Candidate, ...]
    best: Candidate | None
    stay: bool
    why: str


def knee(run: Run, arms: tuple[Arm, ...] | None = None, where: Where | None = None) -> Knee:
    """Return the best speculative arm of a run, or of some of its arms.

    Args:
        run: The run.
        arms: Those to choose from; None: all greedy arms of one request at a time, and if there are none, all.
        where: Takes the requests that count; None: all.
    """
    chosen = [arm for arm in (arms if arms is not None else comparable_arms(run)) if arm.speculative]
    found = [(arm, speed_up(run, arm, where)) for arm in chosen]
    candidates = tuple(
        Candidate(arm, estimate, break_even_margin(run, arm, where)) for arm, estimate in found if estimate is not None
    )
    if not candidates:
        return Knee(
            (), None, True, "Stay on autoregressive decoding: no speculative request could be compared with it."
        )
    best = max(candidates, key=lambda each: each.speed_up.value)
    return Knee(candidates, best, best.pays is not True, _advice(best))


def knees(run: Run) -> dict[int, Knee]:
    """Return the best speculative arm for each number of requests at once, by that number, the lowest first."""
    levels = sorted({arm.concurrency for arm in run.head.arms if arm.speculative})
    return {level: knee(run, _greedy(run, level) or _at(run, level)) for level in levels}


def told_by_level(best: Knee, by_level: Mapping[int, Knee]) -> tuple[str, ...]:
    """Return a sentence for each number of requests at once above 1.

    Args:
        best: The knee of the run, whose sentence stands before these.
        by_level: The knees of its levels. One that `best` is of is left out, but not beside level 1.
    """
    return tuple(
        f"With {level} requests at once, {found.why[:1].lower()}{found.why[1:]}"
        for level, found in by_level.items()
        if level > 1 and (1 in by_level or found.best != best.best)
    )


def comparable_arms(run: Run) -> tuple[Arm, ...]:
    """Return the arms that differ in their draft and its length alone: greedy, one at a time; else all arms."""
    return _greedy(run, 1) or run.head.arms


def _greedy(run: Run, level: int) -> tuple[Arm, ...]:
    """Return the greedy arms of so many requests at once; none where none of them is speculative."""
    plain = tuple(arm for arm in _at(run, level) if not arm.temperature and not arm.top_k)
    return plain if any(arm.speculative for arm in plain) else ()


def _at(run: Run, level: int) -> tuple[Arm, ...]:
    return tuple(arm for arm in run.head.arms if arm.concurrency == level)


def _advice(best: Candidate) -> str:
    ratio = best.speed_up
    interval = "" if ratio.low is None or ratio.high is None else f" [{ratio.low:.2f}, {ratio.high:.2f}]"
    measured = f"{ratio.value:.2f}{interval} times as fast as autoregressive decoding, over {ratio.samples} prompts"
    if best.pays is True:
        return f"Take {best.arm.name}: {measured}."
    if best.pays is False:
        margin = "" if best.margin is None else f"; its rounds earn {best.margin.value:+.0%} of what they cost"
        return f"Stay on autoregressive decoding: the best arm, {best.arm.name}, is only {measured}{margin}."
    unknown = "too few prompts to tell" if ratio.low is None else "the interval holds 1"
    return f"Stay on autoregressive decoding for now: the best arm, {best.arm.name}, is {measured}, and {unknown}."
