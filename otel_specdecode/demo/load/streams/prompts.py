"""Prompts of two lengths, as the tokens of chats; no text of theirs leaves the process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from otel_specdecode.demo.load.plan import Arrival
from otel_specdecode.thresholds import thresholds
from otel_specdecode.tiny_pair import PROMPTS

BAD_NOISE = 1.5
"""Sigma of the noise in the bad draft's weights: nearly nothing of what it proposes is right."""

_LONG = 3
"""How many long prompts there are: reading one takes a second on a small machine."""


@dataclass(frozen=True)
class Prompts:
    """Prompts to pick from.

    Attributes:
        short: Of some tens of tokens.
        long: Of more tokens than the short context tier: chats before the last question.
        repeating: Those short ones whose answer repeats them: in others there is nothing to look up.
    """

    short: Sequence[list[int]]
    long: Sequence[list[int]]
    repeating: Sequence[list[int]]

    def pick(self, arrival: Arrival) -> list[int]:
        """Return the prompt of a request."""
        fitting = self.repeating if arrival.way == "prompt lookup" else self.short
        prompts, number = self.long if arrival.long else fitting, arrival.prompt
        return prompts[number % len(prompts)]


def prompts(tokenize: Callable[[str], list[int]]) -> Prompts:
    """Return the prompts in an engine's tokens.

    Args:
        tokenize: Puts one question into the tokens of a chat.
    """
    short = [tokenize(text) for text in PROMPTS]
    repeating = [tokens for text, tokens in zip(PROMPTS, short, strict=True) if text.startswith("Repeat")]
    return Prompts(short, [_long(short, first) for first in range(_LONG)], repeating)


def _long(short: Sequence[list[int]], first: int) -> list[int]:
    tokens: list[int] = []
    place = first
    while len(tokens) <= thresholds()["context_tier"]["short"]:
        tokens += short[place % len(short)]
        place += 1
    return tokens
