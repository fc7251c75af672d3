"""The edge table: what one decode pass proposes and emits, how it ends, and what that counts as.

Shared by the arithmetic's tests and by both engines' adapters.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Edge:
    """One decode pass of a speculative run.

    Attributes:
        name: What the row is about.
        draft: Proposed tokens, as letters.
        emitted: Emitted tokens, as letters.
        finished: Whether the last emitted token is the target's own (correction or bonus).
        accepted: Expected.
        rejected: Expected.
        unverified: Expected.
        outcome: Expected outcome of the round; None for a plain pass.
    """

    name: str
    draft: str
    emitted: str
    finished: bool
    accepted: int
    rejected: int
    unverified: int
    outcome: str | None


EDGES = (
    Edge("whole draft accepted, bonus emitted", "abcd", "abcde", True, 4, 0, 0, "all_accepted"),
    Edge("first mismatch in the middle", "abcd", "abX", True, 2, 2, 0, "rolled_back"),
    Edge("mismatch at the last place", "abcd", "abcX", True, 3, 1, 0, "rolled_back"),
    Edge("nothing accepted", "abcd", "X", True, 0, 4, 0, "all_rejected"),
    Edge("one proposed, rejected", "a", "X", True, 0, 1, 0, "all_rejected"),
    Edge("one proposed, accepted with bonus", "a", "ab", True, 1, 0, 0, "all_accepted"),
    Edge("EOS accepted inside the draft", "abcd", "ab", False, 2, 0, 2, "cut"),
    Edge("max_tokens after the whole draft, bonus dropped", "abcd", "abcd", False, 4, 0, 0, "cut"),
    Edge("closed before the first token", "abcd", "", False, 0, 0, 4, "cut"),
    Edge("nothing proposed: a plain pass", "", "X", True, 0, 0, 0, None),
)
