"""Two runs held against each other, arm by arm and prompt by prompt."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.figures import ArmFigures, arm_figures, speed_up
from otel_specdecode.acceptance.frozen import differences
from otel_specdecode.acceptance.records import Arm, Measured, Run
from otel_specdecode.acceptance.report.same_weights import Fact, facts
from otel_specdecode.acceptance.statistics import Estimate, mean, ratio_of_sums

_MOST_NAMED = 12


@dataclass(frozen=True, slots=True)
class ArmComparison:
    """One arm of both runs, over the prompts that both had. None where one of them was not measured.

    Attributes:
        arm: The arm.
        prompts: How many prompts both had.
        speed: Decode speed of the other run over that of the one: above 1 the other is faster; prompts resampled.
        time_to_first_token: Of the other over that of the one: below 1 the other is faster; prompts resampled.
        emitted: Tokens a second with prefill, of the other over the one; prompts resampled.
        memory: Peak memory of the other over that of the one.
        success: By how much the share of passed checks is higher in the other.
        one, other: Figures of all requests of each run.
        one_speed_up, other_speed_up: Over autoregressive decoding in its own run.
    """

    arm: Arm
    prompts: int
    speed: Estimate | None
    time_to_first_token: Estimate | None
    emitted: Estimate | None
    memory: float | None
    success: Estimate | None
    one: ArmFigures
    other: ArmFigures
    one_speed_up: Estimate | None
    other_speed_up: Estimate | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two runs say of each other.

    Attributes:
        one, other: Run ids.
        engines: Of both.
        differences: In what their manifests differ, and what changed in a run as it went on.
        conditions: In what the machine's conditions differed.
        weights: Across engines: what says that both ran the same weights, and what does not.
        arms: The arms that both have.
        left_out: What could not be compared, a sentence each.
    """

    one: str
    other: str
    engines: tuple[str, str]
    differences: tuple[str, ...]
    conditions: tuple[str, ...]
    weights: tuple[Fact, ...]
    arms: tuple[ArmComparison, ...]
    left_out: tuple[str, ...]


def compare(one: Run, other: Run, *, anyway: bool = False, across_engines: bool = False) -> Comparison:
    """Return two runs held against each other.

    Args:
        one: What the other is held against.
        other: The other.
        anyway: Compare runs of different manifests.
        across_engines: Compare two engines: of the manifests only what says that both ran the same weights counts.

    Raises:
        AcceptanceError: The manifests differ, or the weights do, and nobody said `anyway`; or no arm or prompt is in
            both.
    """
    mixed = [change for run in (one, other) for change in _changes(run)]
    differing = (*differences(one.head.manifest, other.head.manifest), *mixed)
    weights = facts(one, other) if across_engines else ()
    unequal = [f"{each.what}: {each.told}" for each in weights if each.same is False and each.must]
    wrong = [*unequal, *mixed] if across_engines else list(differing)
    if wrong and not anyway:
        raise AcceptanceError(_refusal(wrong, across_engines))
    shared, left_out = _prompts(one, other)
    arms = [arm for arm in one.head.arms if arm in other.head.arms]
    alone = [
        arm.name
        for run, against in ((one, other), (other, one))
        for arm in run.head.arms
        if arm not in against.head.arms
    ]
    compared = tuple(_arm(one, other, arm, shared) for arm in arms)
    if not any(each.prompts for each in compared):
        raise AcceptanceError("no arm has a prompt that was measured in both runs: there is nothing to compare.")
    return Comparison(
        one=one.head.run_id,
        other=other.head.run_id,
        engines=(one.head.engine, other.head.engine),
        differences=differing,
        conditions=tuple(differences(one.head.conditions, other.head.conditions)),
        weights=weights,
        arms=compared,
        left_out=(*(f"Arm {name}: only one of the runs has it." for name in alone), *left_out),
    )


