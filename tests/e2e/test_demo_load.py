"""The whole way: real engines, the library, the collector, Prometheus with the rules, and what every panel asks.

The load is that of `make demo-load`. Its own sums are of the spans that it exported, so they are what the counters in
Prometheus have to be.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc", reason="needs the [otlp] extra")
pytest.importorskip("mlx_lm", reason="needs the [demo] extra")
pytest.importorskip("bokeh", reason="needs the [demo] extra")

from collector.grafana.reading import Query, defaults, expand, queries, variables_in
from collector.names import label_name
from otel_specdecode.telemetry.names import Attr
from tests.collector import quiet
from tests.collector.dashboards import NAMES, dashboard
from tests.collector.quiet import may_be_empty
from tests.e2e.pipeline import Prometheus, collector, eventually, prometheus
from tests.otlp_receiver import otlp_receiver
from tests.programs import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.source, pytest.mark.timeout(1800)]

RULES = ROOT / "collector" / "prometheus" / "rules"
EVERY_S = 10
"""Between two evaluations, which is a minute as shipped: the load is minutes long, not days."""

STEP_S = 15
BURST_S = 20.0
FOUND_S = 15
"""Within which a burst is found (rounds have to come), exported (every 5 s) and written."""

RATE = 3.0
BASELINE_MARK_S = 300
"""The baseline is read at whole five minutes, so one has to come after enough was served."""

NOT_IN_THIS_LOAD = {quiet.GUARD, quiet.SCRAPED, quiet.HTTP, quiet.NO_ALERT, quiet.HISTORY}
"""Why a panel may be empty here. All other reasons do not hold: the load has both engines, failures and a Mac."""

RECORDED_ELSEWHERE = re.compile(r"http_completions|queue|bridge|usual|degraded_slo")
"""Recorded series that need an instrumented server, a scraped engine, a guard, or hours: others test those."""


@dataclass(frozen=True)
class Ran:
    """What was sent, and where it is now.

    Attributes:
        told: What the load told of itself, as JSON.
    """

    database: Prometheus
    told: Mapping[str, Any]

    @property
    def begin(self) -> float:
        return float(self.told["start"]["epoch"])

    def over_time(self, expression: str) -> dict[float, float]:
        """Return the times of the load at which an expression has values, with their sum; and that it has no NaN."""
        found: dict[float, float] = defaultdict(float)
        for series in self.database.query_range(expression, self.begin, time.time(), STEP_S):
            for at, value in series:
                assert math.isfinite(value), expression
                found[at] += value
        return found


def seconds_of_load() -> float:
    """Return how long to send: until a whole five minutes has come with enough before and after it."""
    now = time.time()
    mark = (now + 170) // BASELINE_MARK_S * BASELINE_MARK_S + BASELINE_MARK_S
    return mark - now + 60


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    folder = tmp_path_factory.mktemp("load")
    (folder / "rules").mkdir()
    for path in RULES.glob("*.yaml"):
        text = path.read_text().replace("interval: 1m", f"interval: {EVERY_S}s")
        (folder / "rules" / path.name).write_text(text)
    with (
        otlp_receiver() as (store, _),
        prometheus(folder / "prometheus", f'rule_files: ["{folder}/rules/*.yaml"]') as database,
        collector(
            folder / "agent",
            "agent.yaml",
            OTELCOL_REMOTE_WRITE_URL=database.write_url,
            OTELCOL_TRACES_URL=store,
            OTELCOL_LOGS_URL=store,
        ) as agent,
    ):
        told = sent(folder, agent.grpc)
        accepted = 'sum(specdecode_draft_tokens_total{job="demo-load",specdecode_draft_outcome="accepted"})'
        expected = told["real"]["total"]["sums"][Attr.SPECDECODE_DRAFT_ACCEPTED_TOKENS]
        assert eventually(lambda: database.total(accepted) == expected)
        end = float(told["end"]["epoch"])
        recorded = "max(timestamp(service:specdecode_accept_rate:ratio5m))"
        assert eventually(lambda: (database.total(recorded) or 0) > end + EVERY_S, 60)
        yield Ran(database, told)


def sent(folder: Path, endpoint: str) -> Mapping[str, Any]:
    """Send the load; return what it told of itself."""
    seconds = seconds_of_load()
    command = [sys.executable, "-c", "from otel_specdecode.cli import main; main()", "demo-load"]
    command += ["--minutes", str(seconds / 60)]
    command += ["--rate", str(RATE), "--burst-at", str(seconds * 0.6), "--burst-seconds", str(BURST_S)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    environment |= {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    done = subprocess.run(
        [*command, "--json", str(folder / "told.json")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds + 120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told: Mapping[str, Any] = json.loads((folder / "told.json").read_text())
    return told


COUNTERS = {
    'specdecode_draft_tokens_total{specdecode_draft_outcome="accepted"}': Attr.SPECDECODE_DRAFT_ACCEPTED_TOKENS,
    'specdecode_draft_tokens_total{specdecode_draft_outcome="rejected"}': Attr.SPECDECODE_DRAFT_REJECTED_TOKENS,
    'specdecode_draft_tokens_total{specdecode_draft_outcome="unverified"}': Attr.SPECDECODE_DRAFT_UNVERIFIED_TOKENS,
    "specdecode_draft_tokens_total": Attr.SPECDECODE_DRAFT_PROPOSED_TOKENS,
    "specdecode_rollbacks_total": Attr.SPECDECODE_ROLLBACKS,
    "specdecode_verify_passes_total": Attr.SPECDECODE_VERIFY_PASSES,
    "specdecode_decode_passes_total": Attr.SPECDECODE_DECODE_PASSES,
    "specdecode_draft_passes_total": Attr.SPECDECODE_DRAFT_PASSES,
    "specdecode_draft_calls_total": Attr.SPECDECODE_DRAFT_CALLS,
    'gen_ai_client_token_usage_sum{gen_ai_token_type="output"}': Attr.GEN_AI_USAGE_OUTPUT_TOKENS,
    'gen_ai_client_token_usage_sum{gen_ai_token_type="input"}': Attr.GEN_AI_USAGE_INPUT_TOKENS,
}


@pytest.mark.parametrize("service", ["real", "synthetic"])
@pytest.mark.parametrize(("counter", "attribute"), COUNTERS.items(), ids=list(COUNTERS))
def test_a_counter_in_prometheus_is_the_sum_over_the_spans(
    ran: Ran, service: str, counter: str, attribute: str
) -> None:
    """By every label that both have."""
    told = ran.told[service]
    job = told["resource"]["service.name"]
    selector = counter.replace("{", f'{{job="{job}",') if "{" in counter else f'{counter}{{job="{job}"}}'
    by = sorted({label_name(name) for group in told["groups"] for name in group["labels"]})
    if counter.startswith("gen_ai_client"):  # these have the base labels alone
        by = [name for name in by if name not in CLIENT_LACKS]
    expected: dict[tuple[str, ...], float] = defaultdict(float)
    for group in told["groups"]:
        labels = {label_name(name): value for name, value in group["labels"].items()}
        expected[tuple(labels[name] for name in by)] += group["sums"][attribute]
    found = {
        tuple(labels.get(name, "") for name in by): value
        for labels, value in ran.database.query(f"sum by ({', '.join(by)}) ({selector})")
    }
    assert {key: value for key, value in found.items() if value} == {k: v for k, v in expected.items() if v}
    assert any(expected.values()) or service == "synthetic"


CLIENT_LACKS = {"specdecode_cohort", "specdecode_draft_length", "specdecode_context_tier"}


def test_every_request_was_counted(ran: Ran) -> None:
    for service in ("real", "synthetic"):
        told = ran.told[service]
        assert told["spans"]["ended"] == told["spans"]["exported"]
        job = told["resource"]["service.name"]
        for counter in ("specdecode_request_started_total", "gen_ai_server_request_duration_seconds_count"):
            assert ran.database.total(f'{counter}{{job="{job}"}}') == told["total"]["requests"]


def every_query() -> list[Query]:
    return [query for name in NAMES for query in queries(dashboard(name)) if query.kind == "prometheus"]


@pytest.mark.parametrize("query", every_query(), ids=lambda query: f"{query.dashboard}-{query.panel}-{query.ref_id}")
def test_every_panel_has_something_to_show(ran: Ran, query: Query) -> None:
    values = defaults(dashboard(query.dashboard.removeprefix("specdecode-")))
    reason = may_be_empty(query)
    if reason not in NOT_IN_THIS_LOAD:
        assert ran.over_time(expand(query.expr, values, "1m"))


@pytest.mark.parametrize("variable", ["job", "provider", "mode", "method", "cohort"])
def test_panels_have_something_to_show_of_one_value(ran: Ran, variable: str) -> None:
    one = {"job": "demo-load", "provider": "mlx", "mode": "speculative", "method": "draft_model", "cohort": "normal"}
    empty = []
    for query in every_query():
        if variable not in variables_in(query.expr) or may_be_empty(query):
            continue
        values = {**defaults(dashboard(query.dashboard.removeprefix("specdecode-"))), variable: one[variable]}
        if not ran.over_time(expand(query.expr, values, "1m")):
            empty.append(f"{query.dashboard}: {query.panel} {query.ref_id}")
    assert empty == []


def test_every_recording_rule_has_recorded(ran: Ran) -> None:
    names = set(re.findall(r"record: (\S+)", (RULES / "recording.yaml").read_text()))
    silent = {name for name in names if not ran.over_time(name)}
    assert {name for name in silent if not RECORDED_ELSEWHERE.search(name)} == set()


def first_shown(ran: Ran, wanted: str) -> float:
    """Return the first time at which a query of the Incident dashboard that holds a text shows more than 0."""
    values = {**defaults(dashboard("incident")), "job": "demo-load"}
    expressions = [
        each.expr for each in every_query() if each.dashboard == "specdecode-incident" and wanted in each.expr
    ]
    assert expressions
    return min(
        at
        for expression in expressions
        for at, value in ran.over_time(expand(expression, values, "30s")).items()
        if value > 0
    )


@pytest.mark.parametrize("wanted", ["specdecode_rollback_bursts_total", "specdecode_rollback_burst_active"])
def test_the_burst_shows_where_it_was(ran: Ran, wanted: str) -> None:
    """Within one step of where it was found, on panels and as an annotation."""
    bad, bursts = ran.told["bad_draft"], ran.told["real"]["bursts"]
    began = min(burst["start"]["epoch"] for burst in bursts)
    assert bad["start"]["epoch"] - STEP_S <= began <= bad["start"]["epoch"] + FOUND_S
    # Requests that met the bad draft run on with it to their end.
    assert max(burst["end"]["epoch"] for burst in bursts) <= bad["end"]["epoch"] + FOUND_S + STEP_S
    assert began <= first_shown(ran, wanted) <= began + FOUND_S + STEP_S


def test_no_burst_goes_on_after_the_last(ran: Ran) -> None:
    assert ran.database.total('specdecode_rollback_burst_active{job="demo-load"}') == 0


def test_the_alert_on_a_burst_fires_for_the_service_it_was_in(ran: Ran) -> None:
    firing = 'max by (job) (max_over_time(ALERTS{alertname="SpecdecodeRollbackBurst",alertstate="firing"}[15m]))'
    assert {labels["job"] for labels, _ in ran.database.query(firing)} == {"demo-load"}
