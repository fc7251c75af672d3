"""One number in every format: what the page shows is what JSON and CSV hold."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import pytest

pytest.importorskip("jinja2", reason="needs the [acceptance] extra")
pytest.importorskip("matplotlib", reason="needs the [acceptance] extra")
pytest.importorskip("msgspec", reason="needs the [acceptance] extra")
pytest.importorskip("scipy", reason="needs the [acceptance] extra")

from otel_specdecode.acceptance.endurance import endurance
from otel_specdecode.acceptance.figures import arm_figures, in_tier, speed_up
from otel_specdecode.acceptance.report import wording
from otel_specdecode.acceptance.report.cost import Rates
from otel_specdecode.acceptance.report.formats import as_csv, as_json, as_markdown
from otel_specdecode.acceptance.report.page import page
from otel_specdecode.acceptance.report.rows import COLUMNS
from tests.acceptance.report.cases import WORLD, changed, good, good_page, report_of, soak, sweep

K4 = sweep().head.arms[2]


@pytest.fixture(scope="module")
def text() -> str:
    return good_page()


@pytest.fixture(scope="module")
def document() -> dict:
    return json.loads(as_json(good()))


@pytest.fixture(scope="module")
def table() -> list[dict[str, str]]:
    return list(csv.DictReader(as_csv(good()).splitlines()))


def test_the_numbers_of_every_arm_are_the_same_everywhere(text, document, table) -> None:
    figures = [arm_figures(sweep(), arm) for arm in sweep().head.arms]
    for number, found in enumerate(figures):
        rate = found.tokens_per_second
        assert document["rows"][number]["tokens_per_second"]["value"] == rate.value
        assert float(table[number]["tokens_per_second"]) == rate.value
        assert float(table[number]["tokens_per_second_low"]) == rate.low
        assert int(table[number]["peak_rss"]) == document["rows"][number]["peak_rss"] == found.peak_rss
        assert wording.plain(rate.value) in text
        assert wording.plain(rate.value) in as_markdown(good())


def test_the_speed_up_has_its_interval_everywhere(text, document, table) -> None:
    ratio = speed_up(sweep(), K4)
    assert document["rows"][2]["speed_up"] == {
        "value": ratio.value,
        "low": ratio.low,
        "high": ratio.high,
        "samples": ratio.samples,
    }
    assert (float(table[2]["speed_up"]), float(table[2]["speed_up_high"])) == (ratio.value, ratio.high)
    assert f"x{ratio.value:.2f}" in text
    assert f"x{ratio.low:.2f} to x{ratio.high:.2f}" in text
    assert ratio.value == pytest.approx(WORLD.speed_up(4), rel=0.05)


def test_csv_has_a_row_for_each_arm_and_each_of_its_tiers_and_kinds(table) -> None:
    parts = [(row["arm"], row["part"], row["of"]) for row in table]
    assert parts[:3] == [("ar", "all", ""), ("k=2", "all", ""), ("k=4", "all", "")]
    assert set(parts[3:]) == {
        (arm, part, of)
        for arm in ("ar", "k=2", "k=4")
        for part, of in (("tier", "short"), ("tier", "mid"), ("kind", "code"), ("kind", "summary"))
    }
    short = next(row for row in table if (row["arm"], row["of"]) == ("k=4", "short"))
    assert float(short["accept_rate"]) == arm_figures(sweep(), K4, in_tier("short")).accept_rate.value


def test_what_an_arm_cannot_have_is_empty_and_no_zero(table, document, text) -> None:
    assert (table[0]["speed_up"], table[0]["accept_rate"], table[0]["peak_footprint"]) == ("", "", "")
    assert document["rows"][0]["accept_rate"] is None
    assert document["rows"][2]["peak_footprint"] is None
    assert '<td class="number">not measured</td>' in text


def test_every_column_is_in_csv_and_json(table, document) -> None:
    names = {column.name for column in COLUMNS}
    assert names <= set(table[0])
    assert names <= set(document["rows"][0])


def test_the_verdict_is_in_every_format(text, document) -> None:
    verdict = good().verdict
    assert document["status"] == verdict.status == "invalid"
    assert [gate["id"] for gate in document["verdict"]["gates"]] == [gate.id for gate in verdict.gates]
    assert text.index('<p class="word">Invalid</p>') < text.index("Signature") < text.index("What each gate says")
    assert as_markdown(good()).startswith("## Invalid: fake-sweep\n")
    for gate in verdict.gates:
        assert f'<th scope="row">{gate.id}<' in text


def test_a_signature_names_what_it_is_for(text) -> None:
    _, _, after = text.partition('<section class="signature"')
    signature = after.partition("</section>")[0]
    for each in (good().run.head.manifest["id"], "ab" * 32, "fake-sweep", "fake-soak", "Invalid"):
        assert str(each) in signature


def test_tokens_cost_what_the_hour_costs(document, text) -> None:
    plain, drafted, rented = document["costs"]["each"]
    per_hour = arm_figures(sweep(), K4).emitted_per_second * 3600
    assert (plain["what"], drafted["what"]) == ("ar", "k=4")
    assert drafted["per_million"] == pytest.approx(0.12 / per_hour * 1e6)
    assert rented["per_million"] == pytest.approx(1.2 / (110 * 3600) * 1e6)
    assert f"{per_hour:,.0f}" in text
    assert f"{drafted['per_million']:.2f}" in text


def test_without_a_rate_there_are_tokens_per_hour_alone() -> None:
    report = report_of(sweep())
    assert [(each.what, each.per_million) for each in report.costs.each] == [("ar", None), ("k=4", None)]
    assert all(each.tokens_per_hour for each in report.costs.each)
    assert report.costs.rates == Rates()


def test_where_speculation_pays_is_said_by_number(text, document) -> None:
    share, rate = document["worthwhile"]
    assert share["value"] == pytest.approx(
        sum(each.decode for each in sweep().of("ar")) / sum(each.duration for each in sweep().of("ar"))
    )
    assert (share["low"], share["holds"]) == (0.65, True)
    assert (rate["low"], rate["high"], rate["value"]) == (0.55, 0.72, arm_figures(sweep(), K4).accept_rate.value)
    assert wording.percent(share["value"]) in text


def test_a_prefill_that_takes_most_of_the_time_does_not_hold() -> None:
    slow = changed(sweep(), lambda each: replace(each, duration=each.decode * 2))
    share, _ = report_of(slow).worthwhile
    assert (share.value, share.holds) == (pytest.approx(0.5), False)


def test_what_was_not_measured_is_named() -> None:
    unmeasured = "\n".join(good().unmeasured)
    for each in (
        "Peak footprint of every arm.",
        "Prompts of the tier long.",
        "Noted by nobody: fan.",
        "Gate quality: ",
    ):
        assert each in unmeasured
    assert "soak" not in unmeasured
    assert "A soak" in "\n".join(report_of(sweep()).unmeasured)


def test_a_line_that_cannot_be_read_is_named() -> None:
    broken = replace(sweep(), faults=("results.jsonl:7: it is not as it was written",))
    assert "A line that cannot be read, results.jsonl:7: it is not as it was written." in report_of(broken).unmeasured


def test_a_run_without_a_result_still_has_a_page() -> None:
    empty = replace(sweep(), results=(), host=(), notes=())
    report = report_of(empty)
    assert "k=4: no request of it counts." in report.unmeasured
    assert "The machine: there is no sample of it." in report.unmeasured
    assert page(report).count('<p class="none">not measured</p>') == 6
    assert as_csv(report).count("\n") == 4
    assert json.loads(as_json(report))["headline"]["text"] is None


def test_a_soak_alone_has_time_lines_too() -> None:
    report = report_of(soak())
    assert [each.run_id for each in report.timelines] == ["fake-soak"]
    assert report.soak_rows == ()


def test_a_soak_says_whether_it_lasts(text, document) -> None:
    memory = endurance(soak(), soak().head.arms[1]).memory
    assert document["endurance"]["fake-soak"][1]["memory"]["goes_up"] == memory.goes_up
    assert "Does it last?" in text
    assert f'</span>\n<td><span class="state open">? {memory.goes_up}</span>' in text.replace("</th>", "")


def test_the_command_that_makes_it_again_is_the_one_that_was_kept_or_what_the_head_tells() -> None:
    told = report_of(sweep()).reproduce
    assert told == (
        "otel-specdecode sweep --engine llama_cpp --model MODEL --draft-tokens 2,4 --prompts PROMPTS",
        "otel-specdecode report fake-sweep -o report.html",
    )
    options = {"command": "otel-specdecode sweep --model /home/somebody/m", "repeats": 3}
    kept = replace(sweep(), head=replace(sweep().head, options=options))
    assert report_of(kept).reproduce[0] == "otel-specdecode sweep --model ~/m"
    whole = replace(
        sweep(),
        head=replace(
            sweep().head,
            manifest={
                "target": {"name": "t"},
                "drafts": {"draft": {"model": {"name": "d"}}, "q4": {"model": {"name": "e"}}},
            },
            options={"repeats": 3, "warm_up": 180.0, "seed": 0, "load": {"shape": "steady"}},
        ),
    )
    assert (
        "--model t --draft d --draft q4=e --draft-tokens 2,4 --repeats 3 --warm-up 180 --seed 0 --prompts PROMPTS"
        in (report_of(whole).reproduce[0])
    )
