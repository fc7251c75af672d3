"""Bursts, tenants, events and traces: what log records and spans tell of an incident."""

from __future__ import annotations

from collections.abc import Iterator

from collector.grafana.mix import FROM_TRACES
from collector.grafana.panels import Panel, Query, lines, records, rows, traces
from collector.grafana.stores import BURST, HAZARD, MANIFEST, events, span, spans, trace_link
from collector.names import label_name
from otel_specdecode.telemetry.names import Attr
from otel_specdecode.thresholds import thresholds

_TENANTS = label_name(Attr.SPECDECODE_BURST_TENANTS)
_TENANT = label_name(Attr.SPECDECODE_TENANT_ID)
_TRACE_IDS = label_name(Attr.SPECDECODE_BURST_TRACE_IDS)
_IN_BURST = f"{span(Attr.SPECDECODE_IN_BURST)} = true"
_RATE, _ROUNDS = span(Attr.SPECDECODE_ACCEPT_RATE), span(Attr.SPECDECODE_VERIFY_PASSES)
_DRAFTING = span(Attr.SPECDECODE_DRAFT_DURATION)


def burst_panels() -> Iterator[Panel]:
    """What a burst was, from the event that is told when it has ended."""
    # Loki tells times as text of seconds, and a list as JSON: `["first", ...` holds its first id in 2 to 34.
    shaped = (
        f"label_format began=`{{{{ mulf .{label_name(Attr.SPECDECODE_BURST_START_TIME)} 1000 }}}}`,"
        f" ended=`{{{{ mulf .{label_name(Attr.SPECDECODE_BURST_END_TIME)} 1000 }}}}`,"
        f" worst=`{{{{ substr 2 34 .{_TRACE_IDS} }}}}`"
    )
    yield rows(
        "Bursts",
        "Bursts that ended, and no other: those that go on are above. With start and end on the clock of the panels"
        " above, the peak, what is usual, and who took part, tenants by their rejected tokens, worst first. The worst"
        " trace is that of the request with the most rejected tokens. Empty: none ended in this time.",
        Query(events(BURST, shaped), kind="loki"),
        columns={
            "began": "Start",
            "ended": "End",
            "service_name": "Service",
            "gen_ai_request_model": "Model",
            label_name(Attr.SPECDECODE_DRAFT_MAX_TOKENS): "k",
            label_name(Attr.SPECDECODE_BURST_ROLLBACKS_PER_MINUTE): "Rollbacks a minute",
            label_name(Attr.SPECDECODE_BURST_PEAK_REJECTED): "Peak rejected per 1,000",
            label_name(Attr.SPECDECODE_BURST_USUAL_REJECTED): "Usual",
            label_name(Attr.SPECDECODE_BURST_REQUESTS): "Requests",
            _TENANTS: "Tenants",
            label_name(Attr.SPECDECODE_BURST_TENANT_REJECTED_TOKENS): "Rejected of theirs",
            "worst": "Worst trace",
        },
        column_units={"Start": "dateTimeAsIso", "End": "dateTimeAsIso"},
        links={"Worst trace": trace_link("Open the trace")},
        from_labels=True,
    )


def tenant_panels() -> Iterator[Panel]:
    """On whose behalf the requests of a burst ran, and those that met a hazard."""
    counted = f"sum by ({_TENANTS}) (count_over_time({events(BURST)} [$__interval]))"
    about = (
        "Bursts that ended, not those that go on, by the tenants that took part, at most 10 a burst. Empty where none"
        " is named."
    )
    asked = Query(counted, f"{{{{{_TENANTS}}}}}", kind="loki", bars=True)
    yield lines("Bursts by tenants", about, "none", asked, width=8)
    found = f"{spans(_IN_BURST)} | rate() by ({span(Attr.SPECDECODE_TENANT_ID)})"
    about = f"Requests a second that ended while a burst went on, by tenant. {FROM_TRACES}"
    asked = Query(found, kind="tempo")
    yield lines("Requests that ended in a burst, by tenant", about, "reqps", asked, width=8, stacked=True)
    found = f"sum by ({_TENANT}, {HAZARD}) (count_over_time({events(HAZARD)} [$__interval]))"
    about = "Hazards of requests by tenant, from events: at most one for each hazard and request. Empty: none was met."
    named = Query(found, f"{{{{{_TENANT}}}}} {{{{{HAZARD}}}}}", kind="loki", bars=True)
    yield lines("Hazards by tenant", about, "none", named, width=8)


def event_panels() -> Iterator[Panel]:
    """Log records, and the traces that are worth a look."""
    low = thresholds()["accept_rate"]["warning"]["4"]
    least = thresholds()["hazards"]["all_rejected_rounds"]
    chosen = '{service_name=~"$job"} | host_name=~"$node"'
    which = f'{BURST}!="" or {HAZARD}!="" or {MANIFEST}!=""'
    line = (
        f"{{{{ if .{HAZARD} }}}}hazard {{{{ .{HAZARD} }}}}{{{{ else if .{BURST} }}}}rollback burst of"
        f" {{{{ .{label_name(Attr.SPECDECODE_BURST_REQUESTS)} }}}} requests{{{{ else }}}}manifest"
        f" {{{{ .{label_name(Attr.SPECDECODE_MANIFEST_ID)} }}}}{{{{ end }}}}: {{{{ .gen_ai_request_model }}}}"
    )
    about = "Bursts, hazards and new manifests as they were told. Open a line for all that it says. Empty: none."
    yield records("Events", about, f"{chosen} | {which} | line_format `{line}`")
    about = "Requests that ended while a burst of their model and draft went on. Empty: none, or none was sampled."
    yield traces("Requests in a burst", about, f"{spans(_IN_BURST)} | select({_RATE}, {_ROUNDS})", width=12)
    about = f"Requests of {least} rounds or more, accept rate below {low}, the bound for drafts of 4. Empty: none."
    poor = spans(f"{_RATE} < {low}", f"{_ROUNDS} >= {least}")
    yield traces("Requests with a low accept rate", about, f"{poor} | select({_RATE}, {_ROUNDS})", width=12)
    about = "Requests that ended in an error. Empty: none."
    failed = f"{spans('status = error')} | select({span(Attr.ERROR_TYPE)})"
    yield traces("Failed requests", about, failed, width=12)
    about = "Requests by the time spent on drafting, which spans of llama.cpp tell. Empty on MLX, where it is unknown."
    yield traces("Drafting", about, f"{spans(f'{_DRAFTING} > 0')} | select({_DRAFTING})", width=12)
