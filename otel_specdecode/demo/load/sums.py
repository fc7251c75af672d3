"""Adds up the spans that were exported: what the counters of a back end have to agree with."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan

from otel_specdecode.generation.judgement import context_tier
from otel_specdecode.telemetry.labels import OTHER, draft_length_label
from otel_specdecode.telemetry.names import Attr

ADDED = (
    Attr.GEN_AI_USAGE_INPUT_TOKENS,
    Attr.GEN_AI_USAGE_OUTPUT_TOKENS,
    Attr.SPECDECODE_DECODE_PASSES,
    Attr.SPECDECODE_VERIFY_PASSES,
    Attr.SPECDECODE_DRAFT_PASSES,
    Attr.SPECDECODE_DRAFT_CALLS,
    Attr.SPECDECODE_DRAFT_PROPOSED_TOKENS,
    Attr.SPECDECODE_DRAFT_ACCEPTED_TOKENS,
    Attr.SPECDECODE_DRAFT_REJECTED_TOKENS,
    Attr.SPECDECODE_DRAFT_UNVERIFIED_TOKENS,
    Attr.SPECDECODE_ROLLBACKS,
)
"""Attributes whose values are added."""

COUNTED = (
    Attr.GEN_AI_RESPONSE_FINISH_REASONS,
    Attr.ERROR_TYPE,
    Attr.SPECDECODE_FALLBACK_REASON,
    Attr.SPECDECODE_HAZARD_IDS,
    Attr.SPECDECODE_IN_BURST,
    Attr.SPECDECODE_TENANT_ID,
)
"""Attributes whose values are counted."""

_LABELS = (
    Attr.GEN_AI_OPERATION_NAME,
    Attr.GEN_AI_PROVIDER_NAME,
    Attr.GEN_AI_REQUEST_MODEL,
    Attr.SPECDECODE_MODE,
    Attr.SPECDECODE_REQUESTED_MODE,
    Attr.SPECDECODE_METHOD,
    Attr.SPECDECODE_COHORT,
)

Labels = tuple[tuple[str, str], ...]


@dataclass
class Group:
    """The spans that share every label of the metrics that rules read.

    Attributes:
        requests: How many.
        sums: By attribute.
        counts: By attribute and value.
    """

    requests: int = 0
    sums: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ADDED, 0))
    counts: dict[str, dict[str, int]] = field(default_factory=lambda: {name: {} for name in COUNTED})

    def take(self, attributes: Mapping[str, Any]) -> None:
        """Add a span."""
        self.requests += 1
        for name in ADDED:
            self.sums[name] += attributes.get(name, 0)
        for name in COUNTED:
            value = attributes.get(name)
            for each in value if isinstance(value, (tuple, list)) else () if value is None else (value,):
                counted = self.counts[name]
                text = str(each).lower() if isinstance(each, bool) else str(each)
                counted[text] = counted.get(text, 0) + 1

    def join(self, other: Group) -> None:
        """Add another group."""
        self.requests += other.requests
        for name, amount in other.sums.items():
            self.sums[name] += amount
        for name, counted in other.counts.items():
            for value, count in counted.items():
                self.counts[name][value] = self.counts[name].get(value, 0) + count

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "requests": self.requests,
            "sums": dict(self.sums),
            "counts": {k: dict(v) for k, v in self.counts.items()},
        }


class Sums:
    """All spans that were taken, by the labels of their metric points."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._groups: dict[Labels, Group] = {}
        self._adding = threading.Lock()

    def add(self, spans: Sequence[ReadableSpan]) -> None:
        """Take the spans of one export."""
        with self._adding:
            for span in spans:
                attributes = dict(span.attributes or {})
                self._groups.setdefault(labels_of(attributes), Group()).take(attributes)

    def groups(self) -> dict[Labels, Group]:
        """Return the groups so far, in the order of their labels."""
        with self._adding:
            return dict(sorted(self._groups.items()))

    def total(self) -> Group:
        """Return all groups as one."""
        whole = Group()
        for group in self.groups().values():
            whole.join(group)
        return whole


def labels_of(attributes: Mapping[str, Any]) -> Labels:
    """Return the labels that the metric points of a span's request have."""
    found = {name: str(attributes.get(name) or OTHER) for name in _LABELS}
    found[Attr.SPECDECODE_DRAFT_LENGTH] = draft_length_label(attributes.get(Attr.SPECDECODE_DRAFT_MAX_TOKENS))
    found[Attr.SPECDECODE_CONTEXT_TIER] = context_tier(attributes.get(Attr.GEN_AI_USAGE_INPUT_TOKENS))
    return tuple(sorted(found.items()))
