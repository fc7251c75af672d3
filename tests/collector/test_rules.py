"""The Prometheus rules are what the generator makes, name only what there is, and belong to a test and a page each."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from collector.grafana.reading import panels
from collector.rulekit import gates
from collector.rulekit.__main__ import main
from collector.rulekit.files import FOLDER, all_alerts, groups, outputs
from collector.rulekit.model import Alert, Group, Recording, RuleError
from collector.rulekit.promql import NotPromQLError, names_in
from collector.rulekit.render import RUNBOOKS
from collector.rulekit.settings import series_by_name
from otel_specdecode.telemetry.names import Metrics
from otel_specdecode.thresholds import thresholds

pytestmark = pytest.mark.source

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "collector" / "prometheus" / "tests"
PAGES = ROOT / "docs" / "runbooks"
INDEX = PAGES / "README.md"
DASHBOARDS = ROOT / "collector" / "grafana" / "dashboards"
NOT_OF_AN_ALERT = {"recording", "awkward"}
SECTIONS = ["Meaning", "Impact", "Diagnosis", "Mitigation", "How to silence"]
ALERTS = {alert.name: alert for alert in all_alerts()}


def promtool_tests(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load((TESTS / f"{name}_test.yaml").read_text())["tests"]
    return found


def test_the_written_files_are_those_that_the_generator_makes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().err


def test_a_stale_file_and_one_that_nobody_makes_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], root=tmp_path) == 0
    assert main(["--check"], root=tmp_path) == 0
    (tmp_path / FOLDER / "recording.yaml").write_text("groups: []\n")
    (tmp_path / FOLDER / "old.yaml").write_text("groups: []\n")
    capsys.readouterr()
    assert main(["--check"], root=tmp_path) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"{FOLDER}/recording.yaml is out of date: run python -m collector.rulekit",
        f"{FOLDER}/old.yaml is made by nobody",
    ]


def test_every_alert_has_a_test_and_a_page_and_none_is_left_over() -> None:
    tests = {path.name.removesuffix("_test.yaml") for path in TESTS.iterdir()}
    pages = {path.stem for path in PAGES.iterdir() if path != INDEX}
    assert tests - NOT_OF_AN_ALERT == pages == ALERTS.keys()
    assert tests >= NOT_OF_AN_ALERT


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_is_tested_firing_and_silent(name: str) -> None:
    cases = [case for test in promtool_tests(name) for case in test["alert_rule_test"]]
    assert {case["alertname"] for case in cases} == {name}
    assert any(case["exp_alerts"] for case in cases)
    silent = [test for test in promtool_tests(name) if not any(case["exp_alerts"] for case in test["alert_rule_test"])]
    assert len(silent) >= 2


@pytest.mark.parametrize("name", ALERTS)
def test_a_page_has_all_that_is_looked_for_at_night(name: str) -> None:
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {name}\n")
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    assert parts[1::2] == SECTIONS
    assert all(part.strip() for part in parts[2::2])
    assert f"amtool silence add alertname={name} " in text


@pytest.mark.parametrize("path", sorted(PAGES.glob("*.md")), ids=lambda path: path.stem)
def test_what_a_page_names_exists(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    recorded = {rule.record for group in groups().values() for rule in group.rules if isinstance(rule, Recording)}
    assert set(re.findall(r"\w+:specdecode_[\w:]+|specdecode:[\w:]+", text)) <= recorded
    assert set(re.findall(r"\bSpecdecode[A-Z]\w+", text)) <= ALERTS.keys()
    assert all((PAGES / link).is_file() for link in re.findall(r"\]\((\w+\.md)\)", text))
    of_metrics = re.findall(r"`((?:specdecode|hw|system|process)_\w+)", text)
    labels = frozenset().union(*series_by_name().values())
    bases = {re.sub(r"_(bucket|sum|count)$", "", name) for name in series_by_name()}
    assert set(of_metrics) <= bases | labels
    assert set(re.findall(r"`(specdecode\.[\w.]+)", text)) <= registry_names()


def registry_names() -> set[str]:
    """Every attribute, metric and event that there is."""
    registry = json.loads((ROOT / "otel_specdecode" / "telemetry" / "registry.json").read_text(encoding="utf-8"))
    return {name for kind in ("attributes", "metrics", "events") for name in registry[kind]}


@pytest.mark.parametrize("path", sorted(PAGES.glob("*.md")), ids=lambda path: path.stem)
def test_links_between_pages_lead_to_a_heading(path: Path) -> None:
    for page, anchor in re.findall(r"\]\((\w+\.md)?#([\w-]+)\)", path.read_text(encoding="utf-8")):
        headings = re.findall(r"^#+ (.+)$", (PAGES / (page or path.name)).read_text(encoding="utf-8"), re.MULTILINE)
        assert anchor in {re.sub(r"[^\w-]", "", heading.lower().replace(" ", "-")) for heading in headings}, anchor


@pytest.mark.parametrize("path", sorted(PAGES.glob("*.md")), ids=lambda path: path.stem)
def test_a_panel_that_a_page_names_is_on_that_dashboard(path: Path) -> None:
    titles = {dashboard.stem: titles_on(dashboard) for dashboard in DASHBOARDS.glob("*.json")}
    text = path.read_text(encoding="utf-8")
    named = list(panels_named(text))
    assert not [(where, title) for where, title in named if title not in titles[where]]
    assert set(in_italics(text)) <= set().union(*titles.values())


def titles_on(path: Path) -> set[str]:
    """The titles of a dashboard's rows and panels."""
    dashboard = json.loads(path.read_text(encoding="utf-8"))
    return {one["title"] for one in (*dashboard["panels"], *panels(dashboard))}


