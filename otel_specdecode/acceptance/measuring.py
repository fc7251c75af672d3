"""One request of a run, and what came of it: by its record, its span, and the clock of a client."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from opentelemetry import baggage, context
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

import otel_specdecode
from otel_specdecode.acceptance.checks import passes
from otel_specdecode.acceptance.engines.interface import Session
from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.prompts import Prompt
from otel_specdecode.acceptance.records import Arm, Measured, Passes, Phase
from otel_specdecode.demo.export import Export
from otel_specdecode.generation.plan import Ask, Plan, Who, plan_by, planner
from otel_specdecode.generation.record import Record
from otel_specdecode.generation.request import Request
from otel_specdecode.generation.tally import Delta
from otel_specdecode.guard_from_environment import GUARD_POLICY
from otel_specdecode.identity.declared import declare_run
from otel_specdecode.telemetry.listener import recorder
from otel_specdecode.telemetry.names import Attr
from otel_specdecode.telemetry.setup import service_resource
from otel_specdecode.telemetry.tenancy import chosen_tenancy

SERVICE = "otel-specdecode-bench"

_running = threading.Lock()
"""Held by the only run: two would measure each other, and the first to end would take the instrumentation away."""

_logger = logging.getLogger(__name__)

_BENCH = Plan(cohort="bench", as_asked=True)
_RECORD_SECONDS = 60.0
_WHOLE = SpanLimits(
    max_attributes=SpanLimits.UNSET,
    max_span_attributes=SpanLimits.UNSET,
    max_attribute_length=SpanLimits.UNSET,
    max_span_attribute_length=SpanLimits.UNSET,
)
"""Whatever OTEL_ATTRIBUTE_COUNT_LIMIT and its like say: a request is found, and told, by its span's attributes."""
_OPENING = 24
"""Characters of an answer that are its opening: of more, hardly two answers at a temperature above 0 are alike."""


@dataclass(frozen=True, slots=True)
class Job:
    """One request to be made.

    Attributes:
        id: Unique in its run.
        arm: How to run it.
        prompt: What to ask.
        repeat: How often this arm had run this prompt before.
        phase: Whether it counts.
        seed: Of the sampling.
    """

    id: str
    arm: Arm
    prompt: Prompt
    repeat: int
    phase: Phase
    seed: int = 0


@dataclass(slots=True)
class _Seen:
    """What telemetry showed of one request."""

    tokens: list[int] = field(default_factory=list)
    nanoseconds: list[int] = field(default_factory=list)
    record: Record | None = None
    trace_id: str | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    spans: int = 0


class Witness(SpanProcessor):
    """Sees what the instrumentation tells of the requests of a run: passes and records as the guard does, and spans.

    It plans every request as asked, in cohort `bench`. A request is found by the session that its context names.
    """

    def __init__(self) -> None:
        """Start with no request."""
        self._seen: dict[str, _Seen] = {}

    def expect(self, job: str) -> None:
        """Begin to keep what is told of a request."""
        self._seen[job] = _Seen()

    def take(self, job: str, *, failed: bool = False) -> _Seen:
        """Return what was told of a request, once all of it is recorded.

        Args:
            job: The request.
            failed: Whether it ended in an error, which may have come before there was anything to tell.

        Raises:
            AcceptanceError: It was not told of, or not as one request.
        """
        if not recorder.drain(_RECORD_SECONDS):
            raise AcceptanceError("an exporter blocks the telemetry: end it, or unset OTEL_EXPORTER_OTLP_ENDPOINT.")
        seen = self._seen.pop(job)
        if seen.spans != 1 and not (failed and not seen.spans):
            raise AcceptanceError(
                f"one request gave {seen.spans} spans instead of one: is OTEL_SDK_DISABLED set, or is the engine "
                "instrumented elsewhere already, for example by opentelemetry-instrument?"
            )
        return seen

    def plan(self, _: Ask) -> Plan:
        """Leave a request as it is asked for."""
        return _BENCH

    def progress(self, _: Request, who: Who, delta: Delta, __: int | None) -> None:
        """Keep the passes of a stretch."""
        seen = self._seen.get(who.session or "")
        if seen is not None:
            seen.tokens += delta.pass_tokens
            seen.nanoseconds += delta.pass_times

    def finish(self, record: Record, who: Who, trace_id: str | None) -> None:
        """Keep a finished record."""
        seen = self._seen.get(who.session or "")
        if seen is not None:
            seen.record, seen.trace_id = record, trace_id

    def on_end(self, span: ReadableSpan) -> None:
        """Keep a span's attributes."""
        attributes = dict(span.attributes or {})
        seen = self._seen.get(str(attributes.get(Attr.SPECDECODE_SESSION_ID, "")))
        if seen is not None:
            seen.attributes = attributes
            seen.spans += 1


@contextmanager
def witnessed(run_id: str) -> Iterator[Witness]:
    """Instrument the engines for a run, export where the environment says so, and hand out who sees it all.

    A guard does not act meanwhile: a run measures what it asks for.

    Raises:
        AcceptanceError: Another run goes on in this process.
    """
    if not _running.acquire(blocking=False):
        raise AcceptanceError("another run goes on in this process: wait for its end, or use another process.")
    try:
        with _instrumented(run_id) as witness:
            yield witness
    finally:
        _running.release()


