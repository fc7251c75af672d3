"""Reads dashboards back: what each panel asks which data source, and how a question reads once variables have values.

This is what tests use; it needs no more than the JSON.

- `queries` lists every query of a dashboard, those of annotations included.
- `defaults` has the value of each variable as the dashboard opens: all of everything but the cohort `bench`.
- `expand` puts values in. A query without variables can be sent to its data source.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

Dashboard = Mapping[str, Any]
"""A dashboard as its file holds it."""

ALL = "$__all"
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)(?::\w+)?\}|([A-Za-z_]\w*))")
_INTERVALS = ("__rate_interval", "__interval", "__range")


class Query(NamedTuple):
    """One question of a dashboard.

    Attributes:
        dashboard: Its uid.
        panel: Title of the panel; of an annotation ``annotation: `` and its name.
        ref_id: Of the query within the panel.
        expr: PromQL, LogQL or TraceQL, variables not expanded.
        kind: ``prometheus``, ``loki`` or ``tempo``.
    """

    dashboard: str
    panel: str
    ref_id: str
    expr: str
    kind: str


def queries(dashboard: Dashboard) -> list[Query]:
    """Return every query of a dashboard."""
    uid = dashboard["uid"]
    found = [
        Query(uid, panel["title"], target["refId"], target.get("expr") or target["query"], target["datasource"]["type"])
        for panel in panels(dashboard)
        for target in panel.get("targets", ())
    ]
    annotations = [
        Query(uid, f"annotation: {one['name']}", "A", one["expr"], one["datasource"]["type"])
        for one in dashboard["annotations"].get("list", ())
        if "expr" in one
    ]
    return found + annotations


def panels(dashboard: Dashboard) -> Iterator[Mapping[str, Any]]:
    """Yield every panel that is no row, those of closed rows included."""
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            yield from panel.get("panels", ())
        else:
            yield panel


def variables(dashboard: Dashboard) -> list[Mapping[str, Any]]:
    """Return a dashboard's variables."""
    return list(dashboard["templating"]["list"])


def defaults(dashboard: Dashboard) -> dict[str, str]:
    """Return the value of each variable as the dashboard opens, in the form that goes into a query."""
    return {one["name"]: _value(one) for one in variables(dashboard)}


def expand(expr: str, values: Mapping[str, str], interval: str = "5m") -> str:
    """Return an expression with values for its variables.

    Args:
        expr: Of a `Query`.
        values: By the variable's name. Several are joined by ``|``; nothing is escaped.
        interval: For ``$__rate_interval``, ``$__interval`` and ``$__range``.

    Raises:
        KeyError: A variable has no value.
    """
    known = {**dict.fromkeys(_INTERVALS, interval), **values}
    return _VARIABLE.sub(lambda match: known[match[1] or match[2]], expr)


def variables_in(expr: str) -> set[str]:
    """Return the names of the variables that an expression uses, Grafana's own left out."""
    return {match[1] or match[2] for match in _VARIABLE.finditer(expr)} - set(_INTERVALS)


def _value(variable: Mapping[str, Any]) -> str:
    value = variable.get("current", {}).get("value", "")
    if value in (ALL, [ALL]):
        return str(variable["allValue"])
    return value if isinstance(value, str) else "|".join(value)
