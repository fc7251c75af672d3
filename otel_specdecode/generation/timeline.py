"""When each token was asked for and when it came: two clock readings a token, nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from otel_specdecode.generation.ledger import Ledger, PassCounts

CHUNK_TOKENS = 256
"""Tokens kept as Python integers before they are handed over: bounds the memory of a fast stream."""

FLUSH_NS = 1_000_000_000
"""A stream hands over what it has about once a second, so that a long one is not dark until it ends."""


@dataclass(slots=True)
class Stretch:
    """A run of consecutive tokens, handed from the generating thread to whoever folds them.

    Attributes:
        resumes: Clock reading (ns) at which each token was asked for.
        yields: Clock reading (ns) at which each token came.
        starts: Tokens emitted before each decode pass that began in this stretch.
        proposed: Proposed tokens of each of those passes.
        passes: Counts of all passes since the start of the generation.
        prefill_end: Clock reading (ns) at the end of prefill, None as long as it is not known.
        chunks: Clock reading (ns) at which each piece of text was handed out; None where every token is one.
    """

    resumes: list[int]
    yields: list[int]
    starts: list[int]
    proposed: list[int]
    passes: PassCounts
    prefill_end: int | None
    chunks: list[int] | None = None


class Timeline:
    """Clock readings of the tokens not yet handed over.

    Attributes:
        resumes: Reading at which each token was asked for; one longer than yields while a token is awaited.
        yields: Reading at which each token came.
        handed_over: Tokens in earlier stretches.
        chunks: Reading at which each piece of text was handed out, on engines where that is not once a token.
        loop_resumed: Reading at which the engine's token loop was resumed last, where that is later than the token was
            asked for because the engine works on the text in between.
    """

    __slots__ = ("_last_handed_over", "chunks", "handed_over", "loop_resumed", "resumes", "yields")

    def __init__(self) -> None:
        """Start with no token."""
        self.resumes: list[int] = []
        self.yields: list[int] = []
        self.handed_over = 0
        self.chunks: list[int] | None = None
        self.loop_resumed: int | None = None
        self._last_handed_over: int | None = None

    @property
    def last_yield(self) -> int | None:
        """Clock reading (ns) at which the last token came, None before the first."""
        return self.yields[-1] if self.yields else self._last_handed_over

    def emitted(self) -> int:
        """Return the number of tokens emitted so far."""
        return self.handed_over + len(self.yields)

    def take(self, ledger: Ledger) -> Stretch:
        """Hand over everything up to the last token, with the ledger's entries, and go on with new lists."""
        resumes, yields = self.resumes, self.yields
        arrived = len(yields)
        self._last_handed_over = self.last_yield
        self.resumes, self.yields = resumes[arrived:], []
        self.handed_over += arrived
        del resumes[arrived:]
        chunks = self.chunks
        if chunks is not None:
            self.chunks = []
        stretch = Stretch(resumes, yields, ledger.starts, ledger.proposed, ledger.counts(), ledger.prefill_end, chunks)
        ledger.starts, ledger.proposed = [], []
        return stretch
