"""What a metric and its attributes are called in Prometheus, after the collector's remote write.

The translation strategy is `UnderscoreEscapingWithSuffixes`, which agent.yaml and gateway.yaml name: every character
that Prometheus does not take becomes `_`, the unit is spelt out at the end, and a counter ends in `_total`. Rules and
dashboards take their names from here, so that none of them can ask for a series that does not exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from otel_specdecode.telemetry.names import Metric, Metrics

UNITS = {"By": "bytes", "d": "days", "h": "hours", "min": "minutes", "ms": "milliseconds", "s": "seconds", "1": ""}
"""How units are spelt. A unit in braces, such as `{token}`, is not part of a name."""

HISTOGRAM_PARTS = ("_bucket", "_count", "_sum")

RESOURCE_LABELS = ("job", "instance", "node")
"""Labels that every series has beside its attributes: `service.name`, `service.instance.id` and `host.name`."""


def metric_name(name: str, unit: str, instrument: str) -> str:
    """Return the name of a metric in Prometheus; a histogram's series have `HISTOGRAM_PARTS` after it.

    Args:
        name: As OpenTelemetry has it.
        unit: In UCUM, as OpenTelemetry has it.
        instrument: `counter`, `updowncounter`, `gauge` or `histogram`.

    Raises:
        ValueError: The unit is a rate or one that this library does not use.
    """
    words = [word for word in re.split(r"[^a-zA-Z0-9:]+", name) if word]
    suffix = _unit(unit)
    if suffix and suffix not in words:
        words.append(suffix)
    if instrument == "counter":
        words = [word for word in words if word != "total"] + ["total"]
    if instrument == "gauge" and unit == "1":
        words = [word for word in words if word != "ratio"] + ["ratio"]
    return "_".join(words)


def series_names(metric: Metric) -> tuple[str, ...]:
    """Return the names of all series that a metric of the registry makes."""
    name = metric_name(metric.name, metric.unit, metric.instrument)
    return tuple(name + part for part in HISTOGRAM_PARTS) if metric.instrument == "histogram" else (name,)


def label_name(attribute: str) -> str:
    """Return the label that an attribute becomes."""
    return re.sub(r"[^a-zA-Z0-9]+", "_", attribute)


def series_labels(metric: Metric) -> frozenset[str]:
    """Return every label that the series of a metric of the registry can have, `le` of buckets not included."""
    return frozenset(map(label_name, metric.labels)) | frozenset(RESOURCE_LABELS)


def registry_metrics() -> Iterator[Metric]:
    """Yield every metric of the registry: what this library emits, and what the collector reads from other engines."""
    return (each for each in vars(Metrics).values() if isinstance(each, Metric))


def _unit(unit: str) -> str:
    if unit.startswith("{") and unit.endswith("}"):
        return ""
    try:
        return UNITS[unit]
    except KeyError:
        raise ValueError(f"no spelling for the unit {unit!r}") from None
