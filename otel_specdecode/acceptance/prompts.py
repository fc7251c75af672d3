"""Prompts of a run, and the files that they come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from otel_specdecode.acceptance.records import Kind

Tier = Literal["short", "mid", "long"]


@dataclass(frozen=True, slots=True)
class Check:
    """What an answer has to be. One of the three is set.

    Attributes:
        regex: Is found somewhere in it.
        json_schema: It is a JSON document that this schema allows.
        exact: It is this text, but for white space around it.
    """

    regex: str | None = None
    json_schema: dict[str, Any] | None = None
    exact: str | None = None


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt. Either `text` or `messages` is set.

    Attributes:
        id: Unique among the prompts of a run.
        text: Given to the model as it is.
        messages: Turns of a chat, put into the model's chat template: `{"role": ..., "content": ...}` each.
        tier: Expected size class of its input; what counts is the one that the engine measures.
        kind: What it asks for.
        max_tokens: The most tokens that its answer may have.
        weight: How often it counts in figures over all prompts.
        check: What its answer has to be; None if nobody looks.
    """

    id: str
    text: str | None = None
    messages: tuple[dict[str, str], ...] | None = None
    tier: Tier = "short"
    kind: Kind = "other"
    max_tokens: int = 128
    weight: float = 1.0
    check: Check | None = None
