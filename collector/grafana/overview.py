"""Overview: autoregressive and speculative requests side by side, on the same fields."""

from __future__ import annotations

from collections.abc import Iterator

from collector.grafana import machines
from collector.grafana.alerting import firing
from collector.grafana.board import Board, Section
from collector.grafana.colours import SERVICE_SPEEDUP, SPEEDUP
from collector.grafana.panels import Panel, Query, lines, tile
from collector.grafana.promql import (
    AUTOREGRESSIVE,
    MODE,
    SPECULATIVE,
    attainment,
    selector,
    share,
    summed,
    total,
)
from collector.grafana.texts import (
    FEW_REQUESTS,
    FEW_ROUNDS,
    LEFT_OUT,
    LONGER_PROMPTS,
    NO_BASELINE,
    NO_TRAFFIC,
    WINDOW,
    of_metric,
    of_rule,
)
from collector.rulekit.settings import series

STARTED = series("specdecode.request.started")
ENDED = series("gen_ai.server.request.duration", "count")
TOKENS = series("specdecode.decode.tokens")
TOKENS_PER_SECOND = "suffix: tokens/s"
SPEEDUP_RECORD = "node:specdecode_decode_speedup:ratio5m"
USUAL_RECORD = "node:specdecode_usual_decode_speedup:median1d"
SERVICE_RECORD = "node:specdecode_service_speedup:ratio30m"
_USUAL = "Usual: the median of a day up to half an hour ago, known after an hour and a half."
BY_MODE = "{{specdecode_mode}}"
BY_DRAFT = "{{gen_ai_request_model}} k={{specdecode_draft_length}} {{specdecode_context_tier}} {{job}} {{node}}"

_SIDES = (("autoregressive", AUTOREGRESSIVE), ("speculative", SPECULATIVE))
_TIMES = (
    ("time_to_first_token", "Time to first token", f"{FEW_REQUESTS} {LONGER_PROMPTS}"),
    ("time_per_token", "Time per token", FEW_REQUESTS),
    ("round", "Round duration", FEW_ROUNDS),
)


def board() -> Board:
    """The dashboard."""
    return Board(
        "overview",
        "Speculative decoding / Overview",
        "Autoregressive and speculative requests side by side, on the same fields, and what speculation gains.",
        (
            Section("Now", tuple(_now())),
            Section("Alerts", (firing(),)),
            Section("Traffic", tuple(_traffic())),
            Section("By machine", tuple(_by_machine())),
            Section("Latency: autoregressive on the left, speculative on the right", tuple(_latency())),
            Section("What speculation gains", tuple(_gains())),
        ),
    )


def errors() -> str:
    """The share of requests, by mode, that ended in an error."""
    return share(total(ENDED, MODE, 'error_type!=""'), total(ENDED, MODE))


def _now() -> Iterator[Panel]:
    started = Query(total(STARTED, MODE), BY_MODE)
    yield tile("Requests", of_metric("specdecode.request.started", WINDOW, NO_TRAFFIC), "reqps", started)
    about = f"Requests that ended with an error type over all that ended; closed streams are no errors. {WINDOW}"
    yield tile("Errors", f"{about} {NO_TRAFFIC}", "percentunit", Query(errors(), BY_MODE), decimals=1)
    active = Query(summed(selector(series("specdecode.request.active")), MODE), BY_MODE)
    about = of_metric("specdecode.request.active", "As last exported. Empty if nothing was ever requested.")
    yield tile("Active", about, "none", active)
    tokens = Query(total(TOKENS, MODE), BY_MODE)
    yield tile("Output", of_metric("specdecode.decode.tokens", WINDOW, NO_TRAFFIC), TOKENS_PER_SECOND, tokens)
    about = of_rule(SPEEDUP_RECORD, "The least of all machines, models and tiers.", FEW_REQUESTS, NO_BASELINE, LEFT_OUT)
    least = Query(summed(selector(SPEEDUP_RECORD), operator="min"), "least")
    yield tile("Decode speed-up, least", about, "suffix: x", least, steps=SPEEDUP, decimals=2)
    about = of_rule(SERVICE_RECORD, "The least of all machines, models and tiers.", FEW_REQUESTS)
    least = Query(summed(selector(SERVICE_RECORD), operator="min"), "least")
    yield tile("Service speed-up, least", about, "suffix: x", least, steps=SERVICE_SPEEDUP, decimals=2)
    yield machines.left_out_now(12)
    for title, about, expression in _attainments():
        yield tile(title, about, "percentunit", Query(expression, BY_MODE), width=12, decimals=1)


