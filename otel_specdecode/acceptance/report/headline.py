"""The sentence that people quote: refused as long as a number is missing without which it is worth nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from otel_specdecode.acceptance.figures import ArmFigures, arm_figures, paired, pairs, speed_up
from otel_specdecode.acceptance.gates.verdict import Verdict
from otel_specdecode.acceptance.knee import Knee, knee
from otel_specdecode.acceptance.records import Arm, Run
from otel_specdecode.acceptance.report import wording
from otel_specdecode.acceptance.report.escaping import printable

_ARMS = "an autoregressive and a speculative arm of the same prompts"


@dataclass(frozen=True, slots=True)
class Headline:
    """What may be quoted of a run.

    Attributes:
        text: The sentence; None where it is refused.
        short: A few words of it, for a badge.
        missing: What it is refused for; empty where it is not.
    """

    text: str | None
    short: str
    missing: tuple[str, ...]


def chosen_arm(run: Run, verdict: Verdict | None) -> Arm | None:
    """Return the arm that was judged, or else the fastest."""
    if verdict is not None and verdict.arm is not None:
        return next((arm for arm in run.head.arms if arm.name == verdict.arm), None)
    best = knee(run).best
    return None if best is None else best.arm


def headline_of(run: Run, verdict: Verdict | None) -> Headline:
    """Return what may be quoted of the arm that was judged."""
    arm = chosen_arm(run, verdict)
    return _refused((_ARMS,)) if arm is None else _headline(run, arm, verdict)


def quotable(run: Run, found: Knee) -> Knee:
    """Return a knee whose advice to take an arm has no number where a headline of that arm would be refused."""
    if found.stay or found.best is None:
        return found
    arm = found.best.arm
    missing = _headline(run, arm, None).missing
    return replace(found, why=f"{arm.name} looks best; {_unquoted(missing)}") if missing else found


def quotable_verdict(verdict: Verdict | None, headline: Headline, best: Arm | None) -> Verdict | None:
    """Return a verdict whose advice to take its arm has no number where its headline is refused.

    Args:
        verdict: What the gates said.
        headline: That of the arm that was judged.
        best: The fastest arm, which need not be the one that was judged.
    """
    if verdict is None or verdict.arm is None or verdict.stay_on_ar or not headline.missing:
        return verdict
    looks = "best" if best is not None and best.name == verdict.arm else "faster than autoregressive decoding"
    return replace(verdict, reason=f"{verdict.arm} looks {looks}; {_unquoted(headline.missing)}")


def _headline(run: Run, arm: Arm, verdict: Verdict | None) -> Headline:
    """Return what may be quoted of an arm, of those of its requests that were made in both arms."""
    both = paired(run, arm)
    if not both.results:
        return _refused((_ARMS,))
    plain, drafted = arm_figures(both, arm.baseline), arm_figures(both, arm)
    quality = _quality(both, arm)
    missing = [
        name
        for name, known in (
            ("accept rate", drafted.accept_rate),
            ("autoregressive tokens/s", plain.tokens_per_second),
            ("tokens/s", drafted.tokens_per_second),
            ("time to first token", plain.time_to_first_token_p50 and drafted.time_to_first_token_p50),
            ("memory", _peak(plain) and _peak(drafted)),
            ("quality", quality),
        )
        if not known
    ]
    if not same_mix(run, arm):
        missing.append("the same mix of prompts in both arms")
    ratio = speed_up(both, arm)
    if ratio is None and not missing:
        missing.append("speed-up")
    if missing or ratio is None or quality is None:
        return _refused(tuple(missing))
    word = "Not judged" if verdict is None else verdict.status.capitalize()
    name = printable(arm.name)
    rate = wording.said(drafted.accept_rate, wording.fraction)
    text = (
        f"{word}: {name} decodes {wording.said(drafted.tokens_per_second)} tokens/s against "
        f"{wording.said(plain.tokens_per_second)} autoregressive ({wording.in_full(ratio, wording.factor)}), "
        f"accept rate {rate}, TTFT p50 {wording.said(drafted.time_to_first_token_p50, wording.milliseconds)} against "
        f"{wording.said(plain.time_to_first_token_p50, wording.milliseconds)}, peak memory "
        f"{wording.said(_peak(drafted), wording.size)} against {wording.said(_peak(plain), wording.size)}, {quality}; "
        f"{drafted.requests} requests of {drafted.prompts} prompts in both."
    )
    return Headline(text, f"{name} {wording.factor(ratio.value)}, accept rate {rate}", ())


def same_mix(run: Run, arm: Arm) -> bool:
    """Return whether an arm and its baseline answered the same prompts, each as often.

    A soak draws prompts by their weights for as long as each arm runs: there it is enough that both have met them all,
    as a headline counts those requests alone that were made in both.
    """
    if run.head.kind == "soak":
        return {each.prompt for each in run.of(arm)} == {each.prompt for each in run.of(arm.baseline)}
    return sorted((each.prompt, each.repeat) for each in run.of(arm)) == sorted(
        (each.prompt, each.repeat) for each in run.of(arm.baseline)
    )


def _unquoted(missing: tuple[str, ...]) -> str:
    """Return why there is no number."""
    *others, last = missing
    named = f"{', '.join(others)} and {last} are" if others else f"{last} is"
    return f"no number is quoted, since {named} missing."


def _refused(missing: tuple[str, ...]) -> Headline:
    return Headline(None, "no headline", missing)


def _peak(figures: ArmFigures) -> int | None:
    return figures.peak_footprint or figures.peak_rss


def _quality(run: Run, arm: Arm) -> str | None:
    """Return how good the answers are in both arms: by their checks, or that none of them changed."""
    both = pairs(run, arm)
    checked = [(plain.check, drafted.check) for plain, drafted in both if None not in (plain.check, drafted.check)]
    if checked:
        before, after = sum(1 for plain, _ in checked if plain), sum(1 for _, drafted in checked if drafted)
        return f"{after} of {len(checked)} checks passed against {before}"
    digests = [(plain.text_digest, drafted.text_digest) for plain, drafted in both]
    if digests and all(plain is not None and plain == drafted for plain, drafted in digests):
        return f"all {len(digests)} answers equal"
    return None
