"""What came out of one demo, and the sentences that terminal and page share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from otel_specdecode.demo.engines.interface import DRAFT_LENGTH
from otel_specdecode.demo.lineups import Lineup
from otel_specdecode.demo.measures import Verdict, of_mode
from otel_specdecode.demo.runs import Run

ECONOMICS = (
    "These are small models on this machine's processor: accept rates hold anywhere, speeds do not. The ratio on "
    "your Mac with your models will differ; run it there."
)
HOW_TO_READ = (
    "Speculation pays while the acceptance length (tokens emitted per round) is greater than the break-even ratio "
    "(what a round costs, in autoregressive passes)."
)


@dataclass(frozen=True)
class Result:
    """One lineup, its runs and what they say."""

    lineup: Lineup
    runs: Sequence[Run]
    verdicts: Sequence[Verdict]

    @property
    def heading(self) -> str:
        """What stands above its numbers."""
        title = self.lineup.engine.title
        return f"{title}, padded target" if self.lineup.padded_blocks else title

    @property
    def pays(self) -> bool:
        """Whether speculation was seen to pay."""
        return any(verdict.word == "pays" for verdict in self.verdicts)

    @property
    def undecided(self) -> bool:
        """Whether there were too few prompts for any verdict."""
        return all(verdict.word == "too few prompts to tell" for verdict in self.verdicts)


@dataclass(frozen=True)
class Report:
    """All that was run, in the order in which it is shown.

    Attributes:
        claims: Which names all of its telemetry had in common.
    """

    results: Sequence[Result]
    claims: Sequence[str]

    @property
    def honest(self) -> list[Result]:
        """The results of targets as they are, one an engine."""
        return [result for result in self.results if not result.lineup.padded_blocks]


def padding_note(result: Result) -> str | None:
    """Return the warning that belongs to every figure of a padded target, None for an honest one."""
    if not result.lineup.padded_blocks:
        return None
    return (
        f"PADDED TARGET: {result.lineup.padded_blocks} blocks that do nothing were added to the target, because no "
        "draft was seen to pay on the real one here. It shows what speculation does under a slower target; its speed "
        "is no speed of a real model."
    )


def method_note(result: Result) -> str:
    """Return how the numbers were made."""
    lineup = result.lineup
    return (
        f"{len(result.runs)} greedy requests over {_plural(len(lineup.prompts), 'prompt')}, at most {lineup.tokens} "
        f"tokens each, draft length k = {DRAFT_LENGTH}. Autoregressive and speculative requests alternate. One request "
        f"of each mode ran before as a warm-up and is in no number. {lineup.note}"
    )


def interval_note(result: Result) -> str:
    """Return what the interval beside a speed-up is."""
    prompts = max((v.speed_up.prompts for v in result.verdicts if v.speed_up is not None), default=0)
    if prompts < 6:
        return "The interval is the lowest and the highest prompt; a draft pays or hurts only if 1 lies outside of it."
    return "The interval holds 95 % of resamples of the prompts; a draft pays or hurts only if 1 lies outside of it."


def parted_note(result: Result) -> str:
    """Return whether the modes agreed on the text."""
    parted = [verdict for verdict in result.verdicts if verdict.parted]
    if not parted:
        return "Every speculative request emitted the very text of its autoregressive one."
    told = "; ".join(
        f"{verdict.mode.name}: {', '.join(repr(result.lineup.prompts[i].text) for i in verdict.parted)}"
        for verdict in parted
    )
    why = (
        "With quantised weights that happens: several tokens in one pass are computed by another kernel than one."
        if result.lineup.quantised
        else "Greedy texts should agree; two tokens may have been equally likely up to rounding."
    )
    return f"Texts that differ from the autoregressive ones: {told}. {why}"


def field_notes(report: Report) -> list[str]:
    """Return what to know about all fields side by side."""
    folding = (
        "Counts and durations are means of a request, peak_rss is the greatest (of the whole process, with all that "
        "was loaded by then), ratios are of the sums. round.duration is the mean of the values that were recorded, and "
        "how many: on a fast engine a sample."
    )
    return [folding, *report.claims, *([_engines_note(report.honest)] if len(report.honest) > 1 else [])]


def _engines_note(honest: Sequence[Result]) -> str:
    """Return whether the engines agreed on the autoregressive text."""
    # Of a first word, one engine gives the space in front of it as well.
    texts = [
        {run.prompt: run.text.strip() for run in of_mode(result.runs, result.lineup.baseline.name)} for result in honest
    ]
    prompts = honest[0].lineup.prompts
    parted = [repr(prompt.text) for i, prompt in enumerate(prompts) if len({each.get(i) for each in texts}) > 1]
    told = (
        f"{' and '.join(result.lineup.engine.title for result in honest)} emitted the same autoregressive text for "
        f"{len(prompts) - len(parted)} of {_plural(len(prompts), 'prompt')}"
    )
    return f"{told}; they round differently, and parted on: {', '.join(parted)}." if parted else f"{told}."


def factor(number: float | None) -> str:
    """Return a ratio with its sign."""
    return "absent" if number is None else f"x{number:.2f}"


def interval(verdict: Verdict) -> str:
    """Return the interval of a verdict's speed-up in words."""
    speed_up = verdict.speed_up
    return "absent" if speed_up is None else f"{speed_up.low:.2f}-{speed_up.high:.2f}"


def plain(number: float | None) -> str:
    """Return a number with two digits."""
    return "absent" if number is None else f"{number:.2f}"


def _plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
