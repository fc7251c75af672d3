"""One generation on its way from the hooks to span, metrics and events."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial

from opentelemetry._logs import Logger
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Tracer, set_span_in_context

from otel_specdecode.generation.counts import ContradictionError
from otel_specdecode.generation.faults import report_fault
from otel_specdecode.generation.judgement import hazards_of
from otel_specdecode.generation.observer import Content
from otel_specdecode.generation.record import NANOSECONDS, Ending, Facts, Record, build_record
from otel_specdecode.generation.request import Request
from otel_specdecode.generation.tally import Delta, Tally
from otel_specdecode.generation.timeline import Stretch
from otel_specdecode.host.memory import PeakWatch
from otel_specdecode.telemetry.content import Capture, as_attributes, messages
from otel_specdecode.telemetry.events import emit_content, emit_hazard
from otel_specdecode.telemetry.instruments import Instruments
from otel_specdecode.telemetry.metrics import Convention, GenerationMetrics
from otel_specdecode.telemetry.recorder import Recorder
from otel_specdecode.telemetry.spans import end_span, fail_span, span_name, start_attributes


@dataclass(frozen=True, slots=True)
class Sinks:
    """Where recordings go."""

    tracer: Tracer
    logger: Logger
    instruments: Instruments
    recorder: Recorder
    convention: Convention
    capture: Capture


class OTelTicket:
    """Leave to record one generation under the context of its call."""

    __slots__ = ("_parent", "_sinks", "_under_client_span")

    def __init__(self, sinks: Sinks, parent: Context, under_client_span: bool) -> None:
        """Remember where the call was made.

        Args:
            sinks: Where the recording goes.
            parent: Context of the call.
            under_client_span: An outer GenAI client span already counts the request.
        """
        self._sinks = sinks
        self._parent = parent
        self._under_client_span = under_client_span

    @property
    def captures_content(self) -> bool:
        """Whether the user opted in to prompt and completion text."""
        return self._sinks.capture != "NO_CONTENT"

    def begin(self, request: Request, began: int) -> OTelRecording:
        """Start the span, on the generating thread."""
        wall = time.time_ns()
        span = self._sinks.tracer.start_span(
            span_name(request), self._parent, SpanKind.INTERNAL, start_attributes(request), start_time=wall
        )
        context = set_span_in_context(span, self._parent)
        return OTelRecording(self._sinks, request, span, context, began, wall, self._under_client_span)


class OTelRecording:
    """Folds what the hooks hand over, on the recording thread, and writes it."""

    def __init__(
        self,
        sinks: Sinks,
        request: Request,
        span: Span,
        context: Context,
        began: int,
        wall: int,
        under_client_span: bool,
    ) -> None:
        """Begin to record.

        Args:
            sinks: Where it goes.
            request: What was asked for.
            span: The started span.
            context: Holds that span.
            began: Clock reading (ns) of the first resume.
            wall: Wall clock (ns) at that reading.
            under_client_span: An outer GenAI client span already counts the request.
        """
        self._sinks = sinks
        self._request = request
        self._span = span
        self._context = context
        self._began = began
        self._wall = wall
        self._epoch = sinks.recorder.epoch
        self._under_client_span = under_client_span
        self._tally = Tally(pass_entries=request.mode == "speculative")
        self._folded_until = began
        self._metrics = GenerationMetrics(
            sinks.instruments, request, context, sinks.recorder.pace, sinks.convention, under_client_span
        )
        self._memory: PeakWatch | None = None
        self._contradicted = False
        sinks.recorder.ensure_thread()
        sinks.recorder.put(self._start)

    def progress(self, stretch: Stretch, facts: Facts) -> None:
        """Queue a run of tokens."""
        self._sinks.recorder.put(partial(self._take, stretch, facts))

    def finish(self, stretch: Stretch, facts: Facts, ending: Ending, content: Content | None) -> None:
        """Queue the last run of tokens and the end; in the child of a fork, drop them."""
        if self._epoch == self._sinks.recorder.epoch:
            self._sinks.recorder.put(partial(self._end, stretch, facts, ending, content))

    def child(self) -> OTelTicket:
        """Return a ticket for one prompt of this batch."""
        return OTelTicket(self._sinks, self._context, self._under_client_span)

    def _start(self) -> None:
        self._metrics.started()
        self._memory = PeakWatch()

    def _take(self, stretch: Stretch, facts: Facts) -> None:
        if self._memory is not None:
            self._memory.read()
        seconds = self._seconds_until(stretch.yields[-1]) if stretch.yields else 0.0
        self._write(partial(self._tally.add, stretch), facts, seconds)

    def _end(self, stretch: Stretch, facts: Facts, ending: Ending, content: Content | None) -> None:
        try:
            self._take(stretch, facts)
            held_until = None if ending.kind == "complete" else ending.at
            close = partial(self._tally.end_segment, finished=ending.last_pass_finished, held_until=held_until)
            self._write(close, facts, 0.0)
            record = self._record(facts, ending)
            if record is None:
                fail_span(self._span, ending.error_type)
                self._span.end(self._wall_clock(ending.at))
                return
            hazards = (*facts.hazards, *hazards_of(self._request, record.counts))
            self._metrics.finish(record, hazards)
            self._tell(record, hazards, content)
            end_span(self._span, record, hazards, self._peaks(), self._wall_clock(ending.at))
        finally:
            self._metrics.ended()

    def _record(self, facts: Facts, ending: Ending) -> Record | None:
        if self._contradicted:
            return None
        try:
            return build_record(self._request, self._tally, facts, ending, self._began)
        except ContradictionError as error:
            self._drop(error)
            return None

    def _write(self, fold: partial[Delta], facts: Facts, seconds: float) -> None:
        """Fold and write what it added; from the first contradiction on no number of this generation is written."""
        if self._contradicted:
            return
        try:
            delta = fold()
        except ContradictionError as error:
            self._drop(error)
            return
        self._metrics.progress(delta, facts, seconds)

    def _drop(self, error: ContradictionError) -> None:
        self._contradicted = True
        report_fault(f"the counts of a generation contradict each other and are dropped: {error}", error)

    def _tell(self, record: Record, hazards: tuple[str, ...], content: Content | None) -> None:
        for hazard in hazards:
            emit_hazard(self._sinks.logger, self._context, record.request, hazard)
        if content is None:
            return
        found = messages(content, record.ending.finish_reason)
        if self._sinks.capture != "EVENT_ONLY" and self._span.is_recording():
            self._span.set_attributes(as_attributes(found))
        if self._sinks.capture != "SPAN_ONLY":
            emit_content(self._sinks.logger, self._context, record.request, found)

    def _peaks(self) -> tuple[int, int]:
        return (self._memory or PeakWatch()).peaks()

    def _seconds_until(self, reading: int) -> float:
        passed, self._folded_until = reading - self._folded_until, reading
        return max(passed, 0) / NANOSECONDS

    def _wall_clock(self, reading: int) -> int:
        return self._wall + max(reading - self._began, 0)
