"""Label values of metric points."""

from __future__ import annotations

import pytest

from otel_specdecode.generation.request import Request
from otel_specdecode.telemetry.labels import base_labels, draft_length_label, positions_of, rule_labels
from otel_specdecode.telemetry.names import Attr, Enum, Metrics


@pytest.mark.parametrize(
    ("length", "label"), [(0, "0"), (-1, "0"), (15, "15"), (16, "16+"), (400, "16+"), (None, "unknown")]
)
def test_draft_lengths_are_folded(length: int | None, label: str) -> None:
    """16 and above share one label value; a custom draft that does not tell has its own."""
    assert draft_length_label(length) == label
    assert label in Enum.SPECDECODE_DRAFT_LENGTH


@pytest.mark.parametrize(
    ("length", "count"), [(0, 1), (-1, 1), (1, 1), (4, 4), (16, 16), (17, 17), (99, 17), (None, 17)]
)
def test_positions_below_the_draft_length_exist(length: int | None, count: int) -> None:
    """Position 0 exists in autoregressive runs too; from 16 on positions are folded."""
    assert positions_of(length) == Enum.SPECDECODE_DRAFT_POSITION[:count]


def test_labels_are_those_of_the_registry() -> None:
    """The base and the rule labels have the keys that the registry declares, in its order, the tenant by opt-in."""
    request = Request("text_completion", "mlx", None)
    assert tuple(base_labels(request, "acme")) == Metrics.SPECDECODE_REQUEST_STARTED.labels
    assert tuple(rule_labels(request, 5, "acme")) == Metrics.SPECDECODE_DECODE_PASSES.labels
    assert Attr.SPECDECODE_TENANT_ID not in {**base_labels(request), **rule_labels(request, 5)}
    assert base_labels(request)[Attr.GEN_AI_REQUEST_MODEL] == "_OTHER"
