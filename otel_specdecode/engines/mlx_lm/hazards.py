"""Known mlx-lm conditions that make speculation wrong, unsafe or pointless."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from otel_specdecode.engines.mlx_lm.passes import PassWatch
from otel_specdecode.generation.running import Generation

DRAFT_NOT_TRIMMABLE = "draft_not_trimmable"
SLIDING_WINDOW_EXCEEDED = "sliding_window_exceeded"
RECURRENT_TARGET = "recurrent_target"
VOCAB_MISMATCH = "vocab_mismatch"
PROCESSORS_WITH_DRAFT = "processors_with_draft"
CACHE_REUSE_SHORT = "cache_reuse_short"


def check_call(generation: Generation, vocabularies: set[int | None], logits_processors: object) -> None:
    """Note what a speculative call's arguments show.

    Under a draft, logits processors see a context that begins at the last prompt token, an autoregressive run's see
    the whole prompt. A draft of another vocabulary proposes ids that mean something else.

    Args:
        generation: Takes the hazards.
        vocabularies: Tokens that the tokenizers of target and draft know, None where unknown. (Rows of the embeddings
            differ between models of one family by padding alone.)
        logits_processors: Those of the call.
    """
    if logits_processors:
        generation.meet_hazard(PROCESSORS_WITH_DRAFT)
    if len(vocabularies - {None}) > 1:
        generation.meet_hazard(VOCAB_MISMATCH)


def check_caches(generation: Generation, passes: PassWatch) -> None:
    """Note caches that could not be rewound at the end of a speculative run.

    mlx-lm checks the target's caches once, while empty, and the draft's never (up to 0.30.7 neither); what cannot be
    trimmed later keeps the rejected tokens, silently.
    """
    for layer in passes.caches.get("target") or ():
        if not layer.is_trimmable():
            windowed = getattr(layer, "max_size", None) is not None
            generation.meet_hazard(SLIDING_WINDOW_EXCEEDED if windowed else RECURRENT_TARGET)
    if any(not layer.is_trimmable() for layer in passes.caches.get("draft") or ()):
        generation.meet_hazard(DRAFT_NOT_TRIMMABLE)


class ShortCaches:
    """Caches that lack their last token.

    A speculative run that ends on the target's own token never computes that token's KV entries. A caller that goes
    on with only the new text, as after an autoregressive run, then skips a token.
    """

    def __init__(self) -> None:
        """Start with no cache."""
        self._ends: weakref.WeakKeyDictionary[Any, tuple[int, int]] = weakref.WeakKeyDictionary()

    def remember(self, prompt_cache: Sequence[Any], last_token: int) -> None:
        """Remember that a cache ended without its last token."""
        offset = getattr(prompt_cache[0], "offset", None)
        if isinstance(offset, int):
            self._ends[prompt_cache[0]] = (offset, last_token)

    def check(self, generation: Generation, prompt_cache: Sequence[Any], prompt: Any) -> None:
        """Note a call that goes on from such a cache without feeding the missing token first."""
        end = self._ends.pop(prompt_cache[0], None)
        if end is not None and end[0] == getattr(prompt_cache[0], "offset", None) and int(prompt[0]) != end[1]:
            generation.meet_hazard(CACHE_REUSE_SHORT)
