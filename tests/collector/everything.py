"""One service of which every metric is there, as promtool reads series: two modes that run side by side for hours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from collector.names import label_name, metric_name
from collector.rulekit.gates import label_values
from collector.rulekit.settings import METRICS
from otel_specdecode.telemetry.names import Metric

MINUTES = 150
RESOURCE = {"job": "chat", "instance": "one", "node": "mac-1"}
MODES: tuple[Mapping[str, str], ...] = (
    {"specdecode_mode": "autoregressive", "specdecode_method": "none", "specdecode_draft_length": "0"},
    {"specdecode_mode": "speculative", "specdecode_method": "draft_model", "specdecode_draft_length": "4"},
)
CHOSEN = {
    "job": "chat",
    "instance": "one",
    "node": "mac-1",
    "provider": "llama_cpp",
    "model": "some",
    "mode": "speculative",
    "method": "draft_model",
    "cohort": "normal",
}
"""One value for each variable."""

_SAME = {
    "gen_ai_operation_name": "chat",
    "gen_ai_provider_name": "llama_cpp",
    "specdecode_requested_mode": "speculative",
    "specdecode_cohort": "normal",
    "specdecode_context_tier": "short",
    "specdecode_guard_state": "open",
    "http_route": "/v1/chat/completions",
    "http_response_status_code": "200",
}
_BAD_STATES = {"serious", "critical", "low", "battery", "warn"}
_CHANGING = {"specdecode.config.info", "process.memory.usage"}
_BEGUN = f"x{MINUTES - 3} 1x2"


def series(fine: bool) -> dict[str, str]:
    """Return the values of every series, by its selector.

    If all is ``fine`` the machine is in no state that forbids to compare times, and runs what it ran before.
    """
    return {
        f"{name}{{{', '.join(f'{label}={value!r}' for label, value in labels.items())}}}".replace("'", '"'): values
        for metric in METRICS.values()
        for labels in _labels(metric)
        for name, labels, values in _parts(metric, labels, fine)
    }


def _labels(metric: Metric) -> Iterator[dict[str, str]]:
    """The label sets of a metric: one for each mode, and for each member of a label that is a closed set."""
    names = [label_name(attribute) for attribute in metric.labels if attribute != "specdecode.tenant.id"]
    modes = MODES if "specdecode_mode" in names or "specdecode_method" in names else ({},)
    for mode in modes:
        fixed = {**_SAME, **mode}
        choices = [_choices(name, fixed) for name in names]
        for values in product(*choices):
            yield {**RESOURCE, **{name: value for name, value in zip(names, values, strict=True) if value}}


def _choices(name: str, fixed: Mapping[str, str]) -> list[str]:
    if name in fixed:
        return [fixed[name]]
    if name == "error_type":
        return ["", "ValueError"]
    return sorted(label_values().get(name, {"some"}))


def _parts(metric: Metric, labels: dict[str, str], fine: bool) -> Iterator[tuple[str, dict[str, str], str]]:
    name = metric_name(metric.name, metric.unit, metric.instrument)
    if metric.instrument == "histogram":
        yield f"{name}_sum", labels, _growing(8)
        yield f"{name}_count", labels, _growing(400)
        bounds = [f"{bound:g}" for bound in metric.buckets or (0.1, 1.0)]
        for place, bound in enumerate([*bounds, "+Inf"]):
            yield f"{name}_bucket", {**labels, "le": bound}, _growing(400 * (place + 1) / (len(bounds) + 1))
    elif metric.name == "specdecode.rollback_bursts":
        yield name, labels, f"0{_BEGUN}"
    elif metric.name in _CHANGING and not fine:
        yield name, labels, f"_{_BEGUN}"
    elif metric.instrument == "counter":
        drafted = labels.get("specdecode_mode") != "autoregressive" or not name.startswith("specdecode_draft_")
        grows = drafted and not (fine and _BAD_STATES & set(labels.values()))
        yield name, labels, _growing(600 if grows else 0)
    else:
        yield name, labels, f"1x{MINUTES}"


def _growing(each_minute: float) -> str:
    return f"0+{each_minute:.7g}x{MINUTES}"
