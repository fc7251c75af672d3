"""The generated constants, and that no code spells a field name itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import otel_specdecode
from otel_specdecode.telemetry.names import CORE_ATTRIBUTES, MODE_ONLY_ATTRIBUTES, Attr, Enum, Event, Metric, Metrics

BASE = (
    Attr.GEN_AI_OPERATION_NAME,
    Attr.GEN_AI_PROVIDER_NAME,
    Attr.GEN_AI_REQUEST_MODEL,
    Attr.SPECDECODE_MODE,
    Attr.SPECDECODE_REQUESTED_MODE,
    Attr.SPECDECODE_METHOD,
)
FIELD_NAME = re.compile(r"(?<![\w.])(specdecode|gen_ai)\.[a-z]")


def spelled_names(source: str) -> Iterator[str]:
    """String literals of Python source that hold a field name, docstrings left out."""
    tree = ast.parse(source)
    told = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or node in told:
            continue
        if isinstance(node.value, str) and FIELD_NAME.search(node.value):
            yield node.value


def test_no_code_spells_a_field_name() -> None:
    """Only the generated module holds names of fields in strings."""
    package = Path(otel_specdecode.__path__[0])
    found = {
        f"{path.relative_to(package)}: {name}"
        for path in package.rglob("*.py")
        if path != package / "telemetry" / "names.py"
        for name in spelled_names(path.read_text(encoding="utf-8"))
    }

    assert found == set()


@pytest.mark.parametrize(
    "source",
    ['x = "specdecode.mode"', 'f(f"specdecode.draft.{field}")', '"""Doc."""\nx = ["see gen_ai.request.model"]'],
)
def test_a_spelled_name_is_found(source: str) -> None:
    """The scan sees plain strings, parts of f-strings and names within a sentence."""
    assert len(list(spelled_names(source))) == 1


@pytest.mark.parametrize("source", ['"""Sets specdecode.mode."""', 'x = "otel_specdecode.testing"', 'x = "specdecode"'])
def test_other_strings_are_left_alone(source: str) -> None:
    """Docstrings and the package's own name are no field names."""
    assert list(spelled_names(source)) == []


def test_constants_are_their_names_in_upper_case() -> None:
    """A constant is found by writing its field's name with underscores."""
    for namespace in (Attr, Event):
        for constant, name in vars(namespace).items():
            if not constant.startswith("_"):
                assert constant == name.upper().replace(".", "_")
    for constant, metric in vars(Metrics).items():
        if isinstance(metric, Metric):
            assert constant == metric.name.upper().replace(".", "_")


def test_base_labels_come_first_on_every_metric_of_a_request() -> None:
    """All metrics but those of the process and the machine can be joined on the base labels."""
    for metric in vars(Metrics).values():
        if isinstance(metric, Metric) and Attr.SPECDECODE_MODE in metric.labels:
            assert metric.labels[: len(BASE)] == BASE


def test_core_set_and_mode_only_set_are_apart() -> None:
    """No key is said to be equal in both modes and absent in one."""
    assert set(CORE_ATTRIBUTES).isdisjoint(MODE_ONLY_ATTRIBUTES)
    assert MODE_ONLY_ATTRIBUTES == (Attr.SPECDECODE_DRAFT_MODEL, Attr.SPECDECODE_ACCEPT_RATE)


def test_the_collector_emits_the_metrics_of_the_bridge_and_no_other() -> None:
    """What comes from another engine's page is told from what this library counts by name."""
    for metric in vars(Metrics).values():
        if isinstance(metric, Metric):
            bridged = metric.name.startswith("specdecode.bridge.")
            assert metric.emitted_by == ("collector" if bridged else "library")


def test_positions_fold_at_16() -> None:
    """Sixteen positions have a label of their own, all later ones share one."""
    positions, lengths = Enum.SPECDECODE_DRAFT_POSITION, Enum.SPECDECODE_DRAFT_LENGTH

    assert positions == (*(str(place) for place in range(16)), "16+")
    assert lengths == (*positions, "unknown")


def test_no_metric_has_the_exact_draft_length() -> None:
    """The exact draft length is a span attribute only; metrics carry the folded one."""
    for metric in vars(Metrics).values():
        if isinstance(metric, Metric):
            assert Attr.SPECDECODE_DRAFT_MAX_TOKENS not in metric.labels
