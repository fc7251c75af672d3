"""What runs, as telemetry tells it: once as an event, as an info metric, and by its id on spans."""

from __future__ import annotations

from otel_specdecode.generation.request import Request
from otel_specdecode.identity.manifest import Manifest
from otel_specdecode.telemetry.labels import OTHER, LabelKey, Labels, draft_length_label
from otel_specdecode.telemetry.names import Attr

NONE = "none"
"""Label value of what is not there: an info metric has every label always."""


def configuration(request: Request, manifest: Manifest) -> tuple[LabelKey, Labels]:
    """Return what tells one configuration from another, and the labels of its info metric."""
    key = {
        Attr.GEN_AI_PROVIDER_NAME: request.provider,
        Attr.GEN_AI_REQUEST_MODEL: request.model or OTHER,
        Attr.SPECDECODE_METHOD: request.method,
        Attr.SPECDECODE_DRAFT_MODEL: request.draft_model or NONE,
        Attr.SPECDECODE_DRAFT_LENGTH: draft_length_label(request.draft_max_tokens),
    }
    labels = {
        **key,
        Attr.SPECDECODE_MANIFEST_ID: manifest.id,
        Attr.SPECDECODE_ENGINE_VERSION: manifest.engine_version or NONE,
        Attr.SPECDECODE_ENGINE_RUNTIME_VERSION: manifest.runtime_version or NONE,
        Attr.SPECDECODE_POLICY_HASH: manifest.policy_hash or NONE,
    }
    return tuple(key.values()), labels
