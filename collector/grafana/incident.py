"""Incident: rollback bursts over traffic on one time axis, and beside them all that may have caused them."""

from __future__ import annotations

from collections.abc import Iterator

from collector.grafana.alerting import firing
from collector.grafana.annotations import happenings
from collector.grafana.board import Board, Section
from collector.grafana.colours import MEMORY, QUEUE
from collector.grafana.events import burst_panels, event_panels, tenant_panels
from collector.grafana.guard import guard_panels
from collector.grafana.mix import further_panels, mix_panels
from collector.grafana.node import NODE, machine, memory_share, seconds
from collector.grafana.panels import Panel, Query, lines, tile
from collector.grafana.promql import (
    MODE,
    SPECULATIVE,
    grown,
    mean,
    or_none,
    over,
    quantile,
    selector,
    summed,
    total,
)
from collector.grafana.running import running_panels
from collector.grafana.texts import FEW_REQUESTS, LONGER_PROMPTS, NO_TRAFFIC, of_metric, of_rule
from collector.grafana.texts import WINDOW as WINDOW_TEXT
from collector.rulekit.settings import series

PROPOSED = series("specdecode.draft.tokens")
ROUNDS = series("specdecode.verify.passes")
HTTP = series("http.server.request.duration", "count")
BY_MODE = "{{specdecode_mode}}"

_NO_SERVER = "Empty where no HTTP server is instrumented."


def board() -> Board:
    """The dashboard."""
    return Board(
        "incident",
        "Speculative decoding / Incident",
        "Rollback bursts over traffic on one time axis, and beside them all that may have caused them.",
        (
            Section("Bursts over traffic", (*_bursts(), *burst_panels())),
            Section("Alerts", (firing(),)),
            Section("HTTP, queue and errors", tuple(_server())),
            Section("Guard", tuple(guard_panels())),
            Section("Latency, with links into traces", tuple(_latency())),
            Section("What came in", tuple(mix_panels())),
            Section("What came in, further", tuple(further_panels()), closed=True),
            Section("Tenants in bursts and hazards", tuple(tenant_panels())),
            Section("By what runs", tuple(running_panels())),
            Section("Machines", tuple(_machines())),
            Section("Events and traces", tuple(event_panels())),
        ),
        annotations=tuple(happenings()),
    )


def _bursts() -> Iterator[Panel]:
    started = total(series("specdecode.request.started"), MODE)
    active = summed(selector(series("specdecode.request.active")))
    begun = grown(series("specdecode.rollback_bursts"))
    lasting = series("specdecode.rollback_burst.active")
    about = (
        f"Bars: {of_metric('specdecode.request.started')} Line: {of_metric('specdecode.request.active')} Red, on the"
        f" right: as a line {of_metric('specdecode.rollback_burst.active')} As bars"
        f" {of_metric('specdecode.rollback_bursts')} {WINDOW_TEXT} A burst that has begun shows as a bar until the"
        " window has passed; regions and marks come from annotations. Bursts and these requests tell no cohort."
    )
    yield lines(
        "Rollback bursts over requests",
        about,
        "reqps",
        Query(started, f"started {BY_MODE}", bars=True),
        Query(active, "active", right="none"),
        Query(begun, "bursts that began", right="none", bars=True),
        Query(summed(selector(lasting)), "bursts that go on", right="none"),
        width=24,
        height=10,
    )
    about = of_metric("specdecode.rollback_burst.active", "How many, and by machine and model. As last exported.")
    where = summed(selector(lasting), ("node", "gen_ai_request_model"))
    yield tile(
        "Bursts that go on",
        f"{about} Those that ended are in *Bursts*.",
        "none",
        Query(or_none(summed(selector(lasting))), "bursts"),
        Query(f"{where} > 0", "{{node}} {{gen_ai_request_model}}"),
        width=8,
        height=8,
        decimals=0,
    )
    rejected = total(PROPOSED, "gen_ai_request_model", 'specdecode_draft_outcome="rejected"')
    emitted = total(series("specdecode.decode.tokens"), "gen_ai_request_model", SPECULATIVE)
    about = (
        "Rejected tokens per 1,000 tokens that decode passes of speculative requests emitted, correction and bonus"
        f" tokens below the line. What a burst is judged by. {WINDOW_TEXT} {NO_TRAFFIC}"
    )
    found = Query(f"1000 * {over(rejected, emitted)}", "{{gen_ai_request_model}}")
    yield lines("Rejected tokens per 1,000 output tokens", about, "none", found, width=8)
    none = total(ROUNDS, "gen_ai_request_model", 'specdecode_round_outcome="all_rejected"')
    finished = total(ROUNDS, "gen_ai_request_model", 'specdecode_round_outcome!="cut"')
    about = f"Finished rounds without an accepted token over all finished rounds. {WINDOW_TEXT} {NO_TRAFFIC}"
    found = Query(over(none, finished), "{{gen_ai_request_model}}")
    yield lines("All-rejected share of rounds", about, "percentunit", found, width=8, top=1.0)


