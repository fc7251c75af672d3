"""The page of variables has every variable of the library, with the default that it has."""

from __future__ import annotations

import re

import pytest

from otel_specdecode.telemetry.content import CAPTURE, chosen_capture
from otel_specdecode.telemetry.http import EXCLUDED_URLS
from otel_specdecode.telemetry.metrics import GENAI_METRICS, chosen_convention
from otel_specdecode.telemetry.tenancy import SESSION_KEYS, TENANT_KEYS, TENANT_METRICS, chosen_tenancy
from tests.docs.pages import DOCS, ROOT, rows, text_of

pytestmark = pytest.mark.source

PAGE = text_of(DOCS / "configuration.md")
OWN = r"\bOTEL_SPECDECODE_[A-Z_]*[A-Z]\b"
PACKAGE = "\n".join(text_of(path) for path in (ROOT / "otel_specdecode").rglob("*.py"))

OURS = {row[0].strip("`"): row for row in rows(PAGE, "## Variables of this library")}
STANDARD = {row[0]: row for row in rows(PAGE, "## Standard variables that this library reads itself")}
MOMENTS = {row[0] for row in rows(PAGE, "## When a variable is read")}


def test_every_variable_of_the_library_has_a_row() -> None:
    assert set(re.findall(OWN, PACKAGE)) == set(OURS)


def test_the_page_knows_no_other_variable_of_that_name() -> None:
    assert set(re.findall(OWN, PAGE)) == set(OURS)


def test_each_is_read_at_a_moment_that_the_page_explains() -> None:
    for row in (*OURS.values(), *STANDARD.values()):
        assert set(row[-1].removesuffix(".").split(", else ")) <= MOMENTS


def test_the_defaults_are_those_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (TENANT_KEYS, SESSION_KEYS, TENANT_METRICS, GENAI_METRICS, CAPTURE):
        monkeypatch.delenv(variable, raising=False)
    tenancy = chosen_tenancy()
    assert {variable: OURS[variable][1] for variable in (TENANT_KEYS, SESSION_KEYS, TENANT_METRICS, GENAI_METRICS)} == {
        TENANT_KEYS: f"`{','.join(tenancy.tenant_keys)}`",
        SESSION_KEYS: f"`{','.join(tenancy.session_keys)}`",
        TENANT_METRICS: f"`{str(tenancy.on_metrics).lower()}`",
        GENAI_METRICS: f"`{chosen_convention()}`",
    }
    assert STANDARD[f"`{CAPTURE}`"][1] == f"`{chosen_capture()}`"


@pytest.mark.parametrize("value", ["NO_CONTENT", "SPAN_ONLY", "EVENT_ONLY", "SPAN_AND_EVENT"])
def test_the_values_of_content_capture_are_those_of_the_library(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CAPTURE, value)
    assert chosen_capture() == value
    assert f"`{value}`" in STANDARD[f"`{CAPTURE}`"][2]


def test_the_variables_of_excluded_urls_stand_in_the_order_in_which_they_count() -> None:
    assert ", else ".join(f"`{name}`" for name in EXCLUDED_URLS) in STANDARD
