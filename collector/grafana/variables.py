"""The variables that all dashboards share, so that a link from one to another keeps what is chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import dashboard as model

from collector.grafana.promql import FILTERS
from collector.grafana.reading import ALL
from collector.rulekit.settings import series
from otel_specdecode.telemetry.names import Enum

PROMETHEUS = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
TEMPO = model.DataSourceRef(type_val="tempo", uid="${traces}")
LOKI = model.DataSourceRef(type_val="loki", uid="${logs}")

LABELS = {
    "job": "Service",
    "node": "Node",
    "provider": "Provider",
    "model": "Model",
    "mode": "Mode",
    "method": "Method",
    "cohort": "Cohort",
}

CLASSIC_QUERY = 5
"""What Grafana calls a variable's query that is written as one text."""

_SOURCES = '{{__name__=~"{own}|{bridged}"{chosen}}}'


@dataclass(frozen=True)
class Slo:
    """A bound that the user chooses among bounds of buckets, in seconds.

    Attributes:
        metric: The histogram whose bounds they are.
        choices: No whole seconds: how their bound is written differs between versions of Prometheus.
        preset: What is chosen first.
    """

    label: str
    metric: str
    choices: Sequence[str]
    preset: str


SLOS: Mapping[str, Slo] = {
    "slo_first_token": Slo(
        *("SLO first token (s)", "gen_ai.server.time_to_first_token"),
        *(("0.2591", "0.4912", "0.85", "0.9", "1.188", "1.569", "2.071"), "0.85"),
    ),
    "slo_per_token": Slo(
        *("SLO per token (s)", "specdecode.decode.time_per_token"),
        *(("0.02141", "0.03104", "0.045", "0.052", "0.068", "0.102", "0.12", "0.25"), "0.068"),
    ),
}


def shared() -> list[model.VariableModel]:
    """The variables of every dashboard."""
    return [
        *(_source(*one) for one in (("datasource", "Metrics", "prometheus"), ("traces", "Traces", "tempo"))),
        _source("logs", "Logs", "loki"),
        *(_filter(name) for name in FILTERS if name != "cohort"),
        _cohort(),
        *(_slo(name, slo) for name, slo in SLOS.items()),
    ]


def instance() -> model.VariableModel:
    """The processes of the chosen services and nodes."""
    name = series("process.memory.usage")
    query = f'label_values({name}{{job=~"$job", node=~"$node"}}, instance)'
    return _chosen_from("instance", "Process", query, ".+")


def _filter(name: str) -> model.VariableModel:
    before = list(FILTERS)[: list(FILTERS).index(name)]
    chosen = "".join(f', {FILTERS[one]}=~"${one}"' for one in before)
    # Both are there from a process's first request on; the bridge's have no more labels than the first four.
    names = {"own": series("specdecode.decode.passes"), "bridged": series("specdecode.bridge.rounds")}
    query = f"label_values({_SOURCES.format(chosen=chosen, **names)}, {FILTERS[name]})"
    # Every series has a service. For all of them `.+`, since Loki refuses a stream selector that may be empty.
    return _chosen_from(name, LABELS[name], query, ".+" if name == "job" else ".*")


def _chosen_from(name: str, label: str, query: str, everything: str) -> model.VariableModel:
    return (
        build.QueryVariable(name)
        .label(label)
        .datasource(PROMETHEUS)
        .query({"query": query, "refId": name, "qryType": CLASSIC_QUERY})
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(everything)
        .current(model.VariableOption(True, ["All"], [ALL]))
        .build()
    )


def _cohort() -> model.VariableModel:
    """The cohorts are a closed set. Measurements are not chosen: the recording rules leave them out as well."""
    preset = [cohort for cohort in Enum.SPECDECODE_COHORT if cohort != "bench"]
    return (
        build.CustomVariable("cohort")
        .label(LABELS["cohort"])
        .values(",".join(Enum.SPECDECODE_COHORT))
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .options([model.VariableOption(one in preset, one, one) for one in Enum.SPECDECODE_COHORT])
        .current(model.VariableOption(True, preset, preset))
        .build()
    )


def _slo(name: str, slo: Slo) -> model.VariableModel:
    return (
        build.CustomVariable(name)
        .label(slo.label)
        .values(",".join(slo.choices))
        .allow_custom_value(False)
        .options([model.VariableOption(one == slo.preset, one, one) for one in slo.choices])
        .current(model.VariableOption(True, slo.preset, slo.preset))
        .build()
    )


def _source(name: str, label: str, plugin: str) -> model.VariableModel:
    return build.DatasourceVariable(name).label(label).type(plugin).build()