def _attainments() -> Iterator[tuple[str, str, str]]:
    tail = (
        "100 % is no sign of health if the bound is far above what is usual: see *By machine*."
        f" Requests that failed are not counted at all: see *Errors*. {WINDOW} {NO_TRAFFIC}"
    )
    yield (
        "First token within $slo_first_token s",
        f"Requests whose first token came within the chosen bound, over all that had one; queue left out. {tail}",
        attainment("gen_ai.server.time_to_first_token", "slo_first_token"),
    )
    yield (
        "Time per token within $slo_per_token s",
        f"Requests whose decode time per token, bonus tokens included, was within the bound, over all with one. {tail}",
        attainment("specdecode.decode.time_per_token", "slo_per_token"),
    )


def _traffic() -> Iterator[Panel]:
    about = of_metric("specdecode.request.started", WINDOW, NO_TRAFFIC)
    yield lines("Requests by mode", about, "reqps", Query(total(STARTED, MODE), BY_MODE), width=8, stacked=True)
    about = of_metric("specdecode.decode.tokens", WINDOW, NO_TRAFFIC)
    tokens = Query(total(TOKENS, MODE), BY_MODE)
    yield lines("Output tokens by mode", about, TOKENS_PER_SECOND, tokens, width=8, stacked=True)
    about = f"Requests that ended with an error type over all that ended; closed streams are no errors. {WINDOW}"
    yield lines("Errors by mode", f"{about} {NO_TRAFFIC}", "percentunit", Query(errors(), BY_MODE), width=8)


def _by_machine() -> Iterator[Panel]:
    yield machines.time_per_token(12)
    yield machines.round_duration(12)
    yield machines.time_to_first_token(12)
    yield machines.accept_rate(12)


def _latency() -> Iterator[Panel]:
    for name, title, absent in _TIMES:
        for side, matcher in _SIDES:
            records = [(percent, f"service:specdecode_{name}_seconds:p{percent}") for percent in (50, 95, 99)]
            about = of_rule(records[1][1], "Here percentiles 50, 95 and 99 of one mode.", absent)
            found = [
                Query(selector(record, matcher), f"p{percent} {{{{gen_ai_request_model}}}} {{{{job}}}}")
                for percent, record in records
            ]
            yield lines(f"{title}, {side}", about, "s", *found, height=7)


def _gains() -> Iterator[Panel]:
    about = of_rule(SPEEDUP_RECORD, FEW_REQUESTS, NO_BASELINE, LEFT_OUT, _USUAL)
    both = Query(selector(SPEEDUP_RECORD), BY_DRAFT), Query(selector(USUAL_RECORD), f"usual: {BY_DRAFT}")
    yield lines("Decode speed-up", about, "suffix: x", *both, steps=SPEEDUP)
    about = of_rule(SERVICE_RECORD, FEW_REQUESTS)
    found = Query(selector(SERVICE_RECORD), BY_DRAFT)
    yield lines("Service speed-up", about, "suffix: x", found, steps=SERVICE_SPEEDUP)
    yield machines.left_out()
    for title, about, expression in _attainments():
        yield lines(f"{title}, over time", about, "percentunit", Query(expression, BY_MODE), top=1.0)
    record = "service:specdecode_fallbacks:ratio5m"
    found = Query(selector(record), "{{gen_ai_request_model}} {{job}}")
    yield lines("Fallback share", of_rule(record, FEW_REQUESTS), "percentunit", found, top=1.0)
    record = "node:specdecode_baseline_requests:count"
    about = of_rule(record, "Absent where there are too few: then there is no speed-up and no break-even either.")
    found = Query(selector(record), "{{gen_ai_request_model}} {{specdecode_context_tier}} {{node}}")
    yield lines("Requests in the autoregressive baseline", about, "none", found)
