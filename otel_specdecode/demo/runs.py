"""Generates every prompt in every mode and keeps the telemetry of each request."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from opentelemetry.instrumentation.utils import suppress_instrumentation

from otel_specdecode.demo.capture import Capture, Taken
from otel_specdecode.demo.lineups import DRAFT_LENGTH, Lineup, Mode, Prompt

_WARM_UP_TOKENS = 8


@dataclass(frozen=True)
class Run:
    """One request.

    Attributes:
        mode: Name of its mode.
        prompt: Index of its prompt.
        pair: Number of the comparison it belongs to: one autoregressive request and the speculative one after it.
        tokens: What was emitted.
        taken: Its telemetry.
    """

    mode: str
    prompt: int
    pair: int
    tokens: tuple[int, ...]
    taken: Taken


def count_of(lineup: Lineup) -> int:
    """Return how many requests a lineup takes, those for warming up not included."""
    return 2 * len(lineup.drafts) * len(lineup.prompts)


def warm_up(lineup: Lineup) -> None:
    """Run every mode once, unrecorded: the first request of a model pays for things that later ones do not."""
    with suppress_instrumentation():
        for mode in lineup.modes:
            _generate(lineup, mode, lineup.prompts[0], min(_WARM_UP_TOKENS, lineup.tokens))


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
                tokens = _generate(lineup, mode, prompt, lineup.tokens)
                runs.append(Run(mode.name, number, pair, tokens, capture.take()))
                step()
        capture.snapshot()
    return runs


def _generate(lineup: Lineup, mode: Mode, prompt: Prompt, tokens: int) -> tuple[int, ...]:
    from mlx_lm import stream_generate
    from mlx_lm.sample_utils import make_sampler

    speculation = {} if mode.draft is None else {"draft_model": mode.draft, "num_draft_tokens": DRAFT_LENGTH}
    stream = stream_generate(
        lineup.target,
        lineup.tokenizer,
        list(prompt.tokens),
        max_tokens=tokens,
        sampler=make_sampler(temp=0.0),
        **speculation,
    )
    with closing(stream):
        return tuple(int(response.token) for response in stream)
