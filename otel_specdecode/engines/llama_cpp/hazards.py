"""Known llama-cpp-python conditions that make speculation wrong, unsafe or pointless.

Two of them end the process inside the engine, where no event is delivered any more: those are told on stderr before
the engine is called. What the engine does is never changed.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from functools import partial
from typing import Any

from otel_specdecode.engines.llama_cpp.calls import Draft
from otel_specdecode.engines.llama_cpp.engine import MOST_VOCABULARY_DIFFERENCE, keeps_all_logits, keeps_state
from otel_specdecode.generation.faults import report_fault
from otel_specdecode.generation.running import Generation

DRAFT_EXCEEDS_BATCH = "draft_exceeds_batch"
SCORES_OVERFLOW = "scores_overflow"
LOGITS_NOT_KEPT = "logits_not_kept"
RECURRENT_TARGET = "recurrent_target"
DRAFT_NOT_TRIMMABLE = "draft_not_trimmable"
CONTEXT_NOT_PADDED = "context_not_padded"
VOCAB_MISMATCH = "vocab_mismatch"
PROCESSORS_WITH_DRAFT = "processors_with_draft"

_told: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()


def check_call(
    generation: Generation, llama: Any, draft: Draft, prompt: int, limit: int | None, processors: bool
) -> None:
    """Note what can be seen of a speculative call before its prompt is evaluated.

    Args:
        generation: Takes the hazards.
        llama: The target.
        draft: What drafts for it.
        prompt: Tokens of the prompt.
        limit: The most tokens that may be emitted, None without a limit.
        processors: Whether logits processors take part; under a draft they are handed the tokens that are proposed but
            not yet verified as well.
    """
    if not draft.speculates:
        return
    if processors:
        generation.meet_hazard(PROCESSORS_WITH_DRAFT)
    for check in (
        partial(_check_aborts, generation, llama, draft),
        partial(_check_space, generation, llama, draft, prompt, limit),
        partial(_check_models, generation, llama, draft),
    ):
        try:
            check()
        except Exception as error:
            report_fault("a hazard of a call could not be checked", error)


def tell_abort(generation: Generation, llama: Any, proposed: int) -> None:
    """Tell that a round is about to abort the process: it does not fit in one batch."""
    generation.meet_hazard(DRAFT_EXCEEDS_BATCH)
    _tell(llama, DRAFT_EXCEEDS_BATCH, _too_long(f"{proposed} proposed tokens", proposed, llama), again=True)


def _check_aborts(generation: Generation, llama: Any, draft: Draft) -> None:
    if not keeps_all_logits(llama):
        generation.meet_hazard(LOGITS_NOT_KEPT)
        _tell(
            llama,
            LOGITS_NOT_KEPT,
            "a draft was set on a Llama that was loaded without one and without logits_all=True; llama.cpp will abort "
            "the process at the first proposal. Load it with logits_all=True.",
        )
    if draft.length is not None and draft.length >= llama.n_batch:
        generation.meet_hazard(DRAFT_EXCEEDS_BATCH)
        _tell(llama, DRAFT_EXCEEDS_BATCH, _too_long(f"a draft of up to {draft.length} tokens", draft.length, llama))


def _check_space(generation: Generation, llama: Any, draft: Draft, prompt: int, limit: int | None) -> None:
    """Note arrays that are shorter than what the request may come to, proposals included."""
    context = int(llama.n_ctx())
    reach = context if limit is None else min(prompt + limit - 1 + (draft.length or 0), context)
    if llama.scores.shape[0] < reach:
        generation.meet_hazard(SCORES_OVERFLOW)
    if llama.input_ids.shape[0] < reach:
        generation.meet_hazard(CONTEXT_NOT_PADDED)


def _check_models(generation: Generation, llama: Any, draft: Draft) -> None:
    if keeps_state(llama):
        generation.meet_hazard(RECURRENT_TARGET)
    if draft.llama is not None:
        if keeps_state(draft.llama):
            generation.meet_hazard(DRAFT_NOT_TRIMMABLE)
        if abs(draft.llama.n_vocab() - llama.n_vocab()) > MOST_VOCABULARY_DIFFERENCE:
            generation.meet_hazard(VOCAB_MISMATCH)


def _too_long(what: str, proposed: int, llama: Any) -> str:
    return (
        f"{what} and the token before them need n_batch >= {proposed + 1}, it is {int(llama.n_batch)}; llama.cpp "
        "will abort the process. Use a shorter draft or a larger n_batch."
    )


def _tell(llama: Any, hazard: str, text: str, *, again: bool = False) -> None:
    """Write to stderr at once: once for each Llama and hazard, or again where it is certain."""
    told = _told.setdefault(llama, set())
    if hazard in told and not again:
        return
    told.add(hazard)
    with contextlib.suppress(Exception):  # there may be no stderr, or a closed one
        sys.stderr.write(f"otel-specdecode: hazard {hazard}: {text}\n")
        sys.stderr.flush()
