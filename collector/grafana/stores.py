"""Builds TraceQL and LogQL: spans and events, filtered by the same variables as metrics are.

Span attributes keep their dots. Loki puts the attributes of a log record that came by OTLP into structured metadata,
with `_` for each dot, and the service's name into the label `service_name`. Versions differ in whether they keep the
name of an event, so events are told by an attribute that only they have.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import dashboard

from collector.names import label_name
from otel_specdecode.telemetry.names import Attr

SPAN_FILTERS: Mapping[str, str] = {
    "job": "resource.service.name",
    "node": "resource.host.name",
    "provider": f"span.{Attr.GEN_AI_PROVIDER_NAME}",
    "model": f"span.{Attr.GEN_AI_REQUEST_MODEL}",
    "mode": f"span.{Attr.SPECDECODE_MODE}",
    "method": f"span.{Attr.SPECDECODE_METHOD}",
    "cohort": f"span.{Attr.SPECDECODE_COHORT}",
}

BURST = label_name(Attr.SPECDECODE_BURST_START_TIME)
HAZARD = label_name(Attr.SPECDECODE_HAZARD_ID)
GUARD_STATE = label_name(Attr.SPECDECODE_GUARD_PREVIOUS_STATE)
MANIFEST = label_name(Attr.SPECDECODE_MANIFEST_DOCUMENT)


def spans(*conditions: str) -> str:
    """Select the spans of generations that meet these conditions too."""
    filters = [f'{attribute} =~ "${variable}"' for variable, attribute in SPAN_FILTERS.items()]
    return "{ " + " && ".join([*filters, *conditions]) + " }"


def span(attribute: str) -> str:
    """A span's attribute in TraceQL."""
    return f"span.{attribute}"


def events(present: str, *more: str) -> str:
    """Select log records that have an attribute, given as the label it becomes."""
    stages = ['host_name=~"$node"', f'{present}!=""', 'gen_ai_provider_name=~"$provider"']
    stages += ['gen_ai_request_model=~"$model"', *more]
    return '{service_name=~"$job"} | ' + " | ".join(stages)


def trace_link(title: str) -> dashboard.DashboardLink:
    """From a cell that holds a trace id to that trace."""
    pane = (
        '{"trace":{"datasource":"${traces}","queries":[{"refId":"A","queryType":"traceql","query":"${__value.raw}",'
        '"datasource":{"type":"tempo","uid":"${traces}"}}],"range":{"from":"${__from}","to":"${__to}"}}}'
    )
    url = f"/explore?schemaVersion=1&panes={quote(pane, safe='${}:,_')}"
    return build.DashboardLink(title).type(dashboard.DashboardLinkType.LINK).url(url).target_blank(True).build()
