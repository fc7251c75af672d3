"""Log records with the trace context of their request."""

from __future__ import annotations

import time
from typing import Any

from opentelemetry._logs import Logger, LogRecord, SeverityNumber
from opentelemetry.context import Context

from otel_specdecode.generation.bursts import NANOSECONDS, Burst
from otel_specdecode.generation.request import Request
from otel_specdecode.identity.manifest import Manifest
from otel_specdecode.telemetry.labels import OTHER
from otel_specdecode.telemetry.names import Attr, Event
from otel_specdecode.telemetry.surroundings import Caller


def emit_hazard(
    logger: Logger, context: Context, request: Request, hazard: str, caller: Caller, manifest: Manifest | None
) -> None:
    """Tell of a hazard that a request met."""
    attributes = {
        Attr.SPECDECODE_HAZARD_ID: hazard,
        Attr.GEN_AI_OPERATION_NAME: request.operation,
        Attr.GEN_AI_PROVIDER_NAME: request.provider,
        Attr.GEN_AI_REQUEST_MODEL: request.model or OTHER,
        Attr.SPECDECODE_MODE: request.mode,
        Attr.SPECDECODE_REQUESTED_MODE: request.requested_mode,
        Attr.SPECDECODE_METHOD: request.method,
        Attr.SPECDECODE_DRAFT_MODEL: request.draft_model,
        Attr.SPECDECODE_DRAFT_MAX_TOKENS: request.draft_max_tokens,
        Attr.SPECDECODE_MANIFEST_ID: None if manifest is None else manifest.id,
        Attr.SPECDECODE_RUN_ID: caller.run_id,
        Attr.SPECDECODE_TENANT_ID: caller.tenant,
    }
    emit(logger, context, Event.SPECDECODE_HAZARD_DETECTED, SeverityNumber.WARN, attributes)


def emit_manifest(
    logger: Logger, context: Context, request: Request, manifest: Manifest, caller: Caller, machine_profile: str
) -> None:
    """Tell what runs, at the first request that runs it."""
    attributes = {
        Attr.SPECDECODE_MANIFEST_ID: manifest.id,
        Attr.SPECDECODE_MANIFEST_DOCUMENT: manifest.to_json(),
        Attr.GEN_AI_PROVIDER_NAME: request.provider,
        Attr.GEN_AI_REQUEST_MODEL: request.model or OTHER,
        Attr.SPECDECODE_METHOD: request.method if request.decodes else None,
        Attr.SPECDECODE_DRAFT_MODEL: request.draft_model,
        Attr.SPECDECODE_RUN_ID: caller.run_id,
        Attr.SPECDECODE_MACHINE_PROFILE: machine_profile,
    }
    emit(logger, context, Event.SPECDECODE_MANIFEST, SeverityNumber.INFO, attributes)


def emit_burst(logger: Logger, request: Request, burst: Burst, run_id: str | None) -> None:
    """Tell that a burst of what a request runs on has ended. It belongs to no trace."""
    usual = burst.baseline
    attributes = {
        Attr.GEN_AI_PROVIDER_NAME: request.provider,
        Attr.GEN_AI_REQUEST_MODEL: request.model or OTHER,
        Attr.SPECDECODE_METHOD: request.method,
        Attr.SPECDECODE_DRAFT_MODEL: request.draft_model,
        Attr.SPECDECODE_DRAFT_MAX_TOKENS: request.draft_max_tokens,
        Attr.SPECDECODE_BURST_START_TIME: burst.start / NANOSECONDS,
        Attr.SPECDECODE_BURST_END_TIME: burst.end / NANOSECONDS,
        Attr.SPECDECODE_BURST_ROUNDS: burst.rounds,
        Attr.SPECDECODE_BURST_ROLLBACKS: burst.rollbacks,
        Attr.SPECDECODE_BURST_ROLLBACKS_PER_MINUTE: burst.rollbacks_per_minute,
        Attr.SPECDECODE_BURST_PEAK_REJECTED: burst.peak.rejected,
        Attr.SPECDECODE_BURST_PEAK_ALL_REJECTED: burst.peak.all_rejected,
        Attr.SPECDECODE_BURST_USUAL_REJECTED: None if usual is None else usual.rejected,
        Attr.SPECDECODE_BURST_USUAL_ALL_REJECTED: None if usual is None else usual.all_rejected,
        Attr.SPECDECODE_BURST_REQUESTS: burst.requests,
        Attr.SPECDECODE_BURST_TENANTS: tuple(tenant for tenant, _ in burst.tenants) or None,
        Attr.SPECDECODE_BURST_TENANT_REJECTED_TOKENS: tuple(rejected for _, rejected in burst.tenants) or None,
        Attr.SPECDECODE_BURST_TRACE_IDS: burst.worst or None,
        Attr.SPECDECODE_RUN_ID: run_id,
    }
    emit(logger, Context(), Event.SPECDECODE_ROLLBACK_BURST, SeverityNumber.WARN, attributes)


def emit_content(logger: Logger, context: Context, request: Request, found: dict[str, list[dict[str, Any]]]) -> None:
    """Tell the prompt and completion of a request whose user opted in."""
    attributes = {
        Attr.GEN_AI_OPERATION_NAME: request.operation,
        Attr.GEN_AI_PROVIDER_NAME: request.provider,
        Attr.GEN_AI_REQUEST_MODEL: request.model,
        **found,
    }
    emit(logger, context, Event.GEN_AI_CLIENT_INFERENCE_OPERATION_DETAILS, SeverityNumber.INFO, attributes)


def emit(
    logger: Logger,
    context: Context,
    name: str,
    severity: SeverityNumber,
    attributes: dict[str, Any],
    at: int | None = None,
) -> None:
    """Emit an event.

    Args:
        logger: Takes it.
        context: Holds the span that it belongs to; an empty one: none.
        name: Its name.
        severity: Its severity.
        attributes: Its attributes; those that are None are left out.
        at: When it was, ns since the epoch; None: now.
    """
    now = time.time_ns()
    known = {key: value for key, value in attributes.items() if value is not None}
    logger.emit(
        LogRecord(
            timestamp=now if at is None else at,
            observed_timestamp=now,
            context=context,
            severity_number=severity,
            severity_text=severity.name,
            attributes=known,
            event_name=name,
        )
    )