@contextmanager
def _instrumented(run_id: str) -> Iterator[Witness]:
    witness, export, before = Witness(), Export(), planner()
    resource = service_resource(SERVICE, {Attr.SPECDECODE_RUN_ID: run_id})
    tracers = TracerProvider(ALWAYS_ON, resource, shutdown_on_exit=False, span_limits=_WHOLE)
    tracers.add_span_processor(witness)
    meters = MeterProvider([*export.metric_readers()], resource, shutdown_on_exit=False)
    loggers = LoggerProvider(resource, shutdown_on_exit=False)
    export.attach(tracers, loggers)
    run_before = declare_run(run_id)
    try:
        with _without(GUARD_POLICY):
            otel_specdecode.instrument(tracer_provider=tracers, meter_provider=meters, logger_provider=loggers)
        plan_by(witness)
        yield witness
    finally:
        plan_by(before)
        declare_run(run_before)
        otel_specdecode.uninstrument()
        recorder.drain(_RECORD_SECONDS)
        if not export.finish(tracers, meters, loggers):
            _logger.warning(
                "Telemetry of run %s did not all arrive at the OTLP endpoint; the run's own files have all of it",
                run_id,
            )


class Measurer:
    """Makes requests, from several threads if an arm asks for it."""

    def __init__(self, session: Session, witness: Witness) -> None:
        """Measure with loaded models.

        Args:
            session: The models.
            witness: Who sees what the instrumentation tells.
        """
        self._session = session
        self._witness = witness
        tenancy = chosen_tenancy()
        if not tenancy.session_keys:
            raise AcceptanceError("OTEL_SPECDECODE_SESSION_BAGGAGE is empty: unset it, a run finds its requests by it.")
        self._key = tenancy.session_keys[0]
        self._taking = threading.Lock()

    def run(self, job: Job, thread: int = 0) -> Measured:
        """Make one request and return what came of it; one that the engine fails is a result with its error.

        Args:
            job: The request.
            thread: Number of the calling thread among those of the arm.

        Raises:
            AcceptanceError: Telemetry did not tell of it.
        """
        self._witness.expect(job.id)
        token = context.attach(baggage.set_baggage(self._key, job.id))
        started, answer = time.time(), _Answer()
        try:
            answer.read(self._session, job, thread)
        except Exception as error:
            answer.error = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
        finally:
            context.detach(token)
        with self._taking:
            seen = self._witness.take(job.id, failed=answer.error is not None)
        return _measured(job, started, answer, seen, self._session.engine_peak(thread), self._session.queued(thread))


class _Answer:
    """What a client sees of an answer."""

    def __init__(self) -> None:
        self.text = ""
        self.first: float | None = None
        self.decode: float | None = None
        self.error: str | None = None

    def read(self, session: Session, job: Job, thread: int) -> None:
        clock, pieces = time.perf_counter, []
        first = last = 0.0
        with closing(session.stream(job.arm, job.prompt, job.seed, thread)) as stream:
            began = clock()
            for piece in stream:
                last = clock()
                first = first or last
                pieces.append(piece)
        self.text = "".join(pieces)
        if pieces:
            self.first, self.decode = first - began, last - first


def _measured(
    job: Job, started: float, answer: _Answer, seen: _Seen, engine_peak: int | None, queued: float | None
) -> Measured:
    prompt, at = job.prompt, seen.attributes.get
    base: dict[str, Any] = {
        "id": job.id,
        "arm": job.arm.name,
        "prompt": prompt.id,
        "kind": prompt.kind,
        "repeat": job.repeat,
        "phase": job.phase,
        "started_at": started,
        "weight": prompt.weight,
        "trace_id": seen.trace_id,
        "manifest_id": at(Attr.SPECDECODE_MANIFEST_ID),
        "peak_rss": at(Attr.SPECDECODE_PROCESS_PEAK_RSS),
        "peak_footprint": at(Attr.SPECDECODE_PROCESS_PEAK_FOOTPRINT),
        "engine_peak": engine_peak,
        "hazards": tuple(at(Attr.SPECDECODE_HAZARD_IDS) or ()),
        "error": answer.error,
    }
    record = seen.record
    if record is None:
        return Measured(**{**base, "error": answer.error or "contradicting counts"})
    counts, timing = record.counts, record.timing
    whole = answer.error is None
    return Measured(
        **base,
        finish_reason=record.ending.finish_reason,
        input_tokens=record.facts.input_tokens,
        output_tokens=counts.tokens,
        cached_tokens=record.facts.cached_tokens,
        duration=timing.duration,
        time_to_first_token=timing.time_to_first_token,
        prefill=timing.prefill,
        decode=timing.decode,
        time_per_token=timing.time_per_token,
        queued=queued,
        accepted=counts.accepted,
        rejected=counts.rejected,
        unverified=counts.unverified,
        rounds=counts.rounds,
        finished_rounds=counts.finished_rounds,
        rollbacks=counts.rollbacks,
        decode_passes=counts.decode_passes,
        draft_passes=counts.draft_passes,
        passes=Passes(tuple(seen.tokens), tuple(round(each / 1000) for each in seen.nanoseconds)),
        client_first=answer.first,
        client_decode=answer.decode,
        text_digest=_digest(answer.text) if whole else None,
        opening_digest=_digest(answer.text[:_OPENING]) if whole else None,
        check=passes(prompt.check, answer.text) if whole and prompt.check is not None else None,
    )


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


@contextmanager
def _without(variable: str) -> Iterator[None]:
    value = os.environ.pop(variable, None)
    try:
        yield
    finally:
        if value is not None:
            os.environ[variable] = value
