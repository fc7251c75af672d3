"""The passes of one generation, append only, written by an engine's hooks on the generating thread."""

from __future__ import annotations

from typing import NamedTuple


class PassCounts(NamedTuple):
    """Passes so far.

    Attributes:
        prefill: Target passes whose input holds prompt tokens only.
        plain: Decode passes of an autoregressive run, which the engine reports as a number.
        draft: Draft model passes that yielded a proposed token; None if the draft hides them.
        draft_calls: Requests for a proposal, empty answers included.
        draft_prefill: Draft model passes that only fed context.
        known: False if the engine's hooks could not see the passes: the counts are then not facts.
        draft_time: Time (ns) from a token asked for to the entry of the next decode pass, in which the draft was asked;
            None on engines where that cannot be seen.
    """

    prefill: int = 0
    plain: int = 0
    draft: int | None = 0
    draft_calls: int = 0
    draft_prefill: int = 0
    known: bool = True
    draft_time: int | None = None


class Ledger:
    """Decode passes of a speculative run one by one, all other passes as counts.

    Attributes:
        starts: Tokens emitted before each decode pass since the last hand-over.
        proposed: Proposed tokens each of those passes verifies; 0 for a plain pass.
        prefill_end: Clock reading (ns) at the end of prefill, None where it cannot be told apart.
        known: False if the engine's hooks could not see the passes.
        draft_time: Time (ns) spent on drafting, None on engines where that cannot be seen.
        sent: Whether the caller sent a value into the engine's generator.
    """

    __slots__ = (
        "draft_calls",
        "draft_passes",
        "draft_prefill_passes",
        "draft_time",
        "known",
        "plain_passes",
        "prefill_end",
        "prefill_passes",
        "proposed",
        "sent",
        "starts",
    )

    def __init__(self) -> None:
        """Start with nothing passed."""
        self.starts: list[int] = []
        self.proposed: list[int] = []
        self.prefill_passes = 0
        self.plain_passes = 0
        self.draft_passes: int | None = 0
        self.draft_calls = 0
        self.draft_prefill_passes = 0
        self.prefill_end: int | None = None
        self.known = True
        self.draft_time: int | None = None
        self.sent = False

    def open_pass(self, emitted: int, proposed: int) -> None:
        """Note that a decode pass of a speculative run begins.

        Args:
            emitted: Tokens emitted so far.
            proposed: Proposed tokens that reach the target in this pass.
        """
        self.starts.append(emitted)
        self.proposed.append(proposed)

    def counts(self) -> PassCounts:
        """Return the counts so far."""
        return PassCounts(
            self.prefill_passes,
            self.plain_passes,
            self.draft_passes,
            self.draft_calls,
            self.draft_prefill_passes,
            self.known,
            self.draft_time,
        )
