"""Holds emitted telemetry against the registry: names, kinds, units, types, labels, and what must or must not be there.

    assert_conformant(spans=exporter.get_finished_spans(), metrics=reader.get_metrics_data())

Only what this library's own instrumentation scope emitted is looked at.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

from otel_specdecode.testing.observed import (
    Observed,
    ObservedEvent,
    ObservedMetric,
    ObservedSpan,
    Source,
    Value,
    from_otlp,
    from_sdk,
)

__all__ = ["Deviation", "Finding", "assert_conformant", "check"]

Conventions = Literal["released", "latest", "both"]
"""Which GenAI metric names are expected: those of the last core release, the renamed ones, or both."""

Deviation = tuple[str, str]
"""A known deviation: the ``id`` and ``where`` of the findings it stands for."""

Raw = Mapping[str, Any]

_OTHER = "_OTHER"
"""What stands for an HTTP method that is not known."""


@dataclass(frozen=True)
class Finding:
    """One way in which what was emitted is not what the registry says.

    Attributes:
        id: What is wrong, as one fixed word.
        severity: ``violation`` breaks the contract; ``improvement`` is a recommended attribute that is absent.
        where: What it is wrong on: the signal's name in the registry, then the attribute key if it is about one.
        message: What was seen and what was expected.
    """

    id: str
    severity: Literal["violation", "improvement"]
    where: str
    message: str

    def __str__(self) -> str:
        """One readable line."""
        return f"{self.severity} {self.id} on {self.where}: {self.message}"


def check(
    *,
    spans: Iterable[Any] = (),
    metrics: Any = None,
    logs: Iterable[Any] = (),
    otlp: Iterable[Raw | str] = (),
    genai_metrics: Conventions = "released",
) -> list[Finding]:
    """Every distinct finding, in the order of what was emitted.

    Args:
        spans: Finished spans of the SDK.
        metrics: ``MetricsData`` of the SDK, or a list of them.
        logs: Finished log records of the SDK.
        otlp: Export requests as OTLP JSON, dicts or lines of text.
        genai_metrics: The GenAI metric names that are expected.
    """
    observed = from_sdk(spans, metrics, logs) + from_otlp(otlp)
    return list(dict.fromkeys(_findings(observed, _registry(), genai_metrics)))


def assert_conformant(
    *,
    spans: Iterable[Any] = (),
    metrics: Any = None,
    logs: Iterable[Any] = (),
    otlp: Iterable[Raw | str] = (),
    genai_metrics: Conventions = "released",
    known: Collection[Deviation] = (),
) -> None:
    """Raise unless the violations are exactly the known deviations.

    Args:
        spans: Finished spans of the SDK.
        metrics: ``MetricsData`` of the SDK, or a list of them.
        logs: Finished log records of the SDK.
        otlp: Export requests as OTLP JSON, dicts or lines of text.
        genai_metrics: The GenAI metric names that are expected.
        known: Deviations that must each occur.

    Raises:
        AssertionError: For each violation that is not known, and each known one that has gone.
    """
    found = check(spans=spans, metrics=metrics, logs=logs, otlp=otlp, genai_metrics=genai_metrics)
    violations = [finding for finding in found if finding.severity == "violation"]
    complaints = [str(finding) for finding in violations if (finding.id, finding.where) not in known]
    seen = {(finding.id, finding.where) for finding in violations}
    complaints += [
        f"known deviation {ident} on {where} has gone" for ident, where in known if (ident, where) not in seen
    ]
    if complaints:
        raise AssertionError("\n".join(complaints))


@cache
def _registry() -> Raw:
    text = resources.files("otel_specdecode.telemetry").joinpath("registry.json").read_text(encoding="utf-8")
    content: Raw = json.loads(text)
    return content


def _violation(ident: str, where: str, message: str) -> Finding:
    return Finding(ident, "violation", where, message)


def _findings(observed: Observed, registry: Raw, conventions: Conventions) -> Iterator[Finding]:
    def ours(source: Source) -> bool:
        return bool(source.scope == registry["scope"] or source.scope.startswith(f"{registry['scope']}."))

    for span in observed.spans:
        if ours(span.source):
            yield from _span(span, registry)
    for metric in observed.metrics:
        if ours(metric.source):
            yield from _metric(metric, registry, conventions)
    for event in observed.events:
        if ours(event.source):
            yield from _event(event, registry)


def _schema_url(where: str, source: Source, registry: Raw) -> Iterator[Finding]:
    if source.schema_url != registry["schema_url"]:
        expected = registry["schema_url"]
        yield _violation("schema_url_mismatch", where, f"has {source.schema_url!r}, expected {expected!r}")


# Attributes of any signal


_TYPES: Mapping[str, Callable[[Value], bool]] = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "double": lambda value: isinstance(value, float),
}


def _has_type(value: Value, expected: str) -> bool:
    if expected == "any":
        return True
    if expected.endswith("[]"):
        return isinstance(value, list | tuple) and all(_has_type(part, expected[:-2]) for part in value)
    return _TYPES[expected](value)


def _values(where: str, attributes: Raw, registry: Raw) -> Iterator[Finding]:
    """Unknown keys, wrong types and values outside a closed set."""
    for key, value in attributes.items():
        declared = registry["attributes"].get(key)
        if declared is None:
            yield _violation("unknown_attribute", f"{where}/{key}", "is not in the registry")
        elif not _has_type(value, declared["type"]):
            yield _violation("type_mismatch", f"{where}/{key}", f"holds {value!r}, expected {declared['type']}")
        elif "values" in declared and value not in declared["values"]:
            yield _violation(
                "unknown_value", f"{where}/{key}", f"holds {value!r}, expected one of {declared['values']}"
            )


def _presence(where: str, attributes: Raw, declared: Raw, registry: Raw, status: str) -> Iterator[Finding]:
    """Attributes that are absent although asked for, or there although they must not be."""
    for key, use in declared.items():
        place = f"{where}/{key}"
        if key in attributes:
            if "absent_when" in use and _holds(use["absent_when"], attributes, status):
                yield _violation("forbidden_attribute", place, f"is there although {_told(use['absent_when'])}")
        elif use["level"] == "required":
            yield _violation("missing_attribute", place, "is required")
        elif "required_when" in use and _holds(use["required_when"], attributes, status):
            yield _violation("missing_attribute", place, f"is required since {_told(use['required_when'])}")
        elif use["level"] == "recommended":
            yield Finding("missing_recommended_attribute", "improvement", place, "is recommended")
    for key in attributes:
        if key in registry["attributes"] and key not in declared:
            yield _violation("unexpected_attribute", f"{where}/{key}", "does not belong there")


def _holds(condition: Raw, attributes: Raw, status: str) -> bool:
    """Whether a condition of the registry holds. What it reads being absent, it does not."""
    if "all" in condition:
        return all(_holds(part, attributes, status) for part in condition["all"])
    if "any" in condition:
        return any(_holds(part, attributes, status) for part in condition["any"])
    if "span_status" in condition:
        return bool(status == condition["span_status"])
    keys = condition.get("differ") or condition.get("same") or [condition["attribute"]]
    if not all(key in attributes for key in keys):
        return False
    values = [attributes[key] for key in keys]
    if "differ" in condition or "same" in condition:
        return (values[0] == values[1]) is ("same" in condition)
    if "above" in condition:
        return isinstance(values[0], int | float) and values[0] > condition["above"]
    return (
        bool(values[0] == condition["equals"]) if "equals" in condition else bool(values[0] != condition["not_equals"])
    )


def _told(condition: Raw) -> str:
    """A condition in words."""
    for word in ("all", "any"):
        if word in condition:
            return (" and " if word == "all" else " or ").join(_told(part) for part in condition[word])
    if "span_status" in condition:
        return f"the status is {condition['span_status']}"
    for word in ("differ", "same"):
        if word in condition:
            return f"{' and '.join(condition[word])} {'differ' if word == 'differ' else 'are the same'}"
    word = next(word for word in ("equals", "not_equals", "above") if word in condition)
    return f"{condition['attribute']} {word.replace('_', ' ')} {condition[word]}"


# Spans


def _span(span: ObservedSpan, registry: Raw) -> Iterator[Finding]:
    declared = next((each for each in registry["spans"] if _is_told(each["told_by"], span.attributes)), None)
    if declared is None:
        told_by = " nor ".join(each["told_by"] for each in registry["spans"])
        yield _violation("unknown_span", span.name, f"has neither {told_by}")
        return
    where = declared["id"]
    yield from _schema_url(where, span.source, registry)
    if span.kind != declared["kind"]:
        yield _violation("span_kind_mismatch", where, f"is {span.kind}, expected {declared['kind']}")
    yield from _span_name(span, declared)
    yield from _values(where, span.attributes, registry)
    yield from _presence(where, span.attributes, declared["attributes"], registry, span.status)


def _is_told(told_by: str, attributes: Raw) -> bool:
    key, _, value = told_by.partition("=")
    return key in attributes and (not value or bool(attributes[key] == value))


def _span_name(span: ObservedSpan, declared: Raw) -> Iterator[Finding]:
    """The name is made of the pattern's attributes; one that is absent is left out.

    Of an HTTP method that is not known it says `HTTP`, as the HTTP conventions have it.
    """
    keys = [part.strip("{}") for part in declared["name"].split()]
    parts = (str(span.attributes[key]) for key in keys if key in span.attributes)
    expected = " ".join("HTTP" if part == _OTHER else part for part in parts)
    if span.name != expected:
        yield _violation("span_name_mismatch", declared["id"], f"is {span.name!r}, expected {expected!r}")


# Metrics


def _metric(metric: ObservedMetric, registry: Raw, conventions: Conventions) -> Iterator[Finding]:
    where = metric.name
    declared = registry["metrics"].get(where)
    if declared is None:
        yield _violation("unknown_metric", where, "is not in the registry")
        return
    if declared["emitted_by"] != "library":
        yield _violation("other_emitter", where, f"is for the {declared['emitted_by']} to emit")
    if conventions != "both" and declared["convention"] not in ("any", conventions):
        yield _violation("other_convention", where, f"belongs to the {declared['convention']} GenAI metric names")
    yield from _schema_url(where, metric.source, registry)
    for field, seen, expected in (
        ("instrument", metric.instrument, declared["instrument"]),
        ("unit", metric.unit, declared["unit"]),
        ("description", metric.description, declared["brief"]),
    ):
        if seen != expected:
            yield _violation(f"{field}_mismatch", where, f"is {seen!r}, expected {expected!r}")
    for point in metric.points:
        yield from _number(where, metric.instrument, point.value, declared)
        yield from _labels(where, point.attributes, declared["labels"])
        yield from _values(where, {k: v for k, v in point.attributes.items() if k in declared["labels"]}, registry)


def _number(where: str, instrument: str, value: float | None, declared: Raw) -> Iterator[Finding]:
    if value is None:
        return
    if instrument in ("counter", "histogram") and not value >= 0:
        yield _violation("negative_value", where, f"holds {value}")
    expected = declared["value_type"]
    if instrument != "histogram" and not _has_type(value, expected):
        yield _violation("value_type_mismatch", where, f"holds {value!r}, expected {expected}")


def _labels(where: str, seen: Raw, declared: Raw) -> Iterator[Finding]:
    """Labels are exactly those declared: one too many or too few makes another series."""
    for key, use in declared.items():
        needed = use["level"] == "required" or ("required_when" in use and _holds(use["required_when"], seen, "unset"))
        if needed and key not in seen:
            yield _violation("missing_label", f"{where}/{key}", "is not on a data point")
        if key in seen and "absent_when" in use and _holds(use["absent_when"], seen, "unset"):
            yield _violation("forbidden_label", f"{where}/{key}", f"is there although {_told(use['absent_when'])}")
    for key in seen:
        if key not in declared:
            yield _violation("unexpected_label", f"{where}/{key}", "is not declared for this metric")


# Events


def _event(event: ObservedEvent, registry: Raw) -> Iterator[Finding]:
    declared = registry["events"].get(event.name)
    if declared is None:
        yield _violation("unknown_event", event.name or "log record", "is not an event of the registry")
        return
    yield from _schema_url(event.name, event.source, registry)
    yield from _values(event.name, event.attributes, registry)
    yield from _presence(event.name, event.attributes, declared["attributes"], registry, "unset")
