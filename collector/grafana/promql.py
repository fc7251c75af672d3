"""Builds PromQL for panels: each series is filtered by exactly those variables of a dashboard that its labels allow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from collector.grafana.reading import variables_in
from collector.rulekit.files import all_alerts, groups
from collector.rulekit.model import Recording
from collector.rulekit.settings import METRICS, series, series_by_name

FILTERS: Mapping[str, str] = {
    "job": "job",
    "node": "node",
    "provider": "gen_ai_provider_name",
    "model": "gen_ai_request_model",
    "mode": "specdecode_mode",
    "method": "specdecode_method",
    "cohort": "specdecode_cohort",
}
"""The variables that filter, and the label each of them is about."""

WINDOW = "$__rate_interval"
MODE = "specdecode_mode"
AUTOREGRESSIVE = f'{MODE}="autoregressive"'
SPECULATIVE = f'{MODE}="speculative"'

ALERTS = "ALERTS"
"""Prometheus' own series of alerts."""

LOOK_BACK = "1h"
"""How long a series may have been away before it counts as one that is new."""

PROCESSES = series("process.memory.usage")
"""What every process reports: tells which service runs on which machine."""


@cache
def recordings() -> Mapping[str, Recording]:
    """Every recording rule by its name; of those that differ in a fixed label, one."""
    return {rule.record: rule for group in groups().values() for rule in group.rules if isinstance(rule, Recording)}


@cache
def known_series() -> Mapping[str, frozenset[str]]:
    """The labels of every series that a panel may read: of metrics, of recording rules, and of firing alerts."""
    recorded = {name: rule.labels | rule.fixed.keys() for name, rule in recordings().items()}
    alerts = frozenset({"alertname", "alertstate", "severity"}).union(*(alert.labels for alert in all_alerts()))
    return {**series_by_name(), **recorded, ALERTS: alerts}


def selector(name: str, *matchers: str) -> str:
    """Select a series with a matcher for each variable that it has the label of, and with these.

    A label that one of ``matchers`` names is not filtered by its variable as well; and if they ask for autoregressive
    requests the method is not, which only speculative ones have. What is told of a machine alone is kept to machines
    that the chosen services run on.

    Raises:
        KeyError: Nobody makes this series.
    """
    labels = known_series()[name]
    said = {matcher.replace("!", "=").split("=")[0] for matcher in matchers}
    if AUTOREGRESSIVE in matchers:
        said.add(FILTERS["method"])
    filters = [f'{label}=~"${variable}"' for variable, label in FILTERS.items() if label in labels - said]
    inside = ", ".join([*filters, *matchers])
    found = f"{name}{{{inside}}}" if inside else name
    return _on_their_machines(found) if "node" in labels and "job" not in labels else found


def alerts(*matchers: str) -> str:
    """Select alerts of the chosen services, and those on machines that these run on.

    What an alert does not tell passes a filter: many a service's alert tells no machine, and none on a machine a model.
    """
    model = f'{FILTERS["model"]}=~"$model|"'
    of_services = ", ".join(['job=~"$job"', 'node=~"$node|"', model, *matchers])
    of_machines = ", ".join(['job=""', 'node=~"$node"', model, *matchers])
    return f"({ALERTS}{{{of_services}}} or {_on_their_machines(f'{ALERTS}{{{of_machines}}}')})"


def _on_their_machines(selected: str) -> str:
    return f"({selected} and on (node) {selector(PROCESSES)})"


def filters_of(expression: str) -> frozenset[str]:
    """The filtering variables that an expression uses."""
    return frozenset(variables_in(expression) & FILTERS.keys())


def rate(name: str, *matchers: str) -> str:
    """The rate of a counter a second, over the window that fits the panel's resolution."""
    return f"rate({selector(name, *matchers)}[{WINDOW}])"


def total(name: str, by: Iterable[str] | str = (), *matchers: str) -> str:
    """The rate of a counter a second, summed over all labels but these."""
    return summed(rate(name, *matchers), by)


def summed(expression: str, by: Iterable[str] | str = (), operator: str = "sum") -> str:
    """An expression put together over all labels but these."""
    kept = [by] if isinstance(by, str) else list(by)
    return f"{operator} by ({', '.join(kept)}) ({expression})" if kept else f"{operator}({expression})"


def grown(name: str, by: Iterable[str] | str = ()) -> str:
    """What counters grew by within the window, counted in whole pieces: ``increase`` would make 1.33 of 1.

    What they were before is the last that was heard of them within `LOOK_BACK`: a process that was silent for some
    minutes is no new one. A counter that is new, or began again, began at zero.
    """
    selected = selector(name)
    since = f"{selected} - last_over_time({selected}[{LOOK_BACK}] offset {WINDOW}) >= 0"
    return summed(f"({since} unless resets({selected}[{WINDOW}]) > 0) or {selected}", by)


def count_of(selected: str) -> str:
    """How many series there are; 0 where there is none, as long as the chosen services report at all."""
    return or_none(summed(selected, operator="count"))


def or_none(expression: str) -> str:
    """One value, or 0 where it is absent, as long as the chosen services report at all."""
    return f"{expression} or {summed(selector(PROCESSES), operator='count')} * 0"


def over(part: str, whole: str) -> str:
    """A part over a whole; nothing, never NaN, where the whole is 0."""
    return f"{part} / ({whole} > 0)"


def share(part: str, whole: str) -> str:
    """As `over`, but 0 where there is a whole and the part was never counted."""
    return over(f"({part} or {whole} * 0)", whole)


def mean(metric: str, by: Iterable[str] | str = (), *matchers: str) -> str:
    """The mean of a histogram's values."""
    return over(total(series(metric, "sum"), by, *matchers), total(series(metric, "count"), by, *matchers))


def quantile(value: float, metric: str, by: Iterable[str] | str = (), *matchers: str) -> str:
    """A quantile of a histogram's values; nothing, never NaN, where there were none."""
    kept = [by] if isinstance(by, str) else list(by)
    buckets = total(series(metric, "bucket"), [*kept, "le"], *matchers)
    return f"histogram_quantile({value}, {buckets}) and {total(series(metric, 'count'), kept, *matchers)} > 0"


def attainment(metric: str, variable: str) -> str:
    """The share of a histogram's values, by mode, that are no larger than what a variable says."""
    within = total(series(metric, "bucket"), MODE, f'le="${variable}"')
    return over(within, total(series(metric, "count"), MODE))


def brief(metric: str) -> str:
    """The registry's text on a metric.

    Raises:
        KeyError: There is no such metric.
    """
    return METRICS[metric].brief