def _server() -> Iterator[Panel]:
    code = "http_response_status_code"
    about = of_metric("http.server.request.duration", "Here how many, by route and status.", WINDOW_TEXT, _NO_SERVER)
    found = Query(total(HTTP, ("http_route", code)), f"{{{{http_route}}}} {{{{{code}}}}}")
    yield lines("HTTP requests", about, "reqps", found, width=8, stacked=True)
    http = quantile(0.95, "http.server.request.duration", "http_route")
    about = of_metric("http.server.request.duration", "Percentile 95.", WINDOW_TEXT, _NO_SERVER)
    yield lines("HTTP duration p95", about, "s", Query(http, "p95 {{http_route}}", exemplar=True), width=8)
    record = "service:specdecode_queue_seconds:p95"
    about = of_rule(record, FEW_REQUESTS, _NO_SERVER)
    found = Query(selector(record), "p95 {{gen_ai_request_model}} {{job}}")
    yield lines("Time in the queue p95", about, "s", found, width=8, steps=QUEUE)
    ended = series("gen_ai.server.request.duration", "count")
    failed = Query(total(ended, ("error_type", MODE), 'error_type!=""'), f"{{{{error_type}}}} {BY_MODE}")
    about = f"Requests that ended in an error, by class; closed streams are none. {WINDOW_TEXT} Empty: no error."
    yield lines("Errors by type", about, "reqps", failed, width=24, height=6, stacked=True)


def _latency() -> Iterator[Panel]:
    for metric, title in (
        ("gen_ai.server.time_to_first_token", "Time to first token p95"),
        ("specdecode.decode.time_per_token", "Time per token p95"),
        ("gen_ai.server.request.duration", "Request duration p95"),
        ("specdecode.round.duration", "Round duration p95"),
    ):
        about = of_metric(metric, "A dot is one measurement and leads to its trace.", WINDOW_TEXT, NO_TRAFFIC)
        if "first_token" in metric:
            about = f"{about} {LONGER_PROMPTS}"
        yield lines(title, about, "s", Query(quantile(0.95, metric, MODE), BY_MODE, exemplar=True))


def _machines() -> Iterator[Panel]:
    about, expression = memory_share()
    yield lines("Our share of memory", about, "percentunit", Query(expression, NODE), width=8, steps=MEMORY)
    record = "node:specdecode_swap_used:bytes"
    yield lines("Swap in use", of_rule(record), "bytes", Query(selector(record), NODE), width=8)
    about = of_metric("specdecode.host.memory_available", "Absent where it cannot be told.")
    available = Query(machine("specdecode.host.memory_available"), NODE)
    yield lines("Memory available", about, "bytes", available, width=8)
    for name, title in (
        ("memory_pressure_critical", "Seconds under critical memory pressure"),
        ("throttled", "Seconds throttled by heat"),
        ("low_power", "Seconds in low power mode"),
    ):
        about, expression, steps = seconds(name)
        yield lines(title, about, "s", Query(expression, NODE), width=8, height=6, steps=steps)
    battery = "on_battery"
    record = f"node:specdecode_{battery}:seconds5m"
    about = of_rule(record, "Absent where it cannot be told.")
    yield lines("Seconds on battery", about, "s", Query(selector(record), NODE), width=12, height=6)
    duration = mean("specdecode.prefill.duration", MODE)
    about = of_metric("specdecode.prefill.duration", "Here the mean.", WINDOW_TEXT, NO_TRAFFIC)
    yield lines("Mean prefill by mode", about, "s", Query(duration, BY_MODE), width=12, height=6)
