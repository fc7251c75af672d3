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
        "Alerts of these rules that fire, by severity; a click leads to the page on what to do. Filtered by service,"
        " node and model where an alert has them: an alert on a machine shows whatever service is chosen."
        " Empty: none fires, or the rules are not loaded."
    )
    expression = summed(
        alerts('alertname=~"Specdecode.*"', 'alertstate="firing"'), ("alertname", "severity"), operator="max"
    )
    panel = timeline("Alerts that fire", about, Query(expression, "{{alertname}} ({{severity}})"), word="firing")
    link = build.DashboardLink("Runbook").url(RUNBOOK).target_blank(True).type(dashboard.DashboardLinkType.LINK)
    if panel.field_config is not None:
        panel.field_config.defaults.links = [link.build()]
    return panel
