"""CSV that no spreadsheet runs, Markdown that no table breaks, and a badge that says no more than it may."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

pytest.importorskip("jinja2", reason="needs the [acceptance] extra")
pytest.importorskip("matplotlib", reason="needs the [acceptance] extra")
pytest.importorskip("msgspec", reason="needs the [acceptance] extra")
pytest.importorskip("scipy", reason="needs the [acceptance] extra")

from otel_specdecode.acceptance.report.escaping import csv_cell, markdown, printable
from otel_specdecode.acceptance.report.formats import as_badge, as_csv, as_json, as_markdown
from tests.acceptance.report.cases import changed, good, hostile, report_of, sweep, verdict_of


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "  =1"])
def test_a_text_that_a_spreadsheet_would_run_is_quoted(text: str) -> None:
    assert csv_cell(text) == f"'{text}"


def test_a_plain_text_is_left_as_it_is() -> None:
    assert csv_cell("k=4 draft-q4") == "k=4 draft-q4"


def test_csv_holds_hostile_names_as_texts() -> None:
    rows = list(csv.reader(as_csv(report_of(hostile())).splitlines()))
    assert len({len(row) for row in rows}) == 1
    assert rows[1][0].startswith("'=cmd <script>")
    assert not any(
        cell.startswith(("=", "+", "@", "-")) and not re.fullmatch(r"-[\d.e-]+", cell) for row in rows for cell in row
    )


def test_markdown_keeps_its_tables_whatever_the_names_are() -> None:
    text = as_markdown(report_of(hostile()))
    bars = [len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines() if line.startswith("|")]
    assert set(bars) == {6, 10}
    assert "<script" not in text.replace(r"\<script", "")


def test_markdown_escapes_its_own_signs() -> None:
    assert markdown("a|b*c_d`e[f]<g>\\\nh") == r"a\|b\*c\_d\`e\[f\]\<g\>\\ h"


def test_what_does_not_print_is_no_part_of_a_line() -> None:
    assert printable("a\x00b\u202ec\ud800d\ne") == "a b c?d e"
    assert printable("x" * 300, 10) == "x" * 9 + "…"


def test_json_holds_half_a_character_without_failing() -> None:
    odd = replace(sweep(), head=replace(sweep().head, options={"note": "\ud800"}))
    assert as_json(report_of(odd)).encode("ascii")


def test_the_badge_of_a_decided_run_has_the_headlines_numbers() -> None:
    accepted = replace(verdict_of(sweep()), status="accepted")
    report = report_of(sweep(), verdict=accepted)
    badge = ET.fromstring(as_badge(report))
    assert badge.attrib["aria-label"] == f"speculative decoding: accepted: {report.headline.short}"
    assert len(as_badge(report)) < 2000


def test_the_badge_of_an_invalid_run_has_no_number() -> None:
    assert ET.fromstring(as_badge(good())).attrib["aria-label"] == "speculative decoding: invalid"


def test_a_badge_is_refused_where_the_headline_is() -> None:
    blind = changed(sweep(), lambda each: replace(each, peak_rss=None))
    accepted = replace(verdict_of(blind), status="accepted")
    assert ET.fromstring(as_badge(report_of(blind, verdict=accepted))).attrib["aria-label"].endswith(": no headline")
    assert "no headline: missing memory" in as_markdown(report_of(blind))


def test_a_hostile_badge_is_xml() -> None:
    report = report_of(hostile(), verdict=replace(verdict_of(hostile()), status="rejected"))
    texts = [each.text for each in ET.fromstring(as_badge(report)).iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == "speculative decoding"
    assert "<script>" in texts[1]
