"""A generation's counts and times as metric points."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Literal

from opentelemetry.context import Context

from otel_specdecode.generation.counts import Counts
from otel_specdecode.generation.record import NANOSECONDS, Facts, Record
from otel_specdecode.generation.request import Request
from otel_specdecode.generation.tally import Delta
from otel_specdecode.telemetry.instruments import Instruments
from otel_specdecode.telemetry.labels import Labels, base_labels, key_of, positions_of, rule_labels
from otel_specdecode.telemetry.names import Attr, Enum, Metric, Metrics

GENAI_METRICS = "OTEL_SPECDECODE_GENAI_METRICS"
"""Environment variable: `released` (v1.41 names, the default), `latest` (renamed ones) or `both`."""

Convention = Literal["released", "latest", "both"]

_INPUT, _OUTPUT = Enum.GEN_AI_TOKEN_TYPE
_TEXT = Enum.GEN_AI_TOKEN_MODALITY[0]


def chosen_convention() -> Convention:
    """Return the GenAI metric names that the environment chooses; unknown values mean the default."""
    chosen = os.environ.get(GENAI_METRICS, "released").strip().lower()
    return chosen if chosen in ("latest", "both") else "released"  # type: ignore[return-value]


class GenerationMetrics:
    """Writes the points of one generation, linked to its span.

    Attributes:
        base: Labels of all its points.
    """

    def __init__(
        self,
        instruments: Instruments,
        request: Request,
        context: Context,
        pace: Callable[[], None],
        convention: Convention,
        under_client_span: bool,
        tenant: str | None = None,
    ) -> None:
        """Write for one generation.

        Args:
            instruments: Where points go.
            request: Gives the labels.
            context: Holds the span that exemplars link to.
            pace: Called after every record.
            convention: Which GenAI metric names to use.
            under_client_span: An outer GenAI client span already counts this request in gen_ai.client.* metrics.
            tenant: Label value of the tenant, None where metrics do not tell tenants apart.
        """
        self._instruments = instruments
        self._request = request
        self._context = context
        self._pace = pace
        self._tenant = tenant
        self.base = base_labels(request, tenant)
        self._released = convention != "latest" and not under_client_span
        self._latest = convention != "released" and not under_client_span
        self._rule: Labels = {}

    def started(self) -> None:
        """Count the request in; a batch counts through its prompts."""
        if self._request.batch_size is not None:
            return
        self._instruments.change(Metrics.SPECDECODE_REQUEST_ACTIVE, self.base, 1)
        self._instruments.change(Metrics.SPECDECODE_ROLLBACK_BURST_ACTIVE, self.base, 0)
        self._add(Metrics.SPECDECODE_REQUEST_STARTED, 1, self.base)

    def ended(self) -> None:
        """Count the request out of the active ones."""
        if self._request.batch_size is not None:
            return
        self._instruments.change(Metrics.SPECDECODE_REQUEST_ACTIVE, self.base, -1)

    def progress(self, delta: Delta, facts: Facts, seconds: float) -> None:
        """Write what a stretch of a given stream time added."""
        if not self._request.decodes:
            return
        if not self._rule:
            self._rule = rule_labels(self._request, facts.input_tokens, self._tenant)
            self._write_zeros()
            self._write_wait(self._rule)
        self._write_counts(delta.counts)
        if not self._request.passes_shared:
            self._write_times(Metrics.SPECDECODE_ROUND_DURATION, self._rule, delta.pass_times, seconds)
        if self._request.stream:
            if self._released:
                metric = Metrics.GEN_AI_CLIENT_OPERATION_TIME_PER_OUTPUT_CHUNK
                self._write_times(metric, self.base, delta.gaps, seconds)
            if self._latest:
                metric = Metrics.GEN_AI_CLIENT_INFERENCE_TIME_PER_OUTPUT_CHUNK
                self._write_times(metric, self.base, delta.gaps, seconds)

    def finish(self, record: Record, hazards: Sequence[str]) -> None:
        """Write what only the end tells."""
        for hazard in hazards:
            self._add(Metrics.SPECDECODE_HAZARDS, 1, {**self.base, Attr.SPECDECODE_HAZARD_ID: hazard})
        reason = record.request.fallback_reason
        if reason is not None:
            self._add(Metrics.SPECDECODE_FALLBACKS, 1, {**self.base, Attr.SPECDECODE_FALLBACK_REASON: reason})
        if record.request.batch_size is not None:
            return
        self._finish_server(record)
        if record.request.decodes:
            self._finish_own(record)
        if self._released:
            self._finish_released(record)
        if self._latest:
            self._finish_latest(record)

    def _finish_server(self, record: Record) -> None:
        timing, tokens = record.timing, record.counts.tokens
        failed = _failure(record)
        labels = self._rule or rule_labels(record.request, record.facts.input_tokens, self._tenant)
        if not record.request.decodes:
            self._write_wait(labels)
        self._record(Metrics.GEN_AI_SERVER_REQUEST_DURATION, timing.duration, {**labels, **failed})
        if timing.time_to_first_token is None or failed:
            return
        self._record(Metrics.GEN_AI_SERVER_TIME_TO_FIRST_TOKEN, timing.time_to_first_token, self._rule)
        if tokens > 1:
            rest = max(timing.duration - timing.time_to_first_token, 0.0) / (tokens - 1)
            self._record(Metrics.GEN_AI_SERVER_TIME_PER_OUTPUT_TOKEN, rest, self._rule)

    def _finish_own(self, record: Record) -> None:
        timing = record.timing
        for metric, seconds in (
            (Metrics.SPECDECODE_DECODE_TIME_PER_TOKEN, None if _failure(record) else timing.time_per_token),
            (Metrics.SPECDECODE_PREFILL_DURATION, timing.prefill),
            (Metrics.SPECDECODE_DECODE_DURATION, timing.decode),
            (Metrics.SPECDECODE_DRAFT_DURATION, None if record.request.method == "none" else timing.draft),
        ):
            if seconds is not None:
                self._record(metric, seconds, self._rule)

    def _write_wait(self, labels: Labels) -> None:
        if self._request.queued is not None:
            self._record(Metrics.SPECDECODE_QUEUE_DURATION, self._request.queued, labels)

    def _finish_released(self, record: Record) -> None:
        timing, labels = record.timing, self.base
        self._record(Metrics.GEN_AI_CLIENT_OPERATION_DURATION, timing.duration, {**labels, **_failure(record)})
        if record.request.stream and timing.time_to_first_chunk is not None:
            self._record(Metrics.GEN_AI_CLIENT_OPERATION_TIME_TO_FIRST_CHUNK, timing.time_to_first_chunk, labels)
        usage = Metrics.GEN_AI_CLIENT_TOKEN_USAGE
        if record.facts.input_tokens is not None:
            self._record(usage, record.facts.input_tokens, {**labels, Attr.GEN_AI_TOKEN_TYPE: _INPUT})
        if record.request.decodes:
            self._record(usage, record.counts.tokens, {**labels, Attr.GEN_AI_TOKEN_TYPE: _OUTPUT})

    def _finish_latest(self, record: Record) -> None:
        timing, labels = record.timing, self.base
        failed = {**labels, **_failure(record)}
        self._record(Metrics.GEN_AI_CLIENT_INFERENCE_DURATION, timing.duration, failed)
        if record.request.stream and timing.time_to_first_chunk is not None:
            self._record(Metrics.GEN_AI_CLIENT_INFERENCE_TIME_TO_FIRST_CHUNK, timing.time_to_first_chunk, labels)
        read, output = record.facts.input_tokens or 0, record.counts.tokens
        if record.facts.input_tokens is not None:
            self._record(Metrics.GEN_AI_CLIENT_INFERENCE_OPERATION_INPUT_TOKENS, read, failed)
        text = {**labels, Attr.GEN_AI_TOKEN_MODALITY: _TEXT}
        self._add(Metrics.GEN_AI_CLIENT_INFERENCE_USAGE_INPUT_TOKENS, read, text)
        if not record.request.decodes:
            return
        cached = record.facts.cached_tokens
        self._record(Metrics.GEN_AI_CLIENT_INFERENCE_OPERATION_OUTPUT_TOKENS, output, failed)
        self._add(Metrics.GEN_AI_CLIENT_INFERENCE_USAGE_OUTPUT_TOKENS, output, text)
        self._add(Metrics.GEN_AI_CLIENT_INFERENCE_USAGE_CACHE_READ_INPUT_TOKENS, cached, text)

    def _write_counts(self, counts: Counts) -> None:
        if not self._request.passes_shared:
            self._add(Metrics.SPECDECODE_DECODE_PASSES, counts.decode_passes, self._rule)
        if self._request.batch_size is not None:
            return
        self._add(Metrics.SPECDECODE_DECODE_TOKENS, counts.decode_tokens, self._rule)
        self._add(Metrics.SPECDECODE_DRAFT_PASSES, counts.draft_passes or 0, self._rule)
        self._add(Metrics.SPECDECODE_DRAFT_CALLS, counts.draft_calls, self._rule)
        if not counts.rounds:
            return
        self._add(Metrics.SPECDECODE_ROLLBACKS, counts.rollbacks, self._rule)
        outcomes = (counts.accepted, counts.rejected, counts.unverified)
        for outcome, amount in zip(Enum.SPECDECODE_DRAFT_OUTCOME, outcomes, strict=True):
            self._add_labelled(Metrics.SPECDECODE_DRAFT_TOKENS, amount, Attr.SPECDECODE_DRAFT_OUTCOME, outcome)
        rounds = (counts.all_accepted, counts.rolled_back, counts.all_rejected, counts.cut)
        for outcome, amount in zip(Enum.SPECDECODE_ROUND_OUTCOME, rounds, strict=True):
            self._add_labelled(Metrics.SPECDECODE_VERIFY_PASSES, amount, Attr.SPECDECODE_ROUND_OUTCOME, outcome)
        for metric, places in (
            (Metrics.SPECDECODE_DRAFT_PROPOSED_BY_POSITION, counts.proposed_by_position),
            (Metrics.SPECDECODE_DRAFT_ACCEPTED_BY_POSITION, counts.accepted_by_position),
        ):
            for place, amount in zip(Enum.SPECDECODE_DRAFT_POSITION, places, strict=True):
                self._add_labelled(metric, amount, Attr.SPECDECODE_DRAFT_POSITION, place)

    def _write_zeros(self) -> None:
        """Create every counter series of these labels, so that what never happened shows as 0."""
        positions = positions_of(self._request.draft_max_tokens)
        if self._instruments.first_seen(key_of(self._rule)):
            for metric in _PLAIN_COUNTERS:
                if metric is not Metrics.SPECDECODE_DRAFT_PASSES or self._request.method != "custom":
                    self._zero(metric, self._rule)
            for metric, attribute, values in (
                (Metrics.SPECDECODE_DRAFT_TOKENS, Attr.SPECDECODE_DRAFT_OUTCOME, Enum.SPECDECODE_DRAFT_OUTCOME),
                (Metrics.SPECDECODE_VERIFY_PASSES, Attr.SPECDECODE_ROUND_OUTCOME, Enum.SPECDECODE_ROUND_OUTCOME),
                (Metrics.SPECDECODE_DRAFT_PROPOSED_BY_POSITION, Attr.SPECDECODE_DRAFT_POSITION, positions),
                (Metrics.SPECDECODE_DRAFT_ACCEPTED_BY_POSITION, Attr.SPECDECODE_DRAFT_POSITION, positions),
            ):
                for value in values:
                    self._zero(metric, {**self._rule, attribute: value})
        if self._instruments.first_seen(key_of(self.base)):
            for hazard in Enum.SPECDECODE_HAZARD_ID:
                self._zero(Metrics.SPECDECODE_HAZARDS, {**self.base, Attr.SPECDECODE_HAZARD_ID: hazard})
            self._zero(Metrics.SPECDECODE_ROLLBACK_BURSTS, self.base)
            for reason in Enum.SPECDECODE_FALLBACK_REASON:
                self._zero(Metrics.SPECDECODE_FALLBACKS, {**self.base, Attr.SPECDECODE_FALLBACK_REASON: reason})

    def _write_times(self, metric: Metric, labels: Labels, times: Sequence[int], seconds: float) -> None:
        for nanoseconds in self._instruments.thinner(metric, key_of(labels)).choose(times, seconds):
            self._record(metric, max(nanoseconds, 0) / NANOSECONDS, labels)

    def _add(self, metric: Metric, amount: int, labels: Labels) -> None:
        if amount:
            self._instruments.add(metric, amount, labels, self._context)
            self._pace()

    def _add_labelled(self, metric: Metric, amount: int, label: str, value: str) -> None:
        if amount:
            self._add(metric, amount, {**self._rule, label: value})

    def _zero(self, metric: Metric, labels: Labels) -> None:
        self._instruments.add(metric, 0, labels, self._context)
        self._pace()

    def _record(self, metric: Metric, value: float, labels: Labels) -> None:
        self._instruments.record(metric, value, labels, self._context)
        self._pace()


_PLAIN_COUNTERS = (
    Metrics.SPECDECODE_DECODE_PASSES,
    Metrics.SPECDECODE_DECODE_TOKENS,
    Metrics.SPECDECODE_DRAFT_PASSES,
    Metrics.SPECDECODE_DRAFT_CALLS,
    Metrics.SPECDECODE_ROLLBACKS,
)


def _failure(record: Record) -> Labels:
    error = record.ending.error_type
    return {} if error is None else {Attr.ERROR_TYPE: error}
