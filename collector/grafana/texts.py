"""Sentences of panel descriptions that are the same wherever they stand."""

from __future__ import annotations

from collector.grafana.promql import FILTERS, brief, filters_of, recordings
from otel_specdecode.thresholds import thresholds

SAMPLES = thresholds()["samples"]
WINDOW = "Over the rate window of the panel, a few exports long."
NO_TRAFFIC = "Empty without traffic, never 0 divided by 0."
FEW_ROUNDS = f"Absent below {SAMPLES['rounds']} rounds."
FEW_REQUESTS = f"Absent below {SAMPLES['requests']} requests."
NO_BASELINE = (
    f"Absent without {SAMPLES['baseline_requests']} autoregressive requests of the same machine, model and tier in a"
    " day, and while heat, power or lack of memory change the machine's pace."
)
LEFT_OUT = (
    "A machine that is hot, in low power mode, on battery or out of memory is left out, so this stays healthy while the"
    " machine is slow: see *Machines left out*."
)
LONGER_PROMPTS = "Up in both modes at once: longer prompts or a slower machine, not the draft."
NO_FOOTPRINT = (
    "On macOS resident memory has no Metal memory and no compressed pages: where there is no footprint, low resident"
    " memory alone does not acquit a process."
)

_AS_IT_IS = {"bytes", "ratio", "count"}
"""Ends of names of what is read and not counted over a while."""

_SPAN = {"5m": "5 minutes", "30m": "30 minutes"}


def of_metric(metric: str, *more: str) -> str:
    """What the registry says of a metric, and more."""
    return " ".join([brief(metric), *more])


def of_rule(record: str, *more: str) -> str:
    """What a recording rule says it is, over what time, and more."""
    tail = record.rpartition(":")[2]
    span = next((text for end, text in _SPAN.items() if tail.endswith(end)), "5 minutes")
    when = "Recorded" if tail in _AS_IT_IS else f"Over {span}, recorded"
    kept = "." if tail in _AS_IT_IS else ", cohort bench left out."
    return " ".join([recordings()[record].brief, f"{when} each minute{kept}", *more])


def not_filtered(*expressions: str) -> str:
    """Which of the dashboard's variables do not touch these queries, in one sentence; empty if all do."""
    unused = [name for name in FILTERS if not any(name in filters_of(expression) for expression in expressions)]
    names = ["service" if name == "job" else name for name in unused]
    return f"Not filtered by {', '.join(names)}." if names else ""
