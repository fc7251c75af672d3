"""Folds the stretches of a stream, as they come, into counts, times and waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import sub

from otel_specdecode.generation.counts import ContradictionError, Counts
from otel_specdecode.generation.ledger import PassCounts
from otel_specdecode.generation.timeline import Stretch
from otel_specdecode.generation.waits import Waits


@dataclass(slots=True)
class Delta:
    """What one stretch added.

    Attributes:
        counts: Tokens and closed passes; a pass still open is counted by the stretch that closes it.
        pass_times: Duration (ns) of each closed decode pass with its drafting, without the consumer's time.
        pass_tokens: Tokens that each of those passes emitted.
        gaps: Time (ns) from each piece of text (a token, where every token is one) to the next, the consumer's time
            included.
    """

    counts: Counts = field(default_factory=Counts)
    pass_times: list[int] = field(default_factory=list)
    pass_tokens: list[int] = field(default_factory=list)
    gaps: Sequence[int] = ()


@dataclass(slots=True)
class _OpenPass:
    leads: bool
    """Whether it yields the first token of its segment, so that its time holds the prefill."""
    proposed: int
    emitted: int = 0
    time: int = 0


class Tally:
    """Running totals of one generation.

    Several completions of one request are segments: their counts and times add, the time to the first token is the
    first one's, and no gap spans two of them. Times are in ns.

    Attributes:
        totals: Counts so far.
        waits: Waits from resume to yield of every token but a segment's first.
        time_to_first_token: First resume to first token, None without a token.
        prefill: First resume to end of prefill; None where an engine does not tell the two apart.
        decode: End of prefill to last token without the consumer's time; from the first token where prefill is None.
        consumer: Time the consumer held the stream between tokens.
        draft: Time spent on drafting, None where it cannot be seen.
        first_chunk: Clock reading at which the first piece of text was handed out, None before it.
        after_first_burst: Part of decode after the first burst (an AR run's first token, else the first pass).
        tokens_after_first_burst: Tokens that came in that time.
    """

    __slots__ = (
        "_chunked",
        "_entries",
        "_last_chunk",
        "_last_yield",
        "_open",
        "_passes",
        "_prefill_in_wait",
        "_segment_start",
        "after_first_burst",
        "consumer",
        "decode",
        "draft",
        "first_chunk",
        "prefill",
        "time_to_first_token",
        "tokens_after_first_burst",
        "totals",
        "waits",
    )

    def __init__(self, *, pass_entries: bool) -> None:
        """Start with nothing.

        Args:
            pass_entries: Whether the engine reports each decode pass (speculative runs); if not, every token after
                a segment's first is a pass of its own.
        """
        self.totals = Counts()
        self.waits = Waits()
        self.time_to_first_token: int | None = None
        self.prefill: int | None = None
        self.decode = 0
        self.consumer = 0
        self.draft: int | None = None
        self.first_chunk: int | None = None
        self.after_first_burst = 0
        self.tokens_after_first_burst = 0
        self._entries = pass_entries
        self._passes = PassCounts()
        self._chunked = False
        self._last_chunk: int | None = None
        self._open_segment()

    def add(self, stretch: Stretch) -> Delta:
        """Fold the next stretch and return what it added.

        Raises:
            ContradictionError: If tokens and passes do not fit.
        """
        delta = Delta()
        waits = list(map(sub, stretch.yields, stretch.resumes))
        if waits:
            self._time(stretch, waits)
        self._chunked = stretch.chunks is not None
        delta.gaps = self._chunk_gaps(stretch.yields if stretch.chunks is None else stretch.chunks)
        if self._entries:
            self._close_passes(stretch, waits, delta)
        else:
            delta.pass_times = self._single_token_passes(waits, delta.counts)
            delta.pass_tokens = [1] * len(delta.pass_times)
        delta.counts.tokens = len(waits)
        self._add_passes(stretch.passes, delta.counts)
        self.totals.add(delta.counts)
        return delta

    def end_segment(self, *, finished: bool, held_until: int | None = None) -> Delta:
        """Close the pass that is still open; the next stretch begins another completion.

        Args:
            finished: Whether the last emitted token is the target's own (correction or bonus).
            held_until: Clock reading at which a stream that did not complete was closed or failed.

        Raises:
            ContradictionError: If tokens and passes do not fit.
        """
        delta = Delta()
        if self._open is not None:
            self._close(self._open, finished, delta)
            self.totals.add(delta.counts)
        if held_until is not None and self._last_yield is not None:
            self.consumer += max(held_until - self._last_yield, 0)
        self._open_segment()
        return delta

    def _open_segment(self) -> None:
        self._open: _OpenPass | None = None
        self._segment_start = self.totals.tokens
        if not self._chunked:
            self._last_chunk = None
        self._prefill_in_wait: int | None = None
        self._last_yield: int | None = None

    def _chunk_gaps(self, chunks: list[int]) -> list[int]:
        if not chunks:
            return []
        if self.first_chunk is None:
            self.first_chunk = chunks[0]
        gaps = list(map(sub, chunks[1:], chunks))
        if self._last_chunk is not None:
            gaps.insert(0, chunks[0] - self._last_chunk)
        self._last_chunk = chunks[-1]
        return gaps

    def _time(self, stretch: Stretch, waits: list[int]) -> None:
        resumes, yields = stretch.resumes, stretch.yields
        decoding = sum(waits)
        if self._last_yield is None:
            if self.time_to_first_token is None:
                self.time_to_first_token = waits[0]
            if stretch.prefill_end is None:
                decoding -= waits[0]
            else:
                self._prefill_in_wait = min(max(stretch.prefill_end - resumes[0], 0), waits[0])
                self.prefill = (self.prefill or 0) + self._prefill_in_wait
                decoding -= self._prefill_in_wait
            self.waits.extend(waits[1:])
            held = sum(resumes[1:]) - sum(yields[:-1])
        else:
            self.waits.extend(waits)
            held = sum(resumes) - sum(yields[:-1]) - self._last_yield
        self.decode += decoding
        self.consumer += held
        self._last_yield = yields[-1]

    def _single_token_passes(self, waits: list[int], counts: Counts) -> list[int]:
        leading = waits and self.totals.tokens == self._segment_start
        times = waits[1:] if leading else waits
        counts.prefill_tokens = 1 if leading else 0
        self.after_first_burst += sum(times)
        self.tokens_after_first_burst += len(times)
        return times

    def _close_passes(self, stretch: Stretch, waits: list[int], delta: Delta) -> None:
        """Give each token to the pass it came from and close every pass but the last."""
        taken = 0
        for start, proposed in zip(stretch.starts, stretch.proposed, strict=True):
            upto = start - self.totals.tokens
            self._give(waits[taken:upto], delta.counts)
            taken = upto
            if self._open is not None:
                self._close(self._open, True, delta)
            self._open = _OpenPass(start == self._segment_start, proposed)
        self._give(waits[taken:], delta.counts)

    def _give(self, waits: list[int], counts: Counts) -> None:
        if self._open is None:
            counts.prefill_tokens += len(waits)
            if self.totals.tokens - self._segment_start + counts.prefill_tokens > 1:
                raise ContradictionError("more than one token came before the first decode pass")
        else:
            self._open.emitted += len(waits)
            self._open.time += sum(waits)

    def _close(self, closing: _OpenPass, finished: bool, delta: Delta) -> None:
        """Count a pass; time it, unless it emitted nothing or cannot be told from prefill."""
        if closing.proposed:
            delta.counts.add_round(closing.proposed, closing.emitted, finished and closing.emitted > 0)
        else:
            delta.counts.plain_passes += 1
        if not closing.emitted:
            return
        time = closing.time
        if not closing.leads:
            self.after_first_burst += time
            self.tokens_after_first_burst += closing.emitted
        elif self._prefill_in_wait is None:
            return
        else:
            time -= self._prefill_in_wait
        delta.pass_times.append(time)
        delta.pass_tokens.append(closing.emitted)

    def _add_passes(self, passes: PassCounts, counts: Counts) -> None:
        if not passes.known:
            raise ContradictionError("tokens came from passes that were not seen")
        before = self._passes
        counts.prefill_passes = passes.prefill - before.prefill
        counts.plain_passes += passes.plain - before.plain
        counts.draft_calls = passes.draft_calls - before.draft_calls
        counts.draft_prefill_passes = passes.draft_prefill - before.draft_prefill
        if passes.draft is None or before.draft is None:
            counts.draft_passes = None
        else:
            counts.draft_passes = passes.draft - before.draft
        self.draft = passes.draft_time
        self._passes = passes
