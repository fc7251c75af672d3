"""A generation in flight: the engine's hooks fill it, and what they collect is handed over in stretches."""

from __future__ import annotations

import time
from collections.abc import Callable

from otel_specdecode.generation.faults import report_fault, report_fault_later
from otel_specdecode.generation.ledger import Ledger
from otel_specdecode.generation.observer import Content, Recording, Ticket
from otel_specdecode.generation.plan import AS_ASKED, planned
from otel_specdecode.generation.record import NANOSECONDS, Ending, Facts
from otel_specdecode.generation.request import Request
from otel_specdecode.generation.timeline import FLUSH_NS, Timeline

Clock = Callable[[], int]
"""A monotonic clock in ns."""

ReadsRequest = Callable[["Generation"], "Request | None"]
"""Reads the request of a generation that begins; it may hold the call's arguments, so it is dropped after use."""


class Generation:
    """One generation in flight.

    Attributes:
        ticket: Leave to record it, taken at the call.
        plan: How it is to run.
        clock: Monotonic clock in ns.
        began: Clock reading (ns) of the first resume, 0 before it.
        timeline: Token times.
        ledger: Passes.
        content: Prompt and completion text, where the user opted in and the engine's hooks see both.
        input_tokens: Tokens of the prompt, cached ones included, once the engine has read it.
        cached_tokens: Prompt tokens whose KV entries are reused.
        hazards: Ids of hazards met so far.
        embedding_dimensions: Length of each vector, of a request for embeddings.
    """

    __slots__ = (
        "_ended",
        "_recording",
        "_request",
        "began",
        "cached_tokens",
        "clock",
        "content",
        "embedding_dimensions",
        "hazards",
        "input_tokens",
        "ledger",
        "plan",
        "ticket",
        "timeline",
    )

    def __init__(self, ticket: Ticket, request: ReadsRequest, clock: Clock = time.perf_counter_ns) -> None:
        """Prepare a generation; nothing is recorded before begin().

        Args:
            ticket: Leave to record it.
            request: Reads the request from the call's arguments, once, at the first resume; None: do not record.
            clock: Monotonic clock in ns.
        """
        self.ticket = ticket
        self.plan = AS_ASKED
        self.clock = clock
        self.began = 0
        self.timeline = Timeline()
        self.ledger = Ledger()
        self.content: Content | None = None
        self.input_tokens: int | None = None
        self.cached_tokens = 0
        self.hazards: list[str] = []
        self.embedding_dimensions: int | None = None
        self._request: ReadsRequest | None = request
        self._recording: Recording | None = None
        self._ended = False

    @property
    def recording(self) -> Recording | None:
        """The recording, None before begin() or if it could not begin."""
        return self._recording

    def begin(self) -> int:
        """Begin to record at the first resume; return its clock reading (ns)."""
        began = self.began = self.clock()
        reads_request, self._request = self._request, None
        try:
            request = None if reads_request is None else reads_request(self)
            if request is not None:
                self._recording = self.ticket.begin(planned(request, self.plan), began, self.clock() - began)
        except Exception as error:
            report_fault("a generation could not be recorded", error)
        return began

    def waited_since(self, accepted: int | None) -> float | None:
        """Return the seconds from when a server took the request (clock reading in ns) to the first resume."""
        return None if accepted is None else max(self.began - accepted, 0) / NANOSECONDS

    def meet_hazard(self, hazard: str) -> None:
        """Note a known engine condition, once."""
        if hazard not in self.hazards:
            self.hazards.append(hazard)

    def hand_over(self, now: int) -> int:
        """Hand over the tokens so far; return the clock reading (ns) at which to do so again."""
        try:
            stretch = self.timeline.take(self.ledger)
            if self._recording is not None:
                self._recording.progress(stretch, self._facts())
        except Exception as error:
            report_fault("a part of a generation could not be recorded", error)
        return now + FLUSH_NS

    def end_segment(self, last_pass_finished: bool, held_until: int | None) -> None:
        """Hand over the rest of one completion among several; further ones follow, or end().

        Args:
            last_pass_finished: Whether the last emitted token is the target's own (correction or bonus).
            held_until: Clock reading (ns) until which the consumer held the last token, None if it did not.
        """
        try:
            stretch = self.timeline.take(self.ledger)
            self.timeline.resumes.clear()
            self.ledger.prefill_end = None
            if self._recording is not None:
                self._recording.end_segment(stretch, self._facts(), last_pass_finished, held_until)
        except Exception as error:
            report_fault_later("the end of a completion could not be recorded", error)

    def end(self, ending: Ending) -> None:
        """Hand over the rest and how the stream ended; only the first call counts."""
        if self._ended:
            return
        self._ended = True
        if self.plan.permit is not None:
            self.plan.permit.release()
        try:
            stretch = self.timeline.take(self.ledger)
            if self._recording is not None:
                self._recording.finish(stretch, self._facts(), ending, self.content)
        except Exception as error:
            report_fault_later("the end of a generation could not be recorded", error)

    def _facts(self) -> Facts:
        return Facts(self.input_tokens, self.cached_tokens, tuple(self.hazards), self.embedding_dimensions)
