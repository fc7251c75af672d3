"""The worked example of docs/semantics.md is what the library and its rules' arithmetic make of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.names import metric_name
from otel_specdecode.telemetry.names import Attr, Metric, Metrics
from otel_specdecode.testing.capture import Telemetry
from otel_specdecode.testing.fake import (
    WORKED_EXAMPLE,
    FakeClock,
    FakeRound,
    Script,
    accepted_rounds,
    fake_stream,
)
from tests.collector.promtool import promtool
from tests.docs.pages import DOCS, blocks, rows, text_of

pytestmark = pytest.mark.source

PAGE = text_of(DOCS / "semantics.md")
K = 4
METRICS = {each.name: each for each in vars(Metrics).values() if isinstance(each, Metric)}

SPECULATIVE = Script(rounds=accepted_rounds(WORKED_EXAMPLE, K))
ENDED_EARLY = Script(rounds=(*accepted_rounds(WORKED_EXAMPLE[:-1], K), FakeRound(K, 2, finished=False)))
AUTOREGRESSIVE = Script(tokens=26)


def recorded(*scripts: Script) -> Telemetry:
    telemetry = Telemetry()
    observer = telemetry.listener()
    for script in scripts:
        list(fake_stream(observer, script, FakeClock()))
    return telemetry


@pytest.fixture
def example() -> Iterator[Telemetry]:
    telemetry = recorded(SPECULATIVE, AUTOREGRESSIVE)
    yield telemetry
    telemetry.shutdown()


def shown(value: float, text: str) -> bool:
    """Whether a number is what the page writes, to as many places as it writes."""
    places = len(text.partition(".")[2])
    return round(value, places) == float(text)


def test_by_hand_every_round_adds_up() -> None:
    *each, total = rows(PAGE, "### By hand")
    numbers = [[int(cell) for cell in row[1:6]] for row in each]
    assert [row[1] for row in numbers] == list(WORKED_EXAMPLE)
    for proposed, accepted, rejected, emitted, rollback in numbers:
        assert (proposed, emitted) == (accepted + rejected, accepted + 1)
        assert rollback == (rejected > 0)
    assert [int(cell) for cell in total[1:6]] == [sum(column) for column in zip(*numbers, strict=True)]


def test_the_span_has_what_the_page_says(example: Telemetry) -> None:
    (span,) = (each for each in example.spans() if each.attributes[Attr.SPECDECODE_MODE] == "speculative")
    stated = rows(PAGE, "### On the span")
    assert stated
    assert not [row for row in stated if not shown(span.attributes[row[0].strip("`")], row[1])]


def test_so_has_the_one_that_ends_early() -> None:
    telemetry = recorded(ENDED_EARLY)
    span = telemetry.span()
    stated = rows(PAGE, "### The same with an early end")
    telemetry.shutdown()
    assert stated
    assert not [row for row in stated if not shown(span.attributes[row[0].strip("`")], row[1])]


def test_the_counters_have_what_the_page_says(example: Telemetry) -> None:
    stated = rows(PAGE, "### On the counters")
    assert stated
    for name, label, value in stated:
        found = [
            point.value
            for point in example.points(name.strip("`"))
            if point.labels[Attr.SPECDECODE_MODE] == "speculative"
            and (not label or label.strip("`") in point.labels.values())
        ]
        assert found == [int(value)], (name, label)


def series(telemetry: Telemetry) -> Iterator[tuple[str, float]]:
    """Every counter and histogram of the library as Prometheus has it, with its value."""
    for point in telemetry.points():
        metric = METRICS[point.metric]
        name = metric_name(metric.name, metric.unit, metric.instrument)
        labels = ", ".join(f"{key.replace('.', '_')}={json.dumps(str(value))}" for key, value in point.labels.items())
        parts = {"": point.value} if point.total is None else {"_sum": point.total, "_count": point.value}
        for suffix, value in parts.items():
            yield f"{name}{suffix}{{{labels}}}", value


def near(stated: str, query: str) -> str:
    """An expression that is 1 if a query gives what the comment above it says, to as many places as that has."""
    number = stated.split()[1]
    return f"abs(({query}) - {number}) <= bool {0.5 * 10 ** -len(number.partition('.')[2])}"


QUERIES = [block for block in blocks(PAGE, "promql") if re.match(r"# [\d.]+ ", block)]


@pytest.mark.e2e
def test_the_queries_give_the_numbers_that_stand_above_them(example: Telemetry, tmp_path: Path) -> None:
    assert len(QUERIES) == len(blocks(PAGE, "promql")) == 5
    held = list(series(example))
    expected = [
        {"expr": near(*query.split("\n", 1)), "eval_time": "1m", "exp_samples": [{"labels": "{}", "value": 1}]}
        for query in QUERIES
    ]
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": f"{value}x1"} for name, value in held],
        "promql_expr_test": expected,
    }
    path = tmp_path / "worked.yaml"
    path.write_text(json.dumps({"tests": [test]}))
    done = promtool("test", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr
