"""What happened when, drawn over the panels of the Incident dashboard.

Grafana joins the points of a Prometheus annotation that are no further apart than its step into one region, so what
lasts is drawn from its start to its end. Loki's annotations are points: a burst's own start and end are in its text and
in the table of bursts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from grafana_foundation_sdk.models import dashboard

from collector.grafana.promql import WINDOW, grown, rate, selector, summed
from collector.grafana.stores import BURST, events
from collector.grafana.variables import LOKI, PROMETHEUS
from collector.rulekit.settings import series

STEP = "15s"


class Annotation(dashboard.AnnotationQuery):
    """An annotation with what Prometheus' and Loki's data sources read beside the fields of the schema."""

    def __init__(
        self, name: str, colour: str, source: dashboard.DataSourceRef, expr: str, text: str, tags: Iterable[str]
    ) -> None:
        """Take over what is asked; ``text`` is told of each event, labels in double braces, ``tags`` are labels."""
        super().__init__(name, source, icon_color=colour, expr=expr)
        self._text, self._tags = text, tags

    def to_json(self) -> dict[str, object]:
        """Return the annotation as Grafana stores it."""
        more = {"textFormat": self._text, "titleFormat": self.name, "tagKeys": ",".join(self._tags), "step": STEP}
        return {**super().to_json(), **more}


def happenings() -> Iterator[dashboard.AnnotationQuery]:
    """Every annotation, in the order of their switches."""
    by: tuple[str, ...] = ("job", "node", "gen_ai_request_model", "specdecode_method")
    where = "{{gen_ai_request_model}} {{job}} {{node}}"
    active = summed(selector(series("specdecode.rollback_burst.active")), by)
    yield _metric("Burst goes on", "red", f"{active} > 0", where, by)
    begun = grown(series("specdecode.rollback_bursts"), by)
    yield _metric("Burst begins", "dark-red", f"{begun} > 0", where, by)
    text = (
        "{{gen_ai_request_model}}: from {{specdecode_burst_start_time}} to {{specdecode_burst_end_time}} (s since"
        " 1970), {{specdecode_burst_rollbacks_per_minute}} rollbacks a minute, {{specdecode_burst_requests}} requests,"
        " tenants {{specdecode_burst_tenants}}"
    )
    yield Annotation("Burst ended", "orange", LOKI, events(BURST), text, ("service_name",))
    yield from _guard()
    info = selector(series("specdecode.config.info"))
    told = ("specdecode_draft_model", "specdecode_engine_version", "specdecode_manifest_id")
    by = ("job", "node", "gen_ai_request_model", *told)
    text = (
        "{{job}} {{node}}: {{gen_ai_request_model}} with draft {{specdecode_draft_model}}, engine"
        " {{specdecode_engine_version}}, manifest {{specdecode_manifest_id}}"
    )
    yield _metric("New manifest", "blue", _new(info, by), text, by)
    processes = selector(series("process.memory.usage"))
    by = ("job", "node", "instance")
    # An instance id that outlives its process shows in counters that begin again.
    again = summed(f"resets({selector(series('specdecode.request.started'))}[{WINDOW}])", by)
    began = f"({_new(processes, by)}) or {again} > 0"
    yield _metric("Process began", "yellow", began, "{{job}} {{node}}: {{instance}}", by)
    for name, title, states in (
        ("thermal_state", "Heat", "serious|critical"),
        ("power_mode", "Low power", "low"),
        ("power_source", "On battery", "battery"),
        ("memory_pressure", "Memory pressure", "warn|critical"),
    ):
        label = f"specdecode_host_{name}"
        time = rate(series(f"specdecode.host.{name}.time"), f'{label}=~"{states}"')
        lasting = summed(time, ("node", label), operator="max")
        yield _metric(title, "dark-orange", f"{lasting} > 0", f"{{{{node}}}}: {{{{{label}}}}}", ("node", label))


def _guard() -> Iterator[Annotation]:
    by: tuple[str, ...] = ("job", "node", "specdecode_guard_state")
    scopes = selector(series("specdecode.guard.scopes"), 'specdecode_guard_state=~"open|probing"')
    enforces = f"on (job, node, instance) {selector(series('specdecode.guard.enforcing'))} == 1"
    opened = summed(f"{scopes} and {enforces}", by)
    yield _metric("Guard open", "purple", f"{opened} > 0", "{{job}} {{node}}", by)
    by = ("job", "node", "specdecode_guard_trigger", "specdecode_guard_state")
    changes = f"{grown(series('specdecode.guard.transitions'), by)} > 0"
    text = "{{job}} {{node}}: {{specdecode_guard_trigger}} to {{specdecode_guard_state}}"
    yield _metric("Guard changed", "super-light-purple", changes, text, by)


def _new(selected: str, by: tuple[str, ...]) -> str:
    """That which was not there one window before."""
    return f"{summed(selected, by, 'count')} unless {summed(f'{selected} offset {WINDOW}', by, 'count')}"


def _metric(name: str, colour: str, expr: str, text: str, tags: Iterable[str]) -> Annotation:
    return Annotation(name, colour, PROMETHEUS, expr, text, tags)
