"""The committed dashboards ask only for what there is, say what their numbers are, and fit on a screen."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collector.grafana.gates import GRID, DashboardError, check
from collector.grafana.promql import FILTERS, PROCESSES, alerts, known_series, selector
from collector.grafana.reading import defaults, expand, panels, queries, variables
from collector.rulekit.promql import names_in
from collector.rulekit.render import RUNBOOKS
from otel_specdecode.thresholds import thresholds
from tests.collector.dashboards import FOLDER, NAMES, dashboard
from tests.collector.quiet import GUARD, MAY_BE_EMPTY, SCRAPED, may_be_empty
from tests.programs import ROOT

pytestmark = pytest.mark.source

Change = Callable[[dict[str, Any]], None]


def panel_of(board: dict[str, Any], title: str) -> dict[str, Any]:
    found: dict[str, Any] = next(panel for panel in panels(board) if panel["title"] == title)  # type: ignore[assignment]
    return found


def asks(expr: str) -> Change:
    def change(board: dict[str, Any]) -> None:
        panel_of(board, "Requests")["targets"][0]["expr"] = expr

    return change


def sets(title: str, *path: str | int, to: object) -> Change:
    def change(board: dict[str, Any]) -> None:
        node: Any = panel_of(board, title)
        for key in path[:-1]:
            node = node[key]
        node[path[-1]] = to

    return change


def offers(variable: str, *values: str) -> Change:
    def change(board: dict[str, Any]) -> None:
        found = next(one for one in variables(board) if one["name"] == variable)
        found["options"] = [{"text": value, "value": value} for value in values]  # type: ignore[index]

    return change


def links_to(url: str) -> Change:
    return sets("Alerts that fire", "fieldConfig", "defaults", "links", to=[{"title": "Runbook", "url": url}])


def refuses(change: Change, problem: str, name: str = "overview") -> None:
    board = dashboard(name)
    check(board)
    change(board)
    with pytest.raises(DashboardError, match=re.escape(problem)):
        check(board)


def test_there_are_four_and_nothing_beside_them() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {f"{name}.json" for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_a_committed_dashboard_keeps_the_rules(name: str) -> None:
    check(dashboard(name))


@pytest.mark.parametrize("name", NAMES)
def test_all_have_the_same_variables_and_lead_to_each_other_with_them(name: str) -> None:
    board = dashboard(name)
    expected = ["datasource", "traces", "logs", *FILTERS, "slo_first_token", "slo_per_token"]
    assert [one["name"] for one in variables(board)] == expected + ["instance"] * (name == "node")
    (link,) = board["links"]
    assert link["tags"] == board["tags"]
    assert link["includeVars"]
    assert link["keepTime"]
    assert board["graphTooltip"] == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_screen_of_1440_pixels_shows_at_most_four_figures_in_a_row_and_three_graphs(name: str) -> None:
    least = {"stat": 6, "timeseries": 8, "heatmap": 8, "table": 12, "state-timeline": 12, "logs": 24, "text": 8}
    for panel in panels(dashboard(name)):
        assert least[panel["type"]] <= panel["gridPos"]["w"] <= GRID, panel["title"]


@pytest.mark.parametrize("name", NAMES)
def test_every_filter_that_a_series_has_the_label_of_is_used_or_the_label_is_fixed(name: str) -> None:
    for query in queries(dashboard(name)):
        if query.kind != "prometheus" or "ALERTS" in query.expr:
            continue
        for found in names_in(expand(query.expr, defaults(dashboard(name)))).selectors:
            matched = {label for label, _, _ in found.matchers}
            if ("specdecode_mode", "=", "autoregressive") in found.matchers:
                matched.add("specdecode_method")  # which no autoregressive request has
            assert matched >= set(FILTERS.values()) & known_series()[found.metric], (query, found)


def test_a_series_is_filtered_by_the_labels_that_it_has() -> None:
    assert selector("specdecode_process_footprint_bytes") == (
        'specdecode_process_footprint_bytes{job=~"$job", node=~"$node"}'
    )
    assert '$cohort"' not in selector("specdecode_request_active")
    assert '"$mode"' not in selector("specdecode_rollbacks_total", 'specdecode_mode="speculative"')
    assert '"$mode"' not in selector("specdecode_rollbacks_total", 'specdecode_mode!="speculative"')
    with pytest.raises(KeyError):
        selector("specdecode_rollback_total")


def test_what_is_told_of_a_machine_alone_is_kept_to_machines_of_the_chosen_services() -> None:
    assert selector("node:specdecode_memory:ratio") == (
        '(node:specdecode_memory:ratio{node=~"$node"}'
        ' and on (node) process_memory_usage_bytes{job=~"$job", node=~"$node"})'
    )
    asked = 0
    for board in map(dashboard, NAMES):
        for query in queries(board):
            if query.kind != "prometheus" or "ALERTS" in query.expr:
                continue
            read = names_in(expand(query.expr, defaults(board))).selectors
            of_machines = [one for one in read if known_series()[one.metric] & {"node", "job"} == {"node"}]
            asked += len(of_machines)
            assert query.expr.count(f"and on (node) {PROCESSES}{{") == len(of_machines), query
    assert asked > 10


def test_alerts_are_those_of_the_chosen_services_and_of_their_machines() -> None:
    of_services, of_machines = alerts('severity="critical"').split(" or ")
    assert 'job=~"$job", node=~"$node|"' in of_services
    assert 'job="", node=~"$node"' in of_machines
    assert of_machines.endswith(f'and on (node) {PROCESSES}{{job=~"$job", node=~"$node"}}))')


def overrides(panel: dict[str, Any]) -> set[tuple[str, str]]:
    return {
        (one["matcher"]["options"], each["id"])
        for one in panel["fieldConfig"]["overrides"]
        for each in one["properties"]
    }


def test_where_machines_are_compared_the_mode_is_the_kind_of_line_and_elsewhere_the_colour() -> None:
    machines = overrides(panel_of(dashboard("overview"), "Time per token by machine"))
    assert {what for _, what in machines} == {"custom.lineStyle", "custom.lineWidth"}
    modes = overrides(panel_of(dashboard("incident"), "Time per token p95"))
    assert {what for _, what in modes} == {"color"}


def test_what_ran_is_named_by_its_draft_its_engine_and_the_first_digits_of_its_manifest() -> None:
    (target,) = panel_of(dashboard("incident"), "Round duration by manifest")["targets"]
    assert target["legendFormat"].startswith(
        "draft {{specdecode_draft_model}}, engine {{specdecode_engine_version}} ({{specdecode_manifest_id}})"
    )
    assert '"$1", "specdecode_manifest_id", "(.{8}).*"' in expand(target["expr"], defaults(dashboard("incident")))


def test_a_panel_says_which_variables_do_not_touch_it() -> None:
    panel = panel_of(dashboard("overview"), "Decode speed-up")
    assert panel["description"].endswith("Not filtered by mode, cohort.")
    assert panel_of(dashboard("overview"), "Output")["description"].endswith("never 0 divided by 0.")


def numbers_in(node: object) -> set[float]:
    if isinstance(node, dict):
        return set().union(*map(numbers_in, node.values()))
    return {float(node)} if isinstance(node, (int, float)) and not isinstance(node, bool) else set()


def test_where_a_value_is_judged_the_number_is_one_of_the_thresholds() -> None:
    judged = {
        step["value"]
        for name in NAMES
        for panel in panels(dashboard(name))
        for step in panel.get("fieldConfig", {}).get("defaults", {}).get("thresholds", {}).get("steps", ())
    }
    assert {1.15, 0.78, 60} <= judged
    assert judged - {None, 0.0} <= numbers_in(thresholds())


def test_a_figure_is_that_of_now_and_has_a_colour_only_where_it_is_judged() -> None:
    figures = [panel for name in NAMES for panel in panels(dashboard(name)) if panel["type"] == "stat"]
    assert {"thresholds" in panel["fieldConfig"]["defaults"] for panel in figures} == {True, False}
    for panel in figures:
        judged = "thresholds" in panel["fieldConfig"]["defaults"]
        assert panel["options"]["colorMode"] == ("value" if judged else "none"), panel["title"]
        assert all(target["instant"] for target in panel["targets"]), panel["title"]


def test_links_into_traces_hang_on_raw_histograms_alone() -> None:
    found = [
        (panel["title"], target["expr"])
        for name in NAMES
        for panel in panels(dashboard(name))
        for target in panel.get("targets", ())
        if target.get("exemplar")
    ]
    assert {"Time to first token p95", "Time per token p95"} <= {title for title, _ in found}
    assert all("_bucket{" in expr for _, expr in found)


def test_what_may_be_empty_is_a_query_that_there_is() -> None:
    there = {(one.dashboard, one.panel, one.ref_id) for name in NAMES for one in queries(dashboard(name))}
    places = there | {(board, panel, "") for board, panel, _ in there}
    assert MAY_BE_EMPTY.keys() <= places
    assert all(MAY_BE_EMPTY.values())
    by_place = {one[:3]: may_be_empty(one) for name in NAMES for one in queries(dashboard(name))}
    assert by_place["specdecode-incident", "Guard scopes", "A"] == GUARD
    assert by_place["specdecode-speculation", "Accept rate by model and k", "A"] is None
    assert by_place["specdecode-speculation", "Accept rate by model and k", "C"] == SCRAPED


def test_queries_are_read_from_panels_closed_rows_and_annotations() -> None:
    board = dashboard("incident")
    row = {"type": "row", "title": "Closed", "panels": [panel_of(board, "HTTP requests")]}
    found = queries({**board, "panels": [row]})
    assert found[0][:3] == ("specdecode-incident", "HTTP requests", "A")
    assert {one.kind for one in found} == {"prometheus", "loki"}
    assert "annotation: Burst begins" in {one.panel for one in found}


def test_a_query_reads_with_values_for_its_variables() -> None:
    expr = 'sum(rate(a_total{job=~"$job", model=~"${model:regex}"}[$__rate_interval]))'
    assert expand(expr, {"job": ".+", "model": "a|b"}, "1m") == 'sum(rate(a_total{job=~".+", model=~"a|b"}[1m]))'
    with pytest.raises(KeyError):
        expand("$nobody", {})


def test_a_dashboard_opens_on_everything_but_measurements() -> None:
    opened = defaults(dashboard("overview"))
    assert opened["job"] == ".+"
    assert opened["model"] == ".*"
    assert opened["cohort"] == "normal|control|probe|fallback"
    assert opened["slo_first_token"] == "0.85"


@pytest.mark.parametrize(
    ("expr", "problem"),
    [
        ("sum(rate(specdecode_rollback_total[$__rate_interval]))", "no metric specdecode_rollback_total"),
        ("node:specdecode_later:ratio5m", "no metric node:specdecode_later:ratio5m"),
        ('specdecode_request_active{specdecode_cohort=~"$cohort"}', "has no label specdecode_cohort"),
        ("sum by (modle) (specdecode_request_active)", "no label modle"),
        ('specdecode_request_active{specdecode_mode="fast"}', "specdecode_mode is never fast"),
        ('specdecode_request_active{job=~"$service"}', "no variable service"),
        ("rate(specdecode_rollbacks_total[5m])", "a fixed window, 5m,"),
        ("specdecode_request_active offset 1h", "a fixed window, 1h,"),
        ("rate(specdecode_rollbacks_total[1h])", "a fixed window, 1h,"),
        ("last_over_time(specdecode_request_active[2h] offset $__rate_interval)", "a fixed window, 2h,"),
        ("last_over_time(specdecode_request_active[1h] offset 5m)", "a fixed window, 5m,"),
        (
            "sum(rate(gen_ai_client_token_usage_sum[$__rate_interval]))",
            "gen_ai_client_token_usage_sum leaves out requests under an outer GenAI client span",
        ),
        ("sum(specdecode_request_active) / sum(specdecode_request_active)", "a division by what can be 0"),
        ("specdecode_request_active / (specdecode_request_active + 1)", "a division by what can be 0"),
        ("specdecode_request_active / ((specdecode_request_active > 0) + 1)", "a division by what can be 0"),
        ("specdecode_request_active ? 1", "not understood"),
    ],
)
def test_a_query_that_cannot_show_what_it_says_is_refused(expr: str, problem: str) -> None:
    refuses(asks(expr), problem)


@pytest.mark.parametrize(
    "expr",
    [
        "specdecode_request_active / (specdecode_request_active > 0)",
        "specdecode_request_active / ((specdecode_request_active / 60) > 0)",
        "specdecode_request_active / on (job) group_left () (sum by (job) (specdecode_request_active) > 0)",
        "specdecode_request_active / 60",
        "increase(specdecode_rollbacks_total[$__range]) and specdecode_request_active offset $__rate_interval",
        'last_over_time(specdecode_request_active{job="a"}[1h] offset $__rate_interval)',
    ],
)
def test_a_query_that_is_guarded_is_taken(expr: str) -> None:
    board = dashboard("overview")
    asks(expr)(board)
    check(board)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (sets("Requests", "fieldConfig", "defaults", "unit", to=""), "Requests: no unit"),
        (sets("Requests", "fieldConfig", "defaults", "noValue", to=""), "nothing to show where there is no value"),
        (sets("Requests", "description", to=""), "Requests: no description"),
        (sets("Requests", "datasource", to={"type": "prometheus", "uid": "P1"}), "no variable: {'type': 'prometheus'"),
        (sets("Requests", "targets", 0, "datasource", to={"type": "loki", "uid": "${datasource}"}), "no variable"),
        (sets("Requests", "datasource", to="Prometheus"), "a data source that is no variable: Prometheus"),
        (sets("Requests", "targets", 0, to={"refId": "A", "expr": "vector(1)"}), "a query without a data source"),
        (sets("Requests", "id", to=1), "1: 2 panels of this id"),
        (sets("Requests", "title", to="Within $nobody s"), "no variable nobody"),
        (sets("Requests", "title", to="Errors"), "Errors: 2 panels of this title"),
        (sets("Requests", "gridPos", "w", to=25), "does not fit into 24 columns"),
        (sets("Requests", "gridPos", "w", to=7), "Requests: lies over Errors"),
        (
            offers("slo_first_token", "0.85", "0.8"),
            "0.8 is no bound of gen_ai_server_time_to_first_token_seconds_bucket",
        ),
        (links_to(f"{RUNBOOKS}/SpecdecodeNobody.md"), "no runbook SpecdecodeNobody"),
    ],
)
def test_a_dashboard_that_would_mislead_is_refused(change: Change, problem: str) -> None:
    refuses(change, problem)


def test_a_heatmap_wants_its_query_as_a_heatmap() -> None:
    change = sets("Round durations, speculative", "targets", 0, "format", to="time_series")
    refuses(change, "a heatmap of a query in another format", "speculation")


@pytest.mark.parametrize(
    ("title", "key", "expr", "problem"),
    [
        ("Prompt tokens", "query", "{ span.specdecode.rate > 0 }", "no span attribute specdecode.rate"),
        ("Prompt tokens", "query", '{ resource.host = "a" }', "no resource attribute host"),
        ("Events", "expr", '{job="a"} | specdecode_burst!=""', "no attribute of an event specdecode_burst"),
    ],
)
def test_spans_and_events_are_asked_only_for_attributes_that_they_have(
    title: str, key: str, expr: str, problem: str
) -> None:
    refuses(sets(title, "targets", 0, key, to=expr), problem, "incident")


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("label_values(specdecode_decode_passes, job)", "no metric specdecode_decode_passes"),
        ('label_values({__name__=~"specdecode_rounds|up"}, job)', "no metric specdecode_rounds"),
        ("label_values(specdecode_request_active, specdecode_cohort)", "no label specdecode_cohort"),
        ("label_values(gen_ai_client_token_usage_count, job)", "gen_ai_client_token_usage_count leaves out requests"),
        ('label_values(specdecode_request_active{host=~"$node"}, job)', "no label host"),
    ],
)
def test_a_variable_lists_only_labels_that_there_are(query: str, problem: str) -> None:
    def change(board: dict[str, Any]) -> None:
        next(one for one in variables(board) if one["name"] == "job")["query"]["query"] = query

    refuses(change, problem)


def test_without_its_classes_the_generator_says_what_it_needs_in_one_line() -> None:
    script = "import sys; sys.modules['grafana_foundation_sdk'] = None; from collector.grafana.__main__ import main; "
    command = [sys.executable, "-c", script + "sys.exit(main(['--check']))"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "Python 3.11 or newer" in line
    assert "the dev extra" in line


def test_a_link_for_every_alert_wants_a_page_for_every_alert(tmp_path: Path) -> None:
    with pytest.raises(DashboardError, match="no runbook SpecdecodeAcceptRateCollapsed, SpecdecodeAcceptRateLow, "):
        check(dashboard("overview"), tmp_path)
