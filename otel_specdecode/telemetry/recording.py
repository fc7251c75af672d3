"""One generation on its way from the hooks to span, metrics and events."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial

from opentelemetry._logs import Logger
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Tracer, set_span_in_context

from otel_specdecode.generation.bursts import Source
from otel_specdecode.generation.counts import ContradictionError
from otel_specdecode.generation.faults import report_fault
from otel_specdecode.generation.judgement import hazards_of
from otel_specdecode.generation.observer import Content
from otel_specdecode.generation.plan import Who, planner
from otel_specdecode.generation.record import NANOSECONDS, Ending, Facts, Record, build_record
from otel_specdecode.generation.request import Request
from otel_specdecode.generation.tally import Delta, Tally
from otel_specdecode.generation.timeline import Stretch
from otel_specdecode.host.state import HostState
from otel_specdecode.identity.declared import declared
from otel_specdecode.identity.manifest import Manifest, Pair, is_told, manifest_of, vocabularies_differ
from otel_specdecode.telemetry.bursts import BurstWatch, source_of
from otel_specdecode.telemetry.content import Capture, as_attributes, messages
from otel_specdecode.telemetry.events import emit_content, emit_hazard, emit_manifest
from otel_specdecode.telemetry.host_metrics import Watch
from otel_specdecode.telemetry.instruments import Instruments
from otel_specdecode.telemetry.metrics import Convention, GenerationMetrics
from otel_specdecode.telemetry.names import Attr
from otel_specdecode.telemetry.recorder import Recorder
from otel_specdecode.telemetry.running import configuration
from otel_specdecode.telemetry.spans import end_span, span_name, start_attributes
from otel_specdecode.telemetry.surroundings import Caller, Surroundings
from otel_specdecode.telemetry.tenancy import Tenancy

VOCAB_MISMATCH = "vocab_mismatch"
"""Hazard of a target and a draft whose tokens of one id differ, which their files alone show."""


@dataclass(frozen=True, slots=True)
class Sinks:
    """Where recordings go, and how they are to be written."""

    tracer: Tracer
    logger: Logger
    instruments: Instruments
    recorder: Recorder
    convention: Convention
    capture: Capture
    tenancy: Tenancy
    watch: Watch
    bursts: BurstWatch


class OTelTicket:
    """Leave to record one generation under the context of its call."""

    __slots__ = ("_parent", "_sinks", "_under_client_span")

    def __init__(self, sinks: Sinks, parent: Context | OTelRecording, under_client_span: bool) -> None:
        """Remember where the call was made.

        Args:
            sinks: Where the recording goes.
            parent: Context of the call, or the recording of the batch that it is part of.
            under_client_span: An outer GenAI client span already counts the request.
        """
        self._sinks = sinks
        self._parent = parent
        self._under_client_span = under_client_span

    @property
    def captures_content(self) -> bool:
        """Whether the user opted in to prompt and completion text."""
        return self._sinks.capture != "NO_CONTENT"

    @property
    def who(self) -> Who:
        """On whose behalf the call was made, by the baggage of its context."""
        tenancy, parent = self._sinks.tenancy, self._parent
        context = parent.context if isinstance(parent, OTelRecording) else parent
        return Who(tenancy.tenant(context), tenancy.session(context))

    def begin(self, request: Request, began: int, ago: int) -> OTelRecording:
        """Begin to record; the recording thread starts the span, with the time of the first resume."""
        wall = time.time_ns() - ago
        recording = OTelRecording(self._sinks, request, self._parent, began, wall, self._under_client_span)
        self._sinks.recorder.ensure_thread()
        self._sinks.recorder.put(recording.start)
        return recording


@dataclass(slots=True)
class _Started:
    """What the recording thread holds of a generation whose span is started.

    `who` is on whose behalf it runs, which a program that planned it may have named itself.
    """

    span: Span
    context: Context
    tally: Tally
    metrics: GenerationMetrics
    caller: Caller
    source: Source
    folded_until: int
    who: Who
    manifest: Manifest | None = None
    mismatched: bool = False
    contradicted: bool = False


class OTelRecording:
    """Takes what the hooks hand over, on any thread; folds and writes it on the recording thread, in that order."""

    __slots__ = (
        "_began",
        "_declared",
        "_epoch",
        "_memory",
        "_parent",
        "_request",
        "_sinks",
        "_started",
        "_under_client_span",
        "_wall",
    )

    def __init__(
        self,
        sinks: Sinks,
        request: Request,
        parent: Context | OTelRecording,
        began: int,
        wall: int,
        under_client_span: bool,
    ) -> None:
        """Note when a generation began.

        Args:
            sinks: Where it goes.
            request: What was asked for.
            parent: Context of the call, or the recording of the batch that it is part of.
            began: Clock reading (ns) of the first resume.
            wall: Time of day (ns since the epoch) of it.
            under_client_span: An outer GenAI client span already counts the request.
        """
        self._sinks = sinks
        self._request = request
        self._parent = parent
        self._began = began
        self._wall = wall
        self._epoch = sinks.recorder.epoch
        self._under_client_span = under_client_span
        self._declared = declared()
        self._memory = sinks.watch.host.sampler.begin()
        self._started: _Started | None = None

    def progress(self, stretch: Stretch, facts: Facts) -> None:
        """Queue a run of tokens; in the child of a fork, drop it."""
        recorder = self._sinks.recorder
        if self._epoch == recorder.epoch and not recorder.put_unless_full(partial(self._take, stretch, facts)):
            recorder.put(self._miss)

    def end_segment(self, stretch: Stretch, facts: Facts, last_pass_finished: bool, held_until: int | None) -> None:
        """Queue the last run of tokens of one completion; in the child of a fork, drop it."""
        if self._epoch == self._sinks.recorder.epoch:
            self._sinks.recorder.put(partial(self._end_segment, stretch, facts, last_pass_finished, held_until))

    def finish(self, stretch: Stretch, facts: Facts, ending: Ending, content: Content | None) -> None:
        """Queue the last run of tokens and the end; in the child of a fork, drop them."""
        if self._epoch == self._sinks.recorder.epoch:
            self._sinks.watch.host.sampler.end(self._memory)
            self._sinks.recorder.put(partial(self._end, stretch, facts, ending, content, self._sinks.watch.state()))

    def child(self) -> OTelTicket:
        """Return a ticket for one prompt of this batch."""
        return OTelTicket(self._sinks, self, self._under_client_span)

    @property
    def context(self) -> Context:
        """The context that holds the span; on the recording thread, after start()."""
        if self._started is not None:
            return self._started.context
        return self._parent.context if isinstance(self._parent, OTelRecording) else self._parent

    def start(self) -> None:
        """Start the span and count the request, on the recording thread."""
        sinks, request, parent = self._sinks, self._request, self.context
        sinks.watch.host.sampler.follow(self._memory)
        sinks.watch.state()  # in the child of a fork this begins to read the machine, not where tokens are made
        span = sinks.tracer.start_span(
            span_name(request), parent, SpanKind.INTERNAL, start_attributes(request), start_time=self._wall
        )
        context = set_span_in_context(span, parent)
        caller = Caller(self._declared.run_id, sinks.tenancy.tenant(parent), sinks.tenancy.session(parent))
        tenant = sinks.instruments.tenants.label(caller.tenant) if caller.tenant and sinks.tenancy.on_metrics else None
        metrics = GenerationMetrics(
            sinks.instruments, request, context, sinks.recorder.pace, sinks.convention, self._under_client_span, tenant
        )
        tally = Tally(pass_entries=request.mode == "speculative")
        source = source_of(span, caller.tenant)
        who = Who(caller.tenant, caller.session) if request.who is None else Who(*request.who)
        self._started = _Started(span, context, tally, metrics, caller, source, self._began, who)
        metrics.started()

    def _take(self, stretch: Stretch, facts: Facts) -> None:
        if self._started is not None:
            self._fold(self._started, stretch, facts)

    def _end_segment(self, stretch: Stretch, facts: Facts, last_pass_finished: bool, held_until: int | None) -> None:
        started = self._started
        if started is not None:
            self._fold(started, stretch, facts)
            close = partial(started.tally.end_segment, finished=last_pass_finished, held_until=held_until)
            self._write(started, close, facts, 0.0)

    def _miss(self) -> None:
        """A part of this generation was dropped: what is left would be a wrong number."""
        if self._started is not None:
            self._started.contradicted = True

    def _end(self, stretch: Stretch, facts: Facts, ending: Ending, content: Content | None, host: HostState) -> None:
        started = self._started
        if started is None:
            return
        record, hazards = None, facts.hazards
        try:
            self._identify(started)
            self._fold(started, stretch, facts)
            record = self._close(started, facts, ending)
            if record is not None:
                hazards = self._hazards(started, facts, record)
                started.metrics.finish(record, hazards)
                plans = planner()
                if plans is not None:
                    plans.finish(record, started.who, started.source.trace)
                self._tell(started, record, hazards, content)
        except Exception as error:
            report_fault("the end of a generation could not be recorded in full", error)
        finally:
            started.metrics.ended()
            end_time = self._wall + max(ending.at - self._began, 0)
            if self._sinks.bursts.mark(self._request, started.source):
                started.span.set_attribute(Attr.SPECDECODE_IN_BURST, True)
            end_span(started.span, record, ending, hazards, self._surroundings(started, host), end_time)

    def _identify(self, started: _Started) -> None:
        """Tell what runs, at the end: by then the engine's hooks have had the files read."""
        pair = self._request.pair
        try:
            if not isinstance(pair, Pair) or not is_told(pair):
                return
            manifest = started.manifest = manifest_of(pair, self._declared)
            if self._request.mode == "speculative" and pair.target is not None and pair.draft is not None:
                started.mismatched = vocabularies_differ(pair.target.identity(), pair.draft.identity())
            if self._request.batch_size is None and self._request.decodes:
                self._sinks.instruments.configure(*configuration(self._request, manifest))
            if self._sinks.instruments.first_told(manifest.id):
                profile = self._sinks.watch.host.machine().profile
                emit_manifest(self._sinks.logger, started.context, self._request, manifest, started.caller, profile)
        except Exception as error:
            report_fault("what runs could not be told", error)

    def _hazards(self, started: _Started, facts: Facts, record: Record) -> tuple[str, ...]:
        found = [*facts.hazards, *hazards_of(self._request, record.counts)]
        if started.mismatched:
            found.append(VOCAB_MISMATCH)
        return tuple(dict.fromkeys(found))

    def _surroundings(self, started: _Started, host: HostState) -> Surroundings:
        manifest_id = None if started.manifest is None else started.manifest.id
        watched = self._sinks.watch.host
        peaks = watched.sampler.peaks(self._memory)
        return Surroundings(started.caller, manifest_id, watched.machine().profile, host, peaks)

    def _fold(self, started: _Started, stretch: Stretch, facts: Facts) -> None:
        seconds = 0.0
        if stretch.yields:
            seconds = max(stretch.yields[-1] - started.folded_until, 0) / NANOSECONDS
            started.folded_until = stretch.yields[-1]
        self._write(started, partial(started.tally.add, stretch), facts, seconds)

    def _close(self, started: _Started, facts: Facts, ending: Ending) -> Record | None:
        held_until = None if ending.kind == "complete" else ending.at
        close = partial(started.tally.end_segment, finished=ending.last_pass_finished, held_until=held_until)
        self._write(started, close, facts, 0.0)
        if started.contradicted:
            return None
        try:
            return build_record(self._request, started.tally, facts, ending, self._began)
        except ContradictionError as error:
            self._drop(started, error)
            return None

    def _write(self, started: _Started, fold: partial[Delta], facts: Facts, seconds: float) -> None:
        """Fold and write what it added; from the first contradiction on no number of this generation is written."""
        if started.contradicted:
            return
        try:
            delta = fold()
        except ContradictionError as error:
            self._drop(started, error)
            return
        started.metrics.progress(delta, facts, seconds)
        plans = planner()
        if plans is not None:
            plans.progress(self._request, started.who, delta, facts.input_tokens)
        if self._request.mode == "speculative":
            at = self._wall + max(started.folded_until - self._began, 0)
            decode, labels = sum(delta.pass_times) / NANOSECONDS, started.metrics.base
            self._sinks.bursts.observe(at, delta.counts, decode, self._request, started.source, labels, started.context)

    def _drop(self, started: _Started, error: ContradictionError) -> None:
        started.contradicted = True
        report_fault("the counts of a generation contradict each other and are dropped", error, detail=str(error))

    def _tell(self, started: _Started, record: Record, hazards: tuple[str, ...], content: Content | None) -> None:
        for hazard in hazards:
            emit_hazard(self._sinks.logger, started.context, record.request, hazard, started.caller, started.manifest)
        if content is None or content.prompt is None:
            return
        found = messages(content, record.ending.finish_reason)
        if self._sinks.capture != "EVENT_ONLY" and started.span.is_recording():
            started.span.set_attributes(as_attributes(found))
        if self._sinks.capture != "SPAN_ONLY":
            emit_content(self._sinks.logger, started.context, record.request, found)
