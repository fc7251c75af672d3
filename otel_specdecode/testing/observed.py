"""Emitted telemetry in one shape, whether it comes as SDK objects or as OTLP JSON.

SDK objects are read by their fields alone, so nothing here needs the SDK to be installed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Value = Any
"""An attribute value: str, bool, int, float, a tuple or a dict of such values."""


@dataclass(frozen=True)
class Source:
    """The instrumentation scope that emitted something."""

    scope: str
    schema_url: str


@dataclass(frozen=True)
class ObservedSpan:
    """A span. ``kind`` and ``status`` are the lower-case words of the specification."""

    source: Source
    name: str
    kind: str
    status: str
    attributes: Mapping[str, Value]


@dataclass(frozen=True)
class ObservedPoint:
    """A data point. ``value`` is the number, or the sum of a histogram; None if a histogram has no sum."""

    attributes: Mapping[str, Value]
    value: int | float | None


@dataclass(frozen=True)
class ObservedMetric:
    """A metric. ``instrument`` is what its data says: counter, updowncounter, gauge or histogram."""

    source: Source
    name: str
    unit: str
    description: str
    instrument: str
    points: tuple[ObservedPoint, ...]


@dataclass(frozen=True)
class ObservedEvent:
    """A log record. ``name`` is empty if it has none."""

    source: Source
    name: str
    attributes: Mapping[str, Value]


@dataclass(frozen=True)
class Observed:
    """Everything that was emitted."""

    spans: tuple[ObservedSpan, ...] = ()
    metrics: tuple[ObservedMetric, ...] = ()
    events: tuple[ObservedEvent, ...] = ()

    def __add__(self, other: Observed) -> Observed:
        """Both together."""
        return Observed(self.spans + other.spans, self.metrics + other.metrics, self.events + other.events)


# SDK objects


def from_sdk(spans: Iterable[Any] = (), metrics: Any = None, logs: Iterable[Any] = ()) -> Observed:
    """Read finished spans, one ``MetricsData`` or several, and finished log records."""
    several = metrics if isinstance(metrics, list | tuple) else [] if metrics is None else [metrics]
    return Observed(
        tuple(_sdk_span(span) for span in spans),
        tuple(metric for data in several for metric in _sdk_metrics(data)),
        tuple(_sdk_event(log) for log in logs),
    )


def _sdk_source(scope: Any) -> Source:
    return Source("", "") if scope is None else Source(scope.name, scope.schema_url or "")


def _sdk_span(span: Any) -> ObservedSpan:
    return ObservedSpan(
        _sdk_source(span.instrumentation_scope),
        span.name,
        span.kind.name.lower(),
        span.status.status_code.name.lower(),
        dict(span.attributes or {}),
    )


def _sdk_metrics(data: Any) -> Iterator[ObservedMetric]:
    for resource in data.resource_metrics:
        for scoped in resource.scope_metrics:
            for metric in scoped.metrics:
                points = tuple(_sdk_point(point) for point in metric.data.data_points)
                yield ObservedMetric(
                    _sdk_source(scoped.scope),
                    metric.name,
                    metric.unit or "",
                    metric.description or "",
                    _sdk_instrument(metric.data),
                    points,
                )


def _sdk_instrument(data: Any) -> str:
    kind = type(data).__name__
    if kind == "Sum":
        return "counter" if data.is_monotonic else "updowncounter"
    return {"Gauge": "gauge", "Histogram": "histogram", "ExponentialHistogram": "histogram"}[kind]


def _sdk_point(point: Any) -> ObservedPoint:
    return ObservedPoint(dict(point.attributes or {}), point.value if hasattr(point, "value") else point.sum)


def _sdk_event(log: Any) -> ObservedEvent:
    record = getattr(log, "log_record", log)
    attributes = dict(record.attributes or {})
    return ObservedEvent(_sdk_source(log.instrumentation_scope), getattr(record, "event_name", None) or "", attributes)


# OTLP JSON


def from_otlp(requests: Iterable[Mapping[str, Any] | str]) -> Observed:
    """Read export requests: of each a dict, or the line of JSON that a collector's file exporter writes."""
    observed = Observed()
    for request in requests:
        content = json.loads(request) if isinstance(request, str) else request
        observed += Observed(
            tuple(_otlp_span(source, span) for source, span in _scoped(content, "Spans", "spans")),
            tuple(_otlp_metric(source, metric) for source, metric in _scoped(content, "Metrics", "metrics")),
            tuple(_otlp_event(source, log) for source, log in _scoped(content, "Logs", "logRecords")),
        )
    return observed


def _scoped(content: Mapping[str, Any], signal: str, items: str) -> Iterator[tuple[Source, Mapping[str, Any]]]:
    for resource in content.get(f"resource{signal}", ()):
        for scoped in resource.get(f"scope{signal}", ()):
            source = Source(scoped.get("scope", {}).get("name", ""), scoped.get("schemaUrl", ""))
            for item in scoped.get(items, ()):
                yield source, item


_KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
_STATUSES = ("unset", "ok", "error")


def _word(value: int | str, words: tuple[str, ...], prefix: str) -> str:
    return value.removeprefix(prefix).lower() if isinstance(value, str) else words[value]


def _otlp_span(source: Source, span: Mapping[str, Any]) -> ObservedSpan:
    kind = _word(span.get("kind", 0), _KINDS, "SPAN_KIND_")
    status = _word(span.get("status", {}).get("code", 0), _STATUSES, "STATUS_CODE_")
    return ObservedSpan(source, span["name"], kind, status, _otlp_attributes(span))


def _otlp_metric(source: Source, metric: Mapping[str, Any]) -> ObservedMetric:
    instrument, data = _otlp_data(metric)
    points = tuple(ObservedPoint(_otlp_attributes(point), _otlp_number(point)) for point in data.get("dataPoints", ()))
    return ObservedMetric(
        source, metric["name"], metric.get("unit", ""), metric.get("description", ""), instrument, points
    )


def _otlp_data(metric: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    if "sum" in metric:
        return "counter" if metric["sum"].get("isMonotonic") else "updowncounter", metric["sum"]
    kind = next(kind for kind in ("gauge", "histogram", "exponentialHistogram", "summary") if kind in metric)
    return "histogram" if kind == "exponentialHistogram" else kind, metric[kind]


def _otlp_number(point: Mapping[str, Any]) -> int | float | None:
    if "asInt" in point:
        return int(point["asInt"])
    number = point.get("asDouble", point.get("sum"))
    return None if number is None else float(number)


def _otlp_event(source: Source, log: Mapping[str, Any]) -> ObservedEvent:
    return ObservedEvent(source, log.get("eventName", ""), _otlp_attributes(log))


def _otlp_attributes(item: Mapping[str, Any]) -> dict[str, Value]:
    return {pair["key"]: _otlp_value(pair.get("value", {})) for pair in item.get("attributes", ())}


def _otlp_value(value: Mapping[str, Any]) -> Value:
    if not value:
        return None
    ((kind, content),) = value.items()
    if kind == "intValue":
        return int(content)
    if kind == "doubleValue":
        return float(content)
    if kind == "arrayValue":
        return tuple(_otlp_value(part) for part in content.get("values", ()))
    if kind == "kvlistValue":
        return {pair["key"]: _otlp_value(pair.get("value", {})) for pair in content.get("values", ())}
    return content
