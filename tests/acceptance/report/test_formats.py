"""CSV that no spreadsheet runs, Markdown that no table breaks, and a badge that says no more than it may."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

pytest.importorskip("jinja2", reason="needs the [acceptance] extra")
pytest.importorskip("matplotlib", reason="needs the [acceptance] extra")
pytest.importorskip("msgspec", reason="needs the [acceptance] extra")
pytest.importorskip("scipy", reason="needs the [acceptance] extra")

from otel_specdecode.acceptance.gates.policy_file import preset_policy
from otel_specdecode.acceptance.gates.verdict import Verdict, evaluate
from otel_specdecode.acceptance.knee import knee
from otel_specdecode.acceptance.records import Run
from otel_specdecode.acceptance.report.escaping import csv_cell, markdown, printable
from otel_specdecode.acceptance.report.facts import Report, gather
from otel_specdecode.acceptance.report.formats import as_badge, as_csv, as_json, as_markdown
from otel_specdecode.acceptance.report.page import page
from tests.acceptance.fakes import arms, fake_run, prompts
from tests.acceptance.report.cases import NOW, WORLD, at_once, changed, good, hostile, report_of, sweep, verdict_of


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


def everywhere(report: Report) -> list[str]:
    """Return what the page, JSON and Markdown say, as texts."""
    return [re.sub(r"<[^>]+>", "", page(report)), as_json(report), as_markdown(report)]


def accepted(run: Run, arm: str | None = None) -> Verdict:
    """Return a verdict that advises to take an arm."""
    asked = None if arm is None else tuple(each for each in run.head.arms if each.name == arm)
    judged = evaluate(preset_policy("balanced"), run, None, now=NOW, arm=arm)
    return replace(judged, status="accepted", stay_on_ar=False, reason=knee(run, asked).why)


def blind(run: Run) -> Run:
    return changed(run, lambda each: replace(each, peak_rss=None))


def test_where_the_headline_is_refused_no_advice_has_its_number() -> None:
    for text in everywhere(report_of(blind(sweep()), verdict=accepted(blind(sweep())))):
        assert "k=4 looks best; no number is quoted, since memory is missing." in text
        assert "times as fast" not in text
    for text in everywhere(report_of(sweep(), verdict=accepted(sweep()))):
        assert "Take k=4: " in text
        assert "times as fast" in text


def test_nor_has_that_of_a_run_that_was_not_judged() -> None:
    run = changed(sweep(), lambda each: replace(each, peak_rss=None, check=None, text_digest=None))
    for text in everywhere(gather(run, None, None, evidence={}, made_at=NOW)):
        assert "No gates were asked. k=4 looks best; no number is quoted, since memory and quality are missing." in text
        assert "times as fast" not in text


def test_nor_has_that_of_an_arm_that_was_asked_for() -> None:
    found = report_of(blind(sweep()), verdict=accepted(blind(sweep()), "k=2"))
    assert found.verdict.reason == (
        "k=2 looks faster than autoregressive decoding; no number is quoted, since memory is missing."
    )
    assert found.knee.why == "k=4 looks best; no number is quoted, since memory is missing."


def test_the_reason_to_stay_keeps_its_numbers() -> None:
    slow = blind(fake_run(arms((2,)), prompts(6), replace(WORLD, accept=0.1)))
    for text in everywhere(report_of(slow)):
        assert "Stay on autoregressive decoding: the best arm, k=2, is only 0." in text


def test_the_best_of_each_number_of_requests_at_once_is_in_every_format() -> None:
    report = report_of(at_once(1, 2, 4))
    _, two, four = json.loads(as_json(report))["knees"]
    assert [(each["concurrency"], each["best"], each["stay"]) for each in (two, four)] == [
        (2, "k=4 c=2", False),
        (4, "k=4 c=4", False),
    ]
    text, markdown_text = page(report), as_markdown(report)
    for level, each in ((2, two), (4, four)):
        assert each["why"].startswith(f"Take k=4 c={level}: ")
        sentence = f"With {level} requests at once, t{each['why'][1:]}"
        assert f"<p><strong>{sentence}</strong>" in text
        assert f"- {markdown(sentence)}" in markdown_text
    assert f"- {markdown(report.knee.why)}" in markdown_text


def test_a_level_whose_headline_would_be_refused_has_no_number() -> None:
    run = changed(at_once(1, 2), lambda each: replace(each, peak_rss=None) if each.arm.endswith("c=2") else each)
    found = report_of(run)
    assert found.knee.why.startswith("Take k=4: ")
    assert found.levels == (
        "With 2 requests at once, k=4 c=2 looks best; no number is quoted, since memory is missing.",
    )


def test_a_run_of_one_level_says_nothing_of_levels() -> None:
    assert report_of(at_once(2)).levels == ()
    for text in (*everywhere(good()), *everywhere(report_of(at_once(2)))):
        assert "requests at once," not in text
        assert "By speed alone" not in text
