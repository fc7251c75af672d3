"""Which dashboard stands in which file."""

from __future__ import annotations

import json

from collector.grafana import incident, node, overview, speculation
from collector.grafana.board import Board, render
from collector.grafana.gates import check

FOLDER = "collector/grafana/dashboards"


def boards() -> tuple[Board, ...]:
    """The four dashboards."""
    return overview.board(), speculation.board(), incident.board(), node.board()


def outputs() -> dict[str, str]:
    """Text of each file by its path from the repository's root.

    Raises:
        DashboardError: A dashboard breaks a rule that all keep.
    """
    made = {f"{FOLDER}/{board.name}.json": render(board) for board in boards()}
    for text in made.values():
        check(json.loads(text))
    return made
