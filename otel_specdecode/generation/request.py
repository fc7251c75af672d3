"""What a caller asked an engine for, and the path the engine entered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Operation = Literal["text_completion", "chat", "embeddings"]
Mode = Literal["autoregressive", "speculative"]
Method = Literal["none", "draft_model", "prompt_lookup", "custom"]
Cohort = Literal["normal", "control", "probe", "fallback", "bench"]

ZERO_DRAFT_LENGTH = "zero_draft_length"
"""Fallback reason of a request whose draft may propose no token."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters that the call made known; None where it did not say."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    stop_sequences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """One generation as it was entered.

    Attributes:
        operation: GenAI operation name.
        provider: GenAI provider name of the engine.
        model: Target model as the caller knows it (repository id or folder name), None if unknown.
        mode: The path entered: speculative if a draft is attached and draft_max_tokens >= 1.
        requested_mode: What the caller asked for; differs from mode under a fallback or with k = 0.
        method: What proposes tokens.
        draft_model: Draft model as the caller knows it, None without one or if unknown.
        draft_max_tokens: The configured draft length k; 0 without a draft, None if unknown.
        cohort: Why the request ran as it did.
        fallback_reason: Why mode differs from requested_mode, None where they agree.
        stream: Whether the caller consumes tokens as they come.
        sampling: Sampling parameters.
        batch_size: Number of prompts, on the request that stands for a whole batch.
        passes_shared: The decode passes belong to a batch: whoever runs that counts each of them once, if anybody does.
        queued: Seconds from when a server began to serve the request to its first resume; None outside of servers.
        decided: Of the plan that it runs by.
        who: Tenant and session that its program named itself; None where its context tells.
        pair: What runs, as the room `identity` holds it; None where the engine does not tell.
    """

    operation: Operation
    provider: str
    model: str | None
    mode: Mode = "autoregressive"
    requested_mode: Mode = "autoregressive"
    method: Method = "none"
    draft_model: str | None = None
    draft_max_tokens: int | None = 0
    cohort: Cohort = "normal"
    fallback_reason: str | None = None
    stream: bool = True
    sampling: Sampling = field(default_factory=Sampling)
    batch_size: int | None = None
    passes_shared: bool = False
    queued: float | None = None
    decided: int = field(default=0, compare=False, repr=False)
    who: tuple[str | None, str | None] | None = field(default=None, compare=False, repr=False)
    pair: object = field(default=None, compare=False, repr=False)

    @property
    def decodes(self) -> bool:
        """Whether it emits tokens, so that it has a mode; embeddings have none."""
        return self.operation != "embeddings"
