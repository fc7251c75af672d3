"""The panel of firing alerts, with links to the runbooks."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import dashboard

from collector.grafana.panels import Panel, Query, timeline
from collector.grafana.promql import alerts, summed
from collector.rulekit.render import RUNBOOKS

RUNBOOK = RUNBOOKS + "/${__field.labels.alertname}.md"


def firing() -> Panel:
    """Which alerts fire when, as Prometheus tells it."""
    about = (
        "Alerts of these rules that fire, with severity, service and node; a click leads to the page on what to do. Of"
        " the chosen services, and of the machines that these run on, whose alerts name no service. An alert that"
        " names no node is about all of a service. Empty: none fires, or the rules are not loaded."
    )
    by = ("alertname", "severity", "job", "node")
    expression = summed(alerts('alertname=~"Specdecode.*"', 'alertstate="firing"'), by, operator="max")
    found = Query(expression, "{{alertname}} ({{severity}}) {{job}} {{node}}")
    panel = timeline("Alerts that fire", about, found, word="firing", height=8)
    link = build.DashboardLink("Runbook").url(RUNBOOK).target_blank(True).type(dashboard.DashboardLinkType.LINK)
    if panel.field_config is not None:
        panel.field_config.defaults.links = [link.build()]
    return panel
