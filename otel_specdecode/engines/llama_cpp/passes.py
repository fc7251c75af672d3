"""True pass counts of one token loop: every target and draft pass on llama.cpp goes through `Llama.eval`."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from otel_specdecode.engines.llama_cpp import hazards
from otel_specdecode.engines.llama_cpp.calls import Draft
from otel_specdecode.engines.llama_cpp.engine import synchronize
from otel_specdecode.generation.ledger import Ledger
from otel_specdecode.generation.running import Generation


class PassWatch:
    """Tells prefill, plain and verify passes of one `Llama.generate` apart as they are entered.

    Its first evaluation is the prompt, later ones hold one generated token and what the draft proposed after it.

    Attributes:
        llama: The Llama it runs on.
        draft: What drafts for it, read as the prompt is evaluated.
        kept: Tokens whose KV entries are kept from earlier requests, if a chat handler evaluated a part of the prompt
            itself; None where all the token loop finds is from earlier ones.
        prompt_seen: Whether the prompt has been evaluated.
        plain: The ledger, once a run without a draft is past its prompt: all that is left is to count.
    """

    __slots__ = (
        "__weakref__",
        "_clock",
        "_drafted_at",
        "_drafting",
        "_fed",
        "_generation",
        "_limit",
        "_overtaken",
        "_processors",
        "_proposal",
        "_round_start",
        "_tried",
        "draft",
        "kept",
        "llama",
        "plain",
        "prompt_seen",
    )

    def __init__(self, llama: Any, generation: Generation, limit: int | None, processors: bool) -> None:
        """Watch the passes of one token loop.

        Args:
            llama: The Llama it runs on.
            generation: Whose ledger takes the passes.
            limit: The most tokens the request lets it emit, None without a limit.
            processors: Whether logits processors take part.
        """
        self.llama = llama
        self._generation = generation
        self._clock = generation.clock
        self._limit = limit
        self._processors = processors
        self._proposal: Sequence[int] = ()
        self._round_start = 0
        self._tried = 0
        self._fed = 0
        self._drafted_at = 0
        self._drafting = 0
        self._overtaken: int | None = None
        self.draft = Draft()
        self.kept: int | None = None
        self.prompt_seen = False
        self.plain: Ledger | None = None

    def drafts(self, llama: Any) -> bool:
        """Return whether a Llama may be at work for the draft; of one that hides its model, any may."""
        return self.draft.method == "custom" or any(each is llama for each in self.draft.llamas)

    def lose(self) -> None:
        """Note that a pass went by uncounted."""
        self._generation.ledger.known = False

    def enter_prompt(self, tokens: Sequence[int], draft: Draft) -> None:
        """Note that the prompt is about to be evaluated; of its tokens those that the KV cache lacks are fed."""
        generation, llama = self._generation, self.llama
        ledger = generation.ledger
        self.prompt_seen = True
        self.draft = draft
        if draft.method == "custom":
            ledger.draft_passes = None
        ledger.draft_time = ledger.draft_time or 0
        ledger.prefill_passes += chunks(len(tokens), llama)
        self._undisturbed()
        held = int(llama.n_tokens)
        generation.cached_tokens += held if self.kept is None else min(self.kept, held)
        generation.input_tokens = (generation.input_tokens or 0) + held + len(tokens)
        if draft.method != "none":
            hazards.check_call(generation, llama, draft, held + len(tokens), self._limit, self._processors)

    def leave_prompt(self) -> None:
        """Note that the prompt has been evaluated. A GPU may still be at work; sampling waits for it as well."""
        synchronize(self.llama)
        self._generation.ledger.prefill_end = self._clock()
        if self.draft.method == "none":
            self.plain = self._generation.ledger

    def enter(self, tokens: Sequence[int]) -> None:
        """Note that a decode pass is entered with these tokens: the last one emitted and what follows it."""
        ledger, llama, proposed = self._generation.ledger, self.llama, len(tokens) - 1
        if llama.draft_model is not None:
            ledger.draft_calls += 1
            self._settle(proposed)
            self._keep_draft_time()
            timeline = self._generation.timeline
            self._drafting = max(self._clock() - (timeline.loop_resumed or timeline.resumes[-1]), 0)
        if not self.draft.speculates:
            ledger.plain_passes += 1
            if proposed:  # sent by the caller, or proposed by a draft that was not there at the beginning
                ledger.known = False
            return
        if ledger.sent or not self._undisturbed():  # what a caller sends is verified as if it were proposed
            ledger.known = False
        if proposed >= llama.n_batch:
            hazards.tell_abort(self._generation, llama, proposed)
        emitted = self._generation.timeline.emitted()
        ledger.open_pass(emitted, proposed)
        self._round_start = emitted
        self._proposal = tokens[1:]

    def enter_draft(self, llama: Any, tokens: Sequence[int]) -> None:
        """Note that the draft's Llama is about to evaluate tokens: of several batches only the last yields a token."""
        passes = chunks(len(tokens), llama)
        if passes and self.draft.method == "draft_model":
            self._tried += 1
            self._fed += passes - 1

    def finished(self, last_token: int | None) -> bool:
        """Take the end; return whether the last emitted token is the target's own (correction or bonus)."""
        self._settle(0)
        self._keep_draft_time()
        overtaken = self._overtaken
        if self.draft.speculates and overtaken is not None and self._generation.timeline.emitted() > overtaken:
            self.lose()
        if last_token is None or not self.draft.speculates:
            return last_token is not None
        place = self._generation.timeline.emitted() - self._round_start - 1
        if place < 0:
            return False
        return place >= len(self._proposal) or last_token != self._proposal[place]

    def _undisturbed(self) -> bool:
        """Take the Llama over; return whether no other loop ever did since this one began.

        What a loop emits after another one of its Llama has made a pass was verified against that one's tokens.
        """
        other = _latest.get(id(self.llama))
        if other is not None and other is not self and other._overtaken is None:
            other._overtaken = other._generation.timeline.emitted()
        _latest[id(self.llama)] = self
        return self._overtaken is None

    def _keep_draft_time(self) -> None:
        """Keep the time of drafting for the last pass if that emitted something: decode ends with the last token."""
        ledger, emitted = self._generation.ledger, self._generation.timeline.emitted()
        if emitted > self._drafted_at:
            ledger.draft_time = (ledger.draft_time or 0) + self._drafting
        self._drafted_at = emitted
        self._drafting = 0

    def _settle(self, proposed: int) -> None:
        """Tell the draft's passes apart: those that yielded a proposed token, and those that only fed context."""
        ledger = self._generation.ledger
        yielded = min(self._tried, proposed)
        if ledger.draft_passes is not None:
            ledger.draft_passes += yielded
        ledger.draft_prefill_passes += self._fed + self._tried - yielded
        self._tried = self._fed = 0


_latest: weakref.WeakValueDictionary[int, PassWatch] = weakref.WeakValueDictionary()
"""The loop that made the last pass on each Llama, by its identity; two loops of one Llama share its state."""


def chunks(tokens: int, llama: Any) -> int:
    """Return how many passes `Llama.eval` makes for a number of tokens: one a batch, none for no token."""
    return -(-tokens // int(llama.n_batch))
