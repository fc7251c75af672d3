"""What every dashboard must keep before it is written. Reads nothing but its JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain, combinations
from pathlib import Path
from typing import Any

from collector.grafana.expressions import ExpressionError, check_expression
from collector.grafana.reading import Dashboard, panels, queries, variables, variables_in
from collector.names import series_names
from collector.rulekit.files import all_alerts
from collector.rulekit.render import RUNBOOKS
from collector.rulekit.settings import METRICS

GRID = 24
PAGES = Path(__file__).resolve().parents[2] / "docs" / "runbooks"
SOURCES = {"prometheus": "${datasource}", "tempo": "${traces}", "loki": "${logs}"}

Panel = Mapping[str, Any]


class DashboardError(Exception):
    """A dashboard that cannot be written. The message names the dashboard and the place in it."""

    def __init__(self, dashboard: Dashboard, place: str, problem: str) -> None:
        super().__init__(f"{dashboard['uid']}: {place}: {problem}")


def check(dashboard: Dashboard, pages: Path = PAGES) -> None:
    """Check a dashboard, given as its file holds it, against all rules and the folder of the runbooks' pages.

    Raises:
        DashboardError: It breaks a rule.
    """
    # One after the other: what is read later relies on what was found right before.
    for place, problem in chain(
        _sources(dashboard, ""),
        _panels(dashboard),
        _grid(dashboard),
        _queries(dashboard),
        _bounds(dashboard),
        _runbooks(dashboard, pages),
    ):
        raise DashboardError(dashboard, place, problem)


def _panels(dashboard: Dashboard) -> Iterator[tuple[str, str]]:
    shown = list(panels(dashboard))
    for panel in shown:
        if not panel.get("description"):
            yield panel["title"], "no description"
        if panel["type"] == "text":
            continue
        field = panel.get("fieldConfig", {}).get("defaults", {})
        for key, what in (("unit", "no unit"), ("noValue", "nothing to show where there is no value")):
            if not field.get(key):
                yield panel["title"], what
        if panel["type"] == "heatmap" and {target.get("format") for target in panel["targets"]} != {"heatmap"}:
            yield panel["title"], "a heatmap of a query in another format"
    rows = [panel for panel in dashboard["panels"] if panel["type"] == "row"]
    for key in ("id", "title"):
        for value, count in Counter(panel[key] for panel in [*shown, *rows]).items():
            if count > 1:
                yield str(value), f"{count} panels of this {key}"


def _grid(dashboard: Dashboard) -> Iterator[tuple[str, str]]:
    for group in (dashboard["panels"], *(row.get("panels", ()) for row in dashboard["panels"])):
        for panel in group:
            where = panel["gridPos"]
            if where["x"] < 0 or where["w"] < 1 or where["x"] + where["w"] > GRID:
                yield panel["title"], f"does not fit into {GRID} columns"
        for one, other in combinations(group, 2):
            if _overlap(one["gridPos"], other["gridPos"]):
                yield one["title"], f"lies over {other['title']}"


def _overlap(one: Mapping[str, int], other: Mapping[str, int]) -> bool:
    return all(one[at] < other[at] + other[size] and other[at] < one[at] + one[size] for at, size in ("xw", "yh"))


def _sources(node: Any, place: str) -> Iterator[tuple[str, str]]:
    """Every data source is one of the variables."""
    if isinstance(node, list):
        for one in node:
            yield from _sources(one, place)
    if not isinstance(node, dict):
        return
    place = str(node.get("title") or node.get("name") or place)
    source = node.get("datasource")
    if source is not None and (
        not isinstance(source, dict) or source.get("uid") != SOURCES.get(str(source.get("type")))
    ):
        yield place, f"a data source that is no variable: {source}"
    for key, value in node.items():
        if key == "targets" and any("datasource" not in target for target in value):
            yield place, "a query without a data source"
        yield from _sources(value, place)


def _queries(dashboard: Dashboard) -> Iterator[tuple[str, str]]:
    known = {variable["name"] for variable in variables(dashboard)}
    asked = [(f"{one.panel} {one.ref_id}", one.kind, one.expr) for one in queries(dashboard)]
    asked += [
        (f"variable {one['name']}", "prometheus", one["query"]["query"])
        for one in variables(dashboard)
        if one["type"] == "query"
    ]
    for panel in panels(dashboard):
        if missing := variables_in(panel["title"]) - known:
            yield panel["title"], f"no variable {', '.join(sorted(missing))}"
    for place, kind, expr in asked:
        if missing := variables_in(expr) - known:
            yield place, f"no variable {', '.join(sorted(missing))}"
        try:
            check_expression(expr, kind)
        except ExpressionError as problem:
            yield place, str(problem)


def _bounds(dashboard: Dashboard) -> Iterator[tuple[str, str]]:
    """What a user can choose as the bound of an SLO is the bound of a bucket; all else would show nothing."""
    buckets = {name: metric.buckets for metric in METRICS.values() for name in series_names(metric)}
    choices = {one["name"]: [option["value"] for option in one.get("options", ())] for one in variables(dashboard)}
    for query in queries(dashboard):
        for name, bounds in buckets.items():
            if f"{name}{{" not in query.expr or 'le="$' not in query.expr:
                continue
            variable = query.expr.split('le="$')[1].split('"')[0]
            for value in choices.get(variable, ()):
                if name.endswith("_bucket") and value not in {str(bound) for bound in bounds or ()}:
                    yield f"variable {variable}", f"{value} is no bound of {name}"


def _runbooks(dashboard: Dashboard, pages: Path) -> Iterator[tuple[str, str]]:
    there = {path.stem for path in pages.glob("*.md")}
    for place, link in _links(dashboard, ""):
        page = link.removeprefix(f"{RUNBOOKS}/").removesuffix(".md")
        wanted = {alert.name for alert in all_alerts()} if "$" in page else {page}
        if absent := wanted - there:
            yield place, f"no runbook {', '.join(sorted(absent))}"


def _links(node: Any, place: str) -> Iterator[tuple[str, str]]:
    """Every link to a runbook."""
    if isinstance(node, str) and node.startswith(RUNBOOKS):
        yield place, node
    elif isinstance(node, list):
        for one in node:
            yield from _links(one, place)
    elif isinstance(node, dict):
        place = str(node.get("title") or place) if "gridPos" in node else place
        for value in node.values():
            yield from _links(value, place)
