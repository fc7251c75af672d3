"""A generation's span: its name, and its attributes at start and at the end."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.trace import Span, Status, StatusCode

from otel_specdecode.generation.record import Ending, Record
from otel_specdecode.generation.request import Request
from otel_specdecode.telemetry.names import Attr
from otel_specdecode.telemetry.surroundings import Attributes, Surroundings, Value, surroundings_attributes


def span_name(request: Request) -> str:
    """Return `{operation} {model}`, the operation alone where the model is unknown."""
    return f"{request.operation} {request.model}" if request.model else request.operation


def start_attributes(request: Request) -> dict[str, Value]:
    """Return what is known before the first token, which is what samplers see."""
    attributes: dict[str, Value | None] = {
        Attr.GEN_AI_OPERATION_NAME: request.operation,
        Attr.GEN_AI_PROVIDER_NAME: request.provider,
        Attr.GEN_AI_REQUEST_MODEL: request.model,
    }
    if request.batch_size is not None:
        attributes[Attr.SPECDECODE_BATCH_SIZE] = request.batch_size
    elif request.decodes:
        attributes |= {
            Attr.SPECDECODE_MODE: request.mode,
            Attr.SPECDECODE_REQUESTED_MODE: request.requested_mode,
            Attr.SPECDECODE_METHOD: request.method,
            Attr.SPECDECODE_COHORT: request.cohort,
            Attr.SPECDECODE_DRAFT_MODEL: request.draft_model,
            Attr.SPECDECODE_DRAFT_MAX_TOKENS: request.draft_max_tokens,
            Attr.SPECDECODE_FALLBACK_REASON: request.fallback_reason,
        }
    return _known(attributes)


def end_span(
    span: Span,
    record: Record | None,
    ending: Ending,
    hazards: Sequence[str],
    surroundings: Surroundings,
    end_time: int,
) -> None:
    """Give a span what the record tells, and end it, whatever happens on the way.

    Args:
        span: The span; an unsampled one gets no attributes.
        record: The finished generation, None if its counts contradict each other.
        ending: How the stream ended.
        hazards: Ids of the hazards met.
        surroundings: Who ran what, where.
        end_time: Wall clock of the end, in ns.
    """
    try:
        if span.is_recording():
            if ending.error_type is not None:
                # Without the exception's text, which may quote a prompt.
                span.set_attribute(Attr.ERROR_TYPE, ending.error_type)
                span.set_status(Status(StatusCode.ERROR))
            span.set_attributes(_known(surroundings_attributes(surroundings)))
            if record is not None:
                span.set_attributes(_known(_end_attributes(record, hazards)))
    finally:
        span.end(end_time)


def _known(attributes: Attributes) -> dict[str, Value]:
    return {key: value for key, value in attributes.items() if value is not None}


def _end_attributes(record: Record, hazards: Sequence[str]) -> Attributes:
    request = record.request
    if not request.decodes:
        return _embeddings(record)
    passes = {**_passes(record), Attr.SPECDECODE_HAZARD_IDS: tuple(hazards) or None}
    if request.batch_size is not None:
        return passes
    return {**passes, **_request(record), **_counts(record), **_times(record)}


def _embeddings(record: Record) -> Attributes:
    return {
        Attr.GEN_AI_RESPONSE_MODEL: record.request.model,
        Attr.GEN_AI_USAGE_INPUT_TOKENS: record.facts.input_tokens,
        Attr.GEN_AI_EMBEDDINGS_DIMENSION_COUNT: record.facts.embedding_dimensions,
        Attr.SPECDECODE_QUEUE_DURATION: record.request.queued,
    }


def _passes(record: Record) -> Attributes:
    counts, shared = record.counts, record.request.passes_shared
    return {
        Attr.SPECDECODE_DECODE_PASSES: counts.decode_passes,
        Attr.SPECDECODE_PREFILL_PASSES: None if shared else counts.prefill_passes,
    }


def _request(record: Record) -> Attributes:
    sampling, facts = record.request.sampling, record.facts
    reason = record.ending.finish_reason
    return {
        Attr.GEN_AI_REQUEST_STREAM: record.request.stream or None,
        Attr.GEN_AI_REQUEST_MAX_TOKENS: sampling.max_tokens,
        Attr.GEN_AI_REQUEST_TEMPERATURE: sampling.temperature,
        Attr.GEN_AI_REQUEST_TOP_P: sampling.top_p,
        Attr.GEN_AI_REQUEST_TOP_K: None if sampling.top_k is None else float(sampling.top_k),
        Attr.GEN_AI_REQUEST_SEED: sampling.seed,
        Attr.GEN_AI_REQUEST_FREQUENCY_PENALTY: sampling.frequency_penalty,
        Attr.GEN_AI_REQUEST_PRESENCE_PENALTY: sampling.presence_penalty,
        Attr.GEN_AI_REQUEST_STOP_SEQUENCES: sampling.stop_sequences or None,
        Attr.GEN_AI_RESPONSE_MODEL: record.request.model,
        Attr.GEN_AI_RESPONSE_FINISH_REASONS: None if reason is None else (reason,),
        Attr.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK: record.timing.time_to_first_chunk if record.request.stream else None,
        Attr.GEN_AI_USAGE_INPUT_TOKENS: facts.input_tokens,
        Attr.GEN_AI_USAGE_OUTPUT_TOKENS: record.counts.tokens,
        Attr.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS: facts.cached_tokens or None,
    }


def _counts(record: Record) -> Attributes:
    counts = record.counts
    draft_passes = None if record.request.method == "custom" else counts.draft_passes
    return {
        Attr.SPECDECODE_DRAFT_PASSES: draft_passes,
        Attr.SPECDECODE_DRAFT_CALLS: counts.draft_calls,
        Attr.SPECDECODE_DRAFT_PREFILL_PASSES: None if draft_passes is None else counts.draft_prefill_passes,
        Attr.SPECDECODE_DRAFT_PROPOSED_TOKENS: counts.proposed,
        Attr.SPECDECODE_DRAFT_ACCEPTED_TOKENS: counts.accepted,
        Attr.SPECDECODE_DRAFT_REJECTED_TOKENS: counts.rejected,
        Attr.SPECDECODE_DRAFT_UNVERIFIED_TOKENS: counts.unverified,
        Attr.SPECDECODE_VERIFY_PASSES: counts.rounds,
        Attr.SPECDECODE_ROLLBACKS: counts.rollbacks,
        Attr.SPECDECODE_ROLLBACKS_PER_MINUTE: record.rollbacks_per_minute,
        Attr.SPECDECODE_ACCEPT_RATE: counts.accept_rate,
        Attr.SPECDECODE_ACCEPTANCE_LENGTH: record.acceptance_length,
    }


def _times(record: Record) -> Attributes:
    timing = record.timing
    return {
        Attr.SPECDECODE_QUEUE_DURATION: record.request.queued,
        Attr.SPECDECODE_TIME_TO_FIRST_TOKEN: timing.time_to_first_token,
        Attr.SPECDECODE_PREFILL_DURATION: timing.prefill,
        Attr.SPECDECODE_DECODE_DURATION: timing.decode,
        Attr.SPECDECODE_CONSUMER_DURATION: timing.consumer,
        Attr.SPECDECODE_DRAFT_DURATION: timing.draft,
        Attr.SPECDECODE_DECODE_TOKENS_PER_SECOND: timing.tokens_per_second,
        Attr.SPECDECODE_INTER_TOKEN_LATENCY_P50: timing.wait_p50,
        Attr.SPECDECODE_INTER_TOKEN_LATENCY_P95: timing.wait_p95,
        Attr.SPECDECODE_INTER_TOKEN_LATENCY_P99: timing.wait_p99,
    }