def in_italics(text: str) -> list[str]:
    """What a page has in italics, which is for titles alone."""
    return [" ".join(found.split()) for found in re.findall(r"(?<![\w*])\*([^*]+)\*(?![\w*])", text)]


def panels_named(text: str) -> Iterator[tuple[str, str]]:
    """The panels in ``Overview: *One*, *other*``, each with its dashboard."""
    titles = r"((?:\*[^*]+\*(?:,?\s+(?:and\s+)?)?)+)"
    for dashboard, listed in re.findall(rf"\b(Overview|Speculation|Incident|Node)(?:, row|:)\s+{titles}", text):
        yield from ((dashboard.lower(), title) for title in in_italics(listed))


def test_the_panels_that_a_page_names_are_found() -> None:
    text = "Node: *A*, *B\n   c*. *D*, *e* `f*` Overview, row *By machine*."
    assert list(panels_named(text)) == [("node", "A"), ("node", "B c"), ("overview", "By machine")]
    assert in_italics(text) == ["A", "B c", "D", "e", "By machine"]


def test_the_index_has_every_alert_under_its_severity() -> None:
    parts = re.split(r"^#+ (.+)$", INDEX.read_text(encoding="utf-8"), flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    for severity in ("critical", "warning", "info"):
        rows = re.findall(r"^\| \[(\w+)\]\((\w+)\.md\) \| (.+) \|$", sections[severity], re.MULTILINE)
        alerts = {(name, name, alert.summary) for name, alert in ALERTS.items() if alert.severity == severity}
        assert set(rows) == alerts
    assert set(re.findall(r"\]\((\w+)\.md", sections["When nothing fires"])) <= ALERTS.keys()


@pytest.mark.parametrize("alert", ALERTS.values(), ids=ALERTS.keys())
def test_an_alert_says_what_is_the_matter_and_where_to_read_on(alert: Alert) -> None:
    rules = [rule for text in outputs().values() for rule in yaml.safe_load(text)["groups"][0]["rules"]]
    (written,) = [rule for rule in rules if rule.get("alert") == alert.name]
    assert written["labels"] == {"severity": alert.severity}
    assert written["annotations"]["runbook_url"] == f"{RUNBOOKS}/{alert.name}.md"
    assert "{{" not in written["annotations"]["summary"]
    assert written["annotations"]["summary"].endswith(".")
    assert "$labels" in written["annotations"]["description"]


def test_tests_feed_only_series_that_there_are() -> None:
    known = series_by_name()
    for path in TESTS.iterdir():
        for test in yaml.safe_load(path.read_text())["tests"]:
            for series in test["input_series"]:
                (selector,) = names_in(series["series"]).selectors
                if selector.metric == "up":
                    continue
                assert {label for label, _, _ in selector.matchers} <= known[selector.metric], (path.name, selector)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("sum(specdecode_draft_token_total)", "no metric specdecode_draft_token_total"),
        ("node:specdecode_later:ratio5m", "no metric node:specdecode_later:ratio5m"),
        ('specdecode_rollbacks_total{specdecode_draft_outcome="accepted"}', "has no label specdecode_draft_outcome"),
        (
            'specdecode_draft_tokens_total{specdecode_draft_outcome="acepted"}',
            "specdecode_draft_outcome is never acepted",
        ),
        (
            'specdecode_draft_tokens_total{specdecode_draft_outcome=~"accepted|denied"}',
            "specdecode_draft_outcome is never denied",
        ),
        ("sum by (modle) (specdecode_rollbacks_total)", "no label modle"),
        ("specdecode_rollbacks_total ? 1", "not understood"),
        ("sum by (job (specdecode_rollbacks_total", ") is missing"),
    ],
)
def test_a_rule_that_names_what_nobody_defines_is_not_written(expression: str, problem: str) -> None:
    rule = Recording("node:specdecode_x:sum", "", expression, frozenset())
    with pytest.raises(RuleError, match=re.escape(problem)):
        gates.check([Group("g", (rule,))], series_by_name())


