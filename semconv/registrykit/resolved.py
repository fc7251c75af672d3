"""Renders the resolved registry that the conformance checker reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from registrykit.types import Attribute, Registry, Use

SCOPE = "otel_specdecode"
"""Name of the instrumentation scope that everything of this registry is emitted under."""


def _attribute(attribute: Attribute) -> dict[str, Any]:
    values = {"values": list(attribute.values)} if attribute.values else {}
    return {"type": attribute.type, **values, "brief": attribute.brief}


def _uses(uses: Iterable[Use]) -> dict[str, Any]:
    return {use.key: _use(use) for use in uses}


def _use(use: Use) -> dict[str, Any]:
    conditions: dict[str, Mapping[str, Any] | None] = {
        "required_when": use.required_when,
        "absent_when": use.absent_when,
    }
    return {"level": use.level} | {name: condition for name, condition in conditions.items() if condition}


def render(registry: Registry) -> str:
    """The text of ``registry.json``."""
    content = {
        "schema_url": registry.schema_url,
        "scope": SCOPE,
        "attributes": {key: _attribute(attribute) for key, attribute in sorted(registry.attributes.items())},
        "spans": [
            {
                "id": span.ident,
                "kind": span.kind,
                "name": span.name_pattern,
                "told_by": span.told_by,
                "attributes": _uses(span.uses),
            }
            for span in registry.spans
        ],
        "metrics": {
            metric.name: {
                "instrument": metric.instrument,
                "unit": metric.unit,
                "brief": metric.brief,
                "value_type": metric.value_type,
                "convention": metric.convention,
                "emitted_by": metric.emitted_by,
                "labels": _uses(metric.uses),
            }
            for metric in registry.metrics
        },
        "resource": {entity.name: {"attributes": _uses(entity.uses)} for entity in registry.entities},
        "events": {event.name: {"attributes": _uses(event.uses)} for event in registry.events},
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
