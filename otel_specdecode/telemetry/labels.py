"""Label values of one generation's metric points."""

from __future__ import annotations

from collections.abc import Mapping

from otel_specdecode.generation.judgement import context_tier
from otel_specdecode.generation.request import Request
from otel_specdecode.telemetry.names import Attr, Enum

Labels = Mapping[str, str]
LabelKey = tuple[str, ...]

OTHER = "_OTHER"
"""The model label where no loaded model's name is known."""

_FOLDED_LENGTH = Enum.SPECDECODE_DRAFT_LENGTH[-2]
_UNKNOWN_LENGTH = Enum.SPECDECODE_DRAFT_LENGTH[-1]
_FOLDED_FROM = 16


def base_labels(request: Request, tenant: str | None = None) -> Labels:
    """Return the labels of every metric but those of the host; the tenant where it is asked for and known."""
    labels = {
        Attr.GEN_AI_OPERATION_NAME: request.operation,
        Attr.GEN_AI_PROVIDER_NAME: request.provider,
        Attr.GEN_AI_REQUEST_MODEL: request.model or OTHER,
    }
    if request.decodes:
        labels |= {
            Attr.SPECDECODE_MODE: request.mode,
            Attr.SPECDECODE_REQUESTED_MODE: request.requested_mode,
            Attr.SPECDECODE_METHOD: request.method,
        }
    return labels if tenant is None else {**labels, Attr.SPECDECODE_TENANT_ID: tenant}


def rule_labels(request: Request, input_tokens: int | None, tenant: str | None = None) -> Labels:
    """Return the labels of the metrics that rules and the guard read."""
    if not request.decodes:
        return base_labels(request, tenant)
    return {
        **base_labels(request, tenant),
        Attr.SPECDECODE_DRAFT_LENGTH: draft_length_label(request.draft_max_tokens),
        Attr.SPECDECODE_COHORT: request.cohort,
        Attr.SPECDECODE_CONTEXT_TIER: context_tier(input_tokens),
    }


def draft_length_label(length: int | None) -> str:
    """Return the label value of a draft length: 16 and above folded, None unknown."""
    if length is None:
        return _UNKNOWN_LENGTH
    return str(max(length, 0)) if length < _FOLDED_FROM else _FOLDED_LENGTH


def positions_of(length: int | None) -> tuple[str, ...]:
    """Return the positions that a draft of a length can have; position 0 where there is no draft."""
    known = _FOLDED_FROM + 1 if length is None else min(max(length, 1), _FOLDED_FROM + 1)
    return Enum.SPECDECODE_DRAFT_POSITION[:known]


def key_of(labels: Labels) -> LabelKey:
    """Return the label values as a key."""
    return tuple(labels.values())
