"""Where every metric is there, every panel has something to show: the names, labels and joins of its queries fit."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from collector.grafana.reading import Query, defaults, expand, queries
from tests.collector import everything
from tests.collector.dashboards import NAMES, dashboard
from tests.collector.promtool import PROMETHEUS, promtool
from tests.collector.quiet import FINE, NO_ALERT, NO_PROCESS, SAME_MANIFEST, may_be_empty

pytestmark = [pytest.mark.e2e, pytest.mark.source]

RULES = sorted((PROMETHEUS / "rules").glob("*.yaml"), key=lambda path: path.stem != "recording")
WHERE_ALL_IS_FINE = {NO_ALERT, FINE, SAME_MANIFEST, NO_PROCESS}
"""Why a query finds nothing while all metrics are there."""


def questions(chosen: dict[str, str]) -> dict[Query, str]:
    """Every query of metrics, with this chosen and everything else left open."""
    return {
        query: expand(query.expr, {**defaults(board), **chosen}, "5m")
        for board in map(dashboard, NAMES)
        for query in queries(board)
        if query.kind == "prometheus"
    }


def unanswered(asked: dict[Query, str], folder: Path, fine: bool = True) -> dict[Query, str]:
    """The queries that find nothing, with what they read. Fails where a number is none."""
    (folder / "everything.yaml").write_text(_written(set(asked.values()), fine))
    said = promtool("test", "rules", folder / "everything.yaml")
    output = said.stdout + said.stderr
    # It is told to expect nothing, so it tells of each query that finds something.
    found = {json.loads(text) for text in re.findall(r'expr: ("(?:[^"\\]|\\.)*"), time', output)}
    assert found, output[-3000:]
    assert "NaN" not in output
    assert "Inf" not in output.replace("+Inf", "")
    return {query: expr for query, expr in asked.items() if expr not in found}


def _written(expressions: set[str], fine: bool) -> str:
    lines = ["rule_files:", *(f"  - {path}" for path in RULES), "evaluation_interval: 5m"]
    lines += ["group_eval_order: [specdecode-recording]", "tests:", "  - interval: 1m", "    input_series:"]
    for name, values in everything.series(fine).items():
        lines += [f"      - series: '{name}'", f"        values: '{values}'"]
    lines.append("    promql_expr_test:")
    for expression in sorted(expressions):
        lines += [f"      - expr: {json.dumps(expression)}", f"        eval_time: {everything.MINUTES}m"]
        lines.append("        exp_samples: []")
    return "\n".join(lines)


@pytest.mark.parametrize("chosen", [{}, everything.CHOSEN], ids=["everything", "one of each"])
def test_every_query_finds_something_and_never_nan(tmp_path: Path, chosen: dict[str, str]) -> None:
    empty = unanswered(questions(chosen), tmp_path)
    assert not {query[:3]: expr for query, expr in empty.items() if may_be_empty(query) not in WHERE_ALL_IS_FINE}


def test_what_is_silent_while_all_is_fine_speaks_when_it_is_not(tmp_path: Path) -> None:
    asked = {query: expr for query, expr in questions({}).items() if may_be_empty(query) in WHERE_ALL_IS_FINE}
    assert {may_be_empty(query) for query in asked} == WHERE_ALL_IS_FINE
    assert len(unanswered(asked, tmp_path)) > len(asked) / 2
    assert not unanswered(asked, tmp_path, fine=False)
