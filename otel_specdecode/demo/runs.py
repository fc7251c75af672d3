"""Generates every prompt in every mode and keeps the telemetry of each request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from opentelemetry.instrumentation.utils import suppress_instrumentation

from otel_specdecode.demo.capture import Capture, Taken
from otel_specdecode.demo.lineups import Lineup

_WARM_UP_TOKENS = 8


@dataclass(frozen=True)
class Run:
    """One request.

    Attributes:
        mode: Name of its mode.
        prompt: Index of its prompt.
        pair: Number of the comparison it belongs to: one autoregressive request and the speculative one after it.
        text: What was emitted.
        taken: Its telemetry.
    """

    mode: str
    prompt: int
    pair: int
    text: str
    taken: Taken


def count_of(lineup: Lineup) -> int:
    """Return how many requests a lineup takes, those for warming up not included."""
    return 2 * len(lineup.drafts) * len(lineup.prompts)


def warm_up(lineup: Lineup) -> None:
    """Run every mode once, unrecorded: the first request of a model pays for things that later ones do not."""
    with suppress_instrumentation():
        for mode in lineup.modes:
            mode.generate(lineup.prompts[0].tokens, min(_WARM_UP_TOKENS, lineup.tokens))


def measure(lineup: Lineup, capture: Capture, step: Callable[[], None]) -> list[Run]:
    """Run all prompts in all modes.

    Autoregressive and speculative requests alternate, and the drafts take turns in going first, so that a machine that
    speeds up or slows down meanwhile does so for all of them.

    Args:
        lineup: What to run.
        capture: Where the telemetry arrives.
        step: Called after each request.
    """
    runs: list[Run] = []
    for number, prompt in enumerate(lineup.prompts):
        turn = number % len(lineup.drafts)
        for draft in lineup.drafts[turn:] + lineup.drafts[:turn]:
            pair = len(runs)
            for mode in (lineup.baseline, draft):
                text = mode.generate(prompt.tokens, lineup.tokens)
                runs.append(Run(mode.name, number, pair, text, capture.take()))
                step()
        capture.snapshot()
    return runs
