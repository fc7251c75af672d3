"""The guard: what it lets requests do, why it changed that, and whether what is promised meanwhile is kept."""

from __future__ import annotations

from collections.abc import Iterator

from collector.grafana.colours import PROMISED
from collector.grafana.panels import Panel, Query, lines, rows
from collector.grafana.promql import grown, selector, summed
from collector.grafana.stores import GUARD_STATE, events
from collector.grafana.texts import WINDOW, of_metric, of_rule
from collector.names import label_name
from collector.rulekit.guard import DEGRADED
from collector.rulekit.settings import series
from otel_specdecode.telemetry.names import Attr

_NO_GUARD = "Empty without a guard."


def guard_panels() -> Iterator[Panel]:
    """Every panel of the guard."""
    scopes = summed(selector(series("specdecode.guard.scopes")), "specdecode_guard_state")
    about = (
        "Scopes of the guard, such as tenants or sessions, by state; those open or probing decode autoregressively,"
        " unless its policy only observes: see *Guards that enforce*. As last exported."
    )
    found = Query(scopes, "{{specdecode_guard_state}}")
    yield lines("Guard scopes", f"{about} {_NO_GUARD}", "none", found, width=12, stacked=True)
    changes = grown(series("specdecode.guard.transitions"), ("specdecode_guard_trigger", "specdecode_guard_state"))
    about = of_metric("specdecode.guard.transitions", WINDOW, "Why a request fell back is in *Fallbacks by reason*.")
    found = Query(changes, "{{specdecode_guard_trigger}} to {{specdecode_guard_state}}", bars=True)
    yield lines("Guard transitions by trigger", f"{about} {_NO_GUARD}", "none", found, width=12)
    enforcing = summed(selector(series("specdecode.guard.enforcing")), ("job", "node"))
    about = f"Processes whose guard changes how requests run; 0 where the policy only observes. {_NO_GUARD}"
    yield lines("Guards that enforce", about, "none", Query(enforcing, "{{job}} {{node}}"), width=8)
    lacking = summed(selector(series("specdecode.guard.scopes_without_baseline")), ("job", "node"))
    about = of_metric("specdecode.guard.scopes_without_baseline", "As last exported.", _NO_GUARD)
    found = Query(lacking, "{{job}} {{node}}")
    yield lines("Guard scopes without a baseline", about, "none", found, width=8)
    objective = "specdecode_guard_objective"
    about = of_rule(DEGRADED, "By objective: above 1 a promise is not kept. Empty while the guard is closed.")
    found = Query(selector(DEGRADED), f"{{{{{objective}}}}} {{{{job}}}} {{{{node}}}}")
    yield lines("Measured over promised while the guard is open", about, "suffix: x", found, width=8, steps=PROMISED)
    yield _changes()


def _changes() -> Panel:
    return rows(
        "Guard transitions",
        "What the guard changed, from its events: for whom, from which rung to which, and what was measured. Of the"
        " machine as a whole no model is named, and such rows are not here: see `otel-specdecode guard log`.",
        Query(events(GUARD_STATE), kind="loki"),
        columns={
            "service_name": "Service",
            "gen_ai_request_model": "Model",
            label_name(Attr.SPECDECODE_TENANT_ID): "Tenant",
            label_name(Attr.SPECDECODE_GUARD_PREVIOUS_RUNG): "Rung before",
            label_name(Attr.SPECDECODE_GUARD_RUNG): "Rung",
            label_name(Attr.SPECDECODE_GUARD_TRIGGER): "Trigger",
            label_name(Attr.SPECDECODE_GUARD_VALUE): "Measured",
            label_name(Attr.SPECDECODE_GUARD_THRESHOLD): "Bound",
            label_name(Attr.SPECDECODE_GUARD_OBSERVE_ONLY): "Only observed",
        },
        from_labels=True,
    )