def _changes(run: Run) -> list[str]:
    """Return what a run was gone on with that was not what it had been."""
    return [f"{run.head.run_id} itself, from a --resume on: {note.why}" for note in run.notes if note.what == "changed"]


def _refusal(wrong: Sequence[str], across_engines: bool) -> str:
    named = [*wrong[:_MOST_NAMED], *([f"and {len(wrong) - _MOST_NAMED} more"] if len(wrong) > _MOST_NAMED else [])]
    what = "the runs did not run the same weights" if across_engines else "the runs have different manifests"
    hint = "" if across_engines else ", or --across-engines for MLX against llama.cpp"
    return f"{what}; compare them with --anyway{hint}. They differ in\n  " + "\n  ".join(named)


def _prompts(one: Run, other: Run) -> tuple[frozenset[str], list[str]]:
    """Return the ids of the prompts that are the same in both, and what is said of the others."""
    left, right = ({str(each.get("id")): each.get("digest") for each in run.head.prompts} for run in (one, other))
    changed = sorted(name for name in left.keys() & right.keys() if left[name] != right[name])
    alone = len(left.keys() ^ right.keys())
    said = [f"Prompt {name}: its text is another one in the other run." for name in changed]
    said += [f"{alone} prompts that only one of the runs has."] if alone else []
    return frozenset(left.keys() & right.keys()) - frozenset(changed), said


def _arm(one: Run, other: Run, arm: Arm, shared: frozenset[str]) -> ArmComparison:
    left, right = (_by_prompt([each for each in run.of(arm) if each.prompt in shared]) for run in (one, other))
    both = sorted(left.keys() & right.keys())
    pairs = [(left[name], right[name]) for name in both]
    figures, against = arm_figures(one, arm), arm_figures(other, arm)
    memory, other_memory = (each.peak_footprint or each.peak_rss for each in (figures, against))
    return ArmComparison(
        arm=arm,
        prompts=len(both),
        speed=_ratio(pairs, lambda each: each.time_per_token, upside_down=True),
        time_to_first_token=_ratio(pairs, lambda each: each.time_to_first_token),
        emitted=_ratio(
            pairs, lambda each: each.duration / each.output_tokens if each.output_tokens else None, upside_down=True
        ),
        memory=other_memory / memory if memory and other_memory else None,
        success=_success(pairs),
        one=figures,
        other=against,
        one_speed_up=speed_up(one, arm) if arm.speculative else None,
        other_speed_up=speed_up(other, arm) if arm.speculative else None,
    )


def _by_prompt(requests: Sequence[Measured]) -> Mapping[str, list[Measured]]:
    found: dict[str, list[Measured]] = defaultdict(list)
    for each in requests:
        found[each.prompt].append(each)
    return found


def _ratio(
    pairs: Sequence[tuple[list[Measured], list[Measured]]],
    take: Callable[[Measured], float | None],
    *,
    upside_down: bool = False,
) -> Estimate | None:
    """Return the second over the first, of means over the repeats of each prompt; or upside down."""
    means = [(_mean(one, take), _mean(other, take), one[0].weight) for one, other in pairs]
    known = [(one * weight, other * weight) for one, other, weight in means if one and other]
    left, right = [one for one, _ in known], [other for _, other in known]
    return ratio_of_sums(left, right) if upside_down else ratio_of_sums(right, left)


def _mean(requests: Sequence[Measured], take: Callable[[Measured], float | None]) -> float | None:
    values = [value for value in map(take, requests) if value is not None]
    return sum(values) / len(values) if values else None


def _success(pairs: Sequence[tuple[list[Measured], list[Measured]]]) -> Estimate | None:
    """Return by how much the share of passed checks rises; a prompt is one task, however often it ran."""
    shares = [(_mean(one, _passed), _mean(other, _passed)) for one, other in pairs]
    return mean([after - before for before, after in shares if before is not None and after is not None])


def _passed(request: Measured) -> float | None:
    return None if request.check is None else float(request.check)
