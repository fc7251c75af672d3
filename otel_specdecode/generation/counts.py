"""Counts of passes and tokens that add up, or refuse to exist."""

from __future__ import annotations

from dataclasses import dataclass, field

POSITIONS = 17
"""Positions in a draft that are counted apart: 0 to 15, and all further ones folded into the last."""


class ContradictionError(ValueError):
    """Counts that cannot all be true."""


@dataclass(slots=True)
class Counts:
    """What happened in a generation or in a part of one; parts add up to the whole.

    Attributes:
        tokens: Tokens emitted, EOS and stop-string tokens included.
        prefill_tokens: Tokens that came from the last prefill pass (0 or 1 a completion).
        accepted: Proposed tokens equal to the emitted token at their place.
        rejected: Proposed tokens from the first differing emitted token to the end of their draft.
        unverified: Proposed tokens the stream ended before comparing.
        all_accepted: Finished rounds whose whole draft was accepted; each emitted a bonus token.
        rolled_back: Finished rounds with some tokens accepted and some rejected.
        all_rejected: Finished rounds with no token accepted.
        cut: Rounds the stream ended in before their target token was emitted.
        plain_passes: Decode passes that verified no proposal.
        prefill_passes: Target passes whose input held prompt tokens only.
        draft_passes: Draft model passes that yielded a proposed token, None if the draft hides them.
        draft_calls: Requests for a proposal.
        draft_prefill_passes: Draft model passes that only fed context.
        proposed_by_position: Proposed tokens at each 0-based place of their draft.
        accepted_by_position: Accepted tokens at each 0-based place of their draft.
    """

    tokens: int = 0
    prefill_tokens: int = 0
    accepted: int = 0
    rejected: int = 0
    unverified: int = 0
    all_accepted: int = 0
    rolled_back: int = 0
    all_rejected: int = 0
    cut: int = 0
    plain_passes: int = 0
    prefill_passes: int = 0
    draft_passes: int | None = 0
    draft_calls: int = 0
    draft_prefill_passes: int = 0
    proposed_by_position: list[int] = field(default_factory=lambda: [0] * POSITIONS)
    accepted_by_position: list[int] = field(default_factory=lambda: [0] * POSITIONS)

    @property
    def proposed(self) -> int:
        """Tokens the draft put forward that reached the target."""
        return self.accepted + self.rejected + self.unverified

    @property
    def finished_rounds(self) -> int:
        """Rounds whose target token (correction or bonus) was emitted."""
        return self.all_accepted + self.rolled_back + self.all_rejected

    @property
    def rounds(self) -> int:
        """Decode passes that verified at least one proposed token."""
        return self.finished_rounds + self.cut

    @property
    def rollbacks(self) -> int:
        """Rounds with at least one rejected token, by comparison, whether or not the engine rewound anything."""
        return self.rolled_back + self.all_rejected

    @property
    def decode_passes(self) -> int:
        """Target passes whose input held a generated or proposed token."""
        return self.rounds + self.plain_passes

    @property
    def decode_tokens(self) -> int:
        """Tokens emitted by decode passes."""
        return self.tokens - self.prefill_tokens

    @property
    def accept_rate(self) -> float | None:
        """Accepted over compared tokens; None when none were compared."""
        compared = self.accepted + self.rejected
        return self.accepted / compared if compared else None

    @property
    def acceptance_length(self) -> float | None:
        """Tokens emitted a round: (accepted + finished rounds) / rounds; None without rounds."""
        return (self.accepted + self.finished_rounds) / self.rounds if self.rounds else None

    def add_round(self, proposed: int, emitted: int, finished: bool) -> None:
        """Count one decode pass with a proposal of one token or more.

        Args:
            proposed: Proposed tokens that reached the target.
            emitted: Tokens emitted from this pass.
            finished: Whether the last of them is the target's own (correction or bonus).

        Raises:
            ContradictionError: If more tokens are emitted than the pass can hold.
        """
        accepted = emitted - 1 if finished else emitted
        if not 0 <= accepted <= proposed:
            raise ContradictionError(f"a round of {proposed} proposed tokens cannot have {accepted} accepted")
        missed = proposed - accepted
        self.accepted += accepted
        if not finished:
            self.unverified += missed
            self.cut += 1
        else:
            self.rejected += missed
            if not missed:
                self.all_accepted += 1
            elif accepted:
                self.rolled_back += 1
            else:
                self.all_rejected += 1
        _add_positions(self.proposed_by_position, proposed)
        _add_positions(self.accepted_by_position, accepted)

    def add(self, other: Counts) -> None:
        """Add another part of the same generation."""
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.draft_passes = _sum_known(self.draft_passes, other.draft_passes)
        for mine, theirs in (
            (self.proposed_by_position, other.proposed_by_position),
            (self.accepted_by_position, other.accepted_by_position),
        ):
            for place, count in enumerate(theirs):
                mine[place] += count

    def verify(self) -> None:
        """Hold the identities of the counts.

        Raises:
            ContradictionError: If a count is negative, or tokens, rounds and positions do not add up.
        """
        negative = [name for name in _SUMMED if getattr(self, name) < 0]
        if negative:
            raise ContradictionError(f"negative counts: {', '.join(negative)}")
        if sum(self.proposed_by_position) != self.proposed or sum(self.accepted_by_position) != self.accepted:
            raise ContradictionError("tokens by position do not add up to all tokens")
        from_rounds = self.accepted + self.finished_rounds
        if self.prefill_tokens + from_rounds > self.tokens:
            raise ContradictionError(
                f"{self.tokens} tokens emitted, but {self.prefill_tokens} from prefill and {from_rounds} from rounds"
            )
        if self.decode_tokens - from_rounds > self.plain_passes:
            raise ContradictionError(
                f"{self.decode_tokens - from_rounds} tokens outside rounds from {self.plain_passes} plain passes"
            )


_SUMMED = (
    "tokens",
    "prefill_tokens",
    "accepted",
    "rejected",
    "unverified",
    "all_accepted",
    "rolled_back",
    "all_rejected",
    "cut",
    "plain_passes",
    "prefill_passes",
    "draft_calls",
    "draft_prefill_passes",
)


def _add_positions(positions: list[int], length: int) -> None:
    last = len(positions) - 1
    for place in range(min(length, last)):
        positions[place] += 1
    if length > last:
        positions[last] += length - last


def _sum_known(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
