"""A real Prometheus understands every query of the dashboards, whatever is chosen in their variables."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from collector.grafana.promql import FILTERS
from collector.grafana.reading import defaults, expand, queries
from tests.collector.dashboards import NAMES, dashboard
from tests.e2e.pipeline import Prometheus, prometheus

pytestmark = [pytest.mark.e2e, pytest.mark.source]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with prometheus(tmp_path_factory.mktemp("prometheus")) as made:
        yield made


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("chosen", ["everything", "one", "several"])
def test_every_query_is_understood(running: Prometheus, name: str, chosen: str) -> None:
    board = dashboard(name)
    values = defaults(board)
    if chosen != "everything":
        values |= dict.fromkeys([*FILTERS, "instance"], "one" if chosen == "one" else "(one|two)")
    asked = [query for query in queries(board) if query.kind == "prometheus"]
    assert len(asked) > 15
    for query in asked:
        running.query(expand(query.expr, values, "1m"))


def test_a_query_that_is_none_is_refused(running: Prometheus) -> None:
    with pytest.raises(ValueError, match="parse error"):
        running.query("sum(")
