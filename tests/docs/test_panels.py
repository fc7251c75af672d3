"""Panels and fields that the pages name are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from otel_specdecode.telemetry.names import Enum
from tests.collector.test_rules import in_italics, panels_named, registry_names, titles_on
from tests.docs.pages import DOCS, ROOT, prose, text_of

pytestmark = pytest.mark.source

PAGES = [DOCS / f"{name}.md" for name in ("quick-start", "semantics", "faq")]
NAMING_PANELS = [*PAGES, DOCS / "troubleshooting.md"]
DASHBOARDS = ROOT / "collector" / "grafana" / "dashboards"


@pytest.mark.parametrize("page", NAMING_PANELS, ids=lambda page: page.stem)
def test_a_panel_is_on_the_dashboard_that_the_page_names(page: Path) -> None:
    titles = {dashboard.stem: titles_on(dashboard) for dashboard in DASHBOARDS.glob("*.json")}
    named = list(panels_named(prose(text_of(page))))
    assert named
    assert not [(where, title) for where, title in named if title not in titles[where]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_is_in_italics_is_a_panel(page: Path) -> None:
    titles = set().union(*(titles_on(dashboard) for dashboard in DASHBOARDS.glob("*.json")))
    assert set(in_italics(prose(text_of(page)))) <= titles


@pytest.mark.parametrize("page", NAMING_PANELS, ids=lambda page: page.stem)
def test_a_field_or_hazard_is_in_the_registry(page: Path) -> None:
    named = set(re.findall(r"`((?:specdecode|gen_ai)\.[\w.]*\w)`", text_of(page)))
    assert named
    assert named <= registry_names()


@pytest.mark.parametrize("page", NAMING_PANELS, ids=lambda page: page.stem)
def test_a_recording_rule_that_a_query_reads_is_shipped(page: Path) -> None:
    rules = "\n".join(text_of(path) for path in (ROOT / "collector" / "prometheus" / "rules").glob("*.yaml"))
    shipped = set(re.findall(r"record: (\S+)", rules))
    assert set(re.findall(r"\b(?:service|node):specdecode_\w+:\w+", text_of(page))) <= shipped


def test_any_other_word_of_a_code_is_a_hazard_or_a_reason_to_fall_back() -> None:
    words = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", text_of(DOCS / "faq.md")))
    codes = words - {"num_draft_tokens", "num_pred_tokens"}
    assert codes
    assert codes <= {*Enum.SPECDECODE_HAZARD_ID, *Enum.SPECDECODE_FALLBACK_REASON}
