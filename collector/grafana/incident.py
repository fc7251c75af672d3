"""Incident: rollback bursts over traffic on one time axis, and beside them all that may have caused them."""

from __future__ import annotations

from collections.abc import Iterator

from collector.grafana.alerting import firing
from collector.grafana.annotations import happenings
from collector.grafana.board import Board, Section
from collector.grafana.colours import MEMORY, QUEUE
from collector.grafana.events import burst_panels, event_panels, tenant_panels
from collector.grafana.mix import mix_panels
from collector.grafana.node import NODE, machine, memory_share, seconds
from collector.grafana.panels import Panel, Query, lines, rows
from collector.grafana.promql import MODE, SPECULATIVE, WINDOW, mean, over, quantile, selector, summed, total
from collector.grafana.texts import FEW_REQUESTS, NO_TRAFFIC, of_metric, of_rule
from collector.grafana.texts import WINDOW as WINDOW_TEXT
from collector.rulekit.settings import series

PROPOSED = series("specdecode.draft.tokens")
ROUNDS = series("specdecode.verify.passes")
HTTP = series("http.server.request.duration", "count")
BY_MODE = "{{specdecode_mode}}"
MANIFEST = "specdecode_manifest_id"

_CONFIGURED = ("job", "instance", "gen_ai_provider_name", "gen_ai_request_model", "specdecode_method")
"""What tells a process's configurations apart on counters, with the draft length."""

_LENGTH = "specdecode_draft_length"
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
            Section("Latency, with links into traces", tuple(_latency())),
            Section("What came in", tuple(mix_panels())),
            Section("Tenants", tuple(tenant_panels())),
            Section("By manifest", tuple(_manifests())),
            Section("Machines", tuple(_machines())),
            Section("Events and traces", tuple(event_panels())),
        ),
        annotations=tuple(happenings()),
    )


def _bursts() -> Iterator[Panel]:
    started = total(series("specdecode.request.started"), MODE)
    active = summed(selector(series("specdecode.request.active")))
    bursts = summed(f"increase({selector(series('specdecode.rollback_bursts'))}[{WINDOW}])")
    about = (
        f"Bars: {of_metric('specdecode.request.started')} Line: {of_metric('specdecode.request.active')} Red, on the"
        f" right: {of_metric('specdecode.rollback_bursts')} {WINDOW_TEXT} A burst that has begun shows until the window"
        " has passed; regions and marks come from annotations. Bursts and these requests tell no cohort."
    )
    yield lines(
        "Rollback bursts over requests",
        about,
        "reqps",
        Query(started, f"started {BY_MODE}", bars=True),
        Query(active, "active", right="none"),
        Query(bursts, "bursts", right="none", bars=True),
        width=24,
        height=10,
    )
    rejected = total(PROPOSED, "gen_ai_request_model", 'specdecode_draft_outcome="rejected"')
    emitted = total(series("specdecode.decode.tokens"), "gen_ai_request_model", SPECULATIVE)
    about = (
        "Rejected tokens per 1,000 tokens that decode passes of speculative requests emitted, correction and bonus"
        f" tokens below the line. What a burst is judged by. {WINDOW_TEXT} {NO_TRAFFIC}"
    )
    found = Query(f"1000 * {over(rejected, emitted)}", "{{gen_ai_request_model}}")
    yield lines("Rejected tokens per 1,000 output tokens", about, "none", found)
    none = total(ROUNDS, "gen_ai_request_model", 'specdecode_round_outcome="all_rejected"')
    finished = total(ROUNDS, "gen_ai_request_model", 'specdecode_round_outcome!="cut"')
    about = f"Finished rounds without an accepted token over all finished rounds. {WINDOW_TEXT} {NO_TRAFFIC}"
    found = Query(over(none, finished), "{{gen_ai_request_model}}")
    yield lines("All-rejected share of rounds", about, "percentunit", found, top=1.0)


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
    yield lines("Errors by type", about, "reqps", failed, width=12, stacked=True)
    scopes = summed(selector(series("specdecode.guard.scopes")), "specdecode_guard_state")
    about = "Scopes of the guard, such as tenants or sessions, by state; those open or probing decode autoregressively."
    found = Query(scopes, "{{specdecode_guard_state}}")
    yield lines(
        "Guard scopes", f"{about} As last exported. Empty without a guard.", "none", found, width=12, stacked=True
    )


def _latency() -> Iterator[Panel]:
    for metric, title in (
        ("gen_ai.server.time_to_first_token", "Time to first token p95"),
        ("specdecode.decode.time_per_token", "Time per token p95"),
        ("gen_ai.server.request.duration", "Request duration p95"),
        ("specdecode.round.duration", "Round duration p95"),
    ):
        about = of_metric(metric, "A dot is one measurement and leads to its trace.", WINDOW_TEXT, NO_TRAFFIC)
        yield lines(title, about, "s", Query(quantile(0.95, metric, MODE), BY_MODE, exemplar=True))


def _manifests() -> Iterator[Panel]:
    accepted = _by_manifest(rate_of(PROPOSED, 'specdecode_draft_outcome="accepted"'))
    compared = _by_manifest(rate_of(PROPOSED, 'specdecode_draft_outcome=~"accepted|rejected"'))
    about = (
        "Accepted over accepted and rejected tokens, by what ran as the process's configuration of that engine, target,"
        f" method and draft length tells; of two drafts of one length, one. {WINDOW_TEXT} {NO_TRAFFIC}"
    )
    found = Query(over(accepted, compared), f"{{{{{MANIFEST}}}}}")
    yield lines("Accept rate by manifest", about, "percentunit", found, top=1.0)
    spent = _by_manifest(rate_of(series("specdecode.decode.time_per_token", "sum")), MODE)
    requests = _by_manifest(rate_of(series("specdecode.decode.time_per_token", "count")), MODE)
    about = of_metric("specdecode.decode.time_per_token", "Here the mean by what ran.", WINDOW_TEXT, NO_TRAFFIC)
    found = Query(over(spent, requests), f"{{{{{MANIFEST}}}}} {BY_MODE}")
    yield lines("Mean time per token by manifest", about, "s", found)
    yield rows(
        "What runs",
        of_metric("specdecode.config.info", "As of now. Empty where the engine does not let what ran be told."),
        Query(selector(series("specdecode.config.info"))),
        columns={
            MANIFEST: "Manifest",
            "job": "Service",
            "node": "Node",
            "instance": "Process",
            "gen_ai_provider_name": "Provider",
            "gen_ai_request_model": "Target",
            "specdecode_draft_model": "Draft",
            _LENGTH: "k",
            "specdecode_engine_version": "Engine",
            "specdecode_policy_hash": "Policy",
        },
    )


def rate_of(name: str, *matchers: str) -> str:
    """The rate of a counter by what tells configurations apart, and by mode."""
    return total(name, (*_CONFIGURED, _LENGTH, MODE), *matchers)


def _by_manifest(rates: str, *more: str) -> str:
    by = ", ".join((*_CONFIGURED, _LENGTH))
    # At most one for each: else there would be two partners, which is an error.
    info = f"topk by ({by}) (1, {selector(series('specdecode.config.info'))})"
    return summed(f"{rates} * on ({by}) group_left ({MANIFEST}) {info}", (MANIFEST, *more))


def _machines() -> Iterator[Panel]:
    about, expression = memory_share()
    yield lines("Memory of physical", about, "percentunit", Query(expression, NODE), width=8, steps=MEMORY)
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
