"""What the rules share: thresholds, windows, sets of labels, and the series that there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collector.names import metric_name, registry_metrics, series_labels, series_names
from collector.rulekit.model import labels, listed
from otel_specdecode.telemetry.names import Metric
from otel_specdecode.thresholds import thresholds

LIMITS: Mapping[str, Any] = thresholds()

WINDOW = "5m"
"""Length of the window that ratios are made of."""

MODEL = labels("gen_ai_provider_name", "gen_ai_request_model")
DRAFT = labels("specdecode_method", "specdecode_draft_length")
FLOW = labels(
    *("job", "node", "specdecode_mode", "specdecode_requested_mode", "specdecode_cohort", "specdecode_context_tier"),
    MODEL,
    DRAFT,
)
"""Labels of what is counted on one node: processes are summed, kinds of request are not."""

SERVICE_DRAFT = labels("job", MODEL, DRAFT)
"""One draft of one model in a whole service: what it gets accepted depends on no machine."""

SERVICE_MODE = labels("job", MODEL, "specdecode_mode")
NODE_MODEL = labels("job", "node", MODEL, "specdecode_context_tier")
"""Where times may be compared: one service, machine, model and context tier."""

NODE_DRAFT = labels(NODE_MODEL, DRAFT)


METRICS: Mapping[str, Metric] = {metric.name: metric for metric in registry_metrics()}
"""Every metric a rule may read, by its OpenTelemetry name."""


def series_by_name() -> dict[str, frozenset[str]]:
    """The labels of every series that a rule may read, by its name in Prometheus."""
    return {
        name: series_labels(metric) | ({"le"} if name.endswith("_bucket") else set())
        for metric in METRICS.values()
        for name in series_names(metric)
    }


def series(metric: str, part: str = "") -> str:
    """Prometheus' name of a metric, for a histogram that of its ``part``: bucket, sum or count.

    Raises:
        KeyError: There is no such metric, or it has no such part.
    """
    described = METRICS[metric]
    base = metric_name(described.name, described.unit, described.instrument)
    return {name.removeprefix(base).lstrip("_"): name for name in series_names(described)}[part]


def grown(selector: str, by: frozenset[str], window: str = WINDOW) -> str:
    """What counters grew by within a window.

    A counter that is seen for the first time began at zero within the window: its value is its growth, which
    ``increase`` alone would miss, and with it all of a process that lives shorter than two exports. Looking back at
    three places tells it from one that was away for some minutes.
    """
    before = f"{selector} offset {window} or {selector} offset 15m or {selector} offset 1h"
    return f"""\
sum by ({listed(by)}) (
    ({selector} unless ({before}))
  or
    increase({selector}[{window}])
)"""
