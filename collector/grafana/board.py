"""Puts panels into a dashboard: rows of panels from left to right, shared variables, links to the other dashboards."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard

from collector.grafana.panels import Panel
from collector.grafana.variables import shared

GRID = 24
TAG = "otel-specdecode"
UID = "specdecode-{}"


@dataclass(frozen=True)
class Section:
    """Panels under a heading.

    Attributes:
        closed: Whether it is folded away at first, for what few look at.
    """

    title: str
    panels: Sequence[Panel]
    closed: bool = False


@dataclass(frozen=True)
class Board:
    """A dashboard.

    Attributes:
        name: Of its file, and the end of its uid.
        variables: Further ones than those that all share.
    """

    name: str
    title: str
    about: str
    sections: Sequence[Section]
    variables: Sequence[dashboard.VariableModel] = ()
    annotations: Sequence[dashboard.AnnotationQuery] = ()
    span: str = "now-1h"


def render(board: Board) -> str:
    """The text of a dashboard's file."""
    link = (
        build.DashboardLink("otel-specdecode")
        .type(dashboard.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .include_vars(True)
        .keep_time(True)
        .as_dropdown(False)
    )
    made = (
        build.Dashboard(board.title)
        .uid(UID.format(board.name))
        .description(board.about)
        .tags([TAG])
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .time(board.span, "now")
        .refresh("1m")
        .editable()
        .link(link)
        .build()
    )
    made.templating.list_val = [*shared(), *board.variables]
    made.annotations.list_val = list(board.annotations)
    made.panels = _laid_out(board.sections)
    return json.dumps(made, cls=JSONEncoder, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def _laid_out(sections: Sequence[Section]) -> list[Panel | dashboard.RowPanel]:
    placed: list[Panel | dashboard.RowPanel] = []
    number, y = 0, 0
    for section in sections:
        number += 1
        row = dashboard.RowPanel(
            section.closed, section.title, grid_pos=dashboard.GridPos(1, GRID, 0, y), id_val=number
        )
        placed.append(row)
        x, top, below = 0, y + 1, y + 1
        for panel in section.panels:
            number += 1
            where = panel.grid_pos or dashboard.GridPos()
            if x + where.w > GRID:
                x, top = 0, below
            panel.id_val, panel.grid_pos = number, dashboard.GridPos(where.h, where.w, x, top)
            x, below = x + where.w, max(below, top + where.h)
        (row.panels if section.closed else placed).extend(section.panels)
        y = y + 1 if section.closed else below
    return placed
