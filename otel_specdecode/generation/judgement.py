"""What finished counts say about a run."""

from __future__ import annotations

from typing import Literal

from otel_specdecode.generation.counts import Counts
from otel_specdecode.generation.request import Request
from otel_specdecode.thresholds import thresholds

ContextTier = Literal["short", "mid", "long"]

ALL_REJECTED = "all_rejected"
NOTHING_PROPOSED = "nothing_proposed"


def context_tier(input_tokens: int | None) -> ContextTier:
    """Return the size class of an input; an unknown one is short."""
    bounds = thresholds()["context_tier"]
    if input_tokens is None or input_tokens <= bounds["short"]:
        return "short"
    return "mid" if input_tokens <= bounds["mid"] else "long"


def hazards_of(request: Request, counts: Counts) -> tuple[str, ...]:
    """Return the hazards that only the counts of a whole speculative run show."""
    if request.mode != "speculative":
        return ()
    if counts.decode_passes and not counts.proposed:
        return (NOTHING_PROPOSED,)
    if counts.finished_rounds >= thresholds()["hazards"]["all_rejected_rounds"] and not counts.accepted:
        return (ALL_REJECTED,)
    return ()