def test_two_rules_of_one_name_and_a_text_with_a_label_that_is_not_there_are_not_written() -> None:
    rule = Recording("node:specdecode_x:sum", "", "vector(1)", frozenset())
    with pytest.raises(RuleError, match="is there already"):
        gates.check([Group("g", (rule, rule))], {})
    alert = dataclasses.replace(ALERTS["SpecdecodeThrottled"], expr="vector(1)", description="{{ $labels.jbo }}")
    with pytest.raises(RuleError, match="uses the label jbo"):
        gates.check([Group("g", (alert,))], {})


def test_a_broken_rule_ends_the_generator(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def without_rollbacks() -> dict[str, frozenset[str]]:
        return {name: labels for name, labels in series_by_name().items() if "rollbacks" not in name}

    monkeypatch.setattr("collector.rulekit.files.series_by_name", without_rollbacks)
    assert main(["--check"]) == 1
    assert "no metric specdecode_rollbacks_total" in capsys.readouterr().err


def test_the_names_of_an_expression_are_found() -> None:
    found = names_in(
        'sum by (job) (rate(a_total{x="}", y!~"b|c"}[5m] offset 1h)) / on (node) group_left () (b:c > 0.5e3)'
    )
    assert [(one.metric, one.matchers) for one in found.selectors] == [
        ("a_total", [("x", "=", "}"), ("y", "!~", "b|c")]),
        ("b:c", []),
    ]
    assert found.labels == {"job", "node"}
    with pytest.raises(NotPromQLError):
        names_in("a{x=}")


def test_every_rule_leaves_measurements_out() -> None:
    counted = {name for name, labels in series_by_name().items() if "specdecode_cohort" in labels}
    for group in groups().values():
        for rule in group.rules:
            for selector in names_in(rule.expr).selectors:
                if selector.metric in counted:
                    assert ("specdecode_cohort", "!=", "bench") in selector.matchers, rule


def test_the_bounds_of_the_accept_rate_are_one_chance_per_token_at_every_length() -> None:
    lengths = Metrics.SPECDECODE_DRAFT_TOKENS.labels
    assert "specdecode.draft.length" in lengths
    for severity, at_four in (("warning", 0.42), ("critical", 0.40)):
        table = thresholds()["accept_rate"][severity]
        assert [*table] == [*map(str, range(1, 16)), "16+"]
        assert table["4"] == at_four
        chance = _chance(at_four, 4)
        for length, bound in table.items():
            assert bound == pytest.approx(_accept_rate(chance, int(length.rstrip("+"))), abs=0.0051)


def _accept_rate(chance: float, length: int) -> float:
    return sum(chance**place for place in range(1, length + 1)) / length


def _chance(rate: float, length: int) -> float:
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if _accept_rate(middle, length) < rate else (low, middle)
    return low
