"""What every rule must keep before it is written: only names that exist, only labels and values that can occur."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources

from collector.names import label_name
from collector.rulekit.model import Alert, Group, Recording, RuleError
from collector.rulekit.promql import Names, NotPromQLError, Selector, names_in

_TEMPLATE_LABEL = re.compile(r"\$labels\.(\w+)")


@cache
def label_values() -> Mapping[str, frozenset[str]]:
    """The values that a label can have, of those whose set of values is closed."""
    text = resources.files("otel_specdecode").joinpath("telemetry/registry.json").read_text(encoding="utf-8")
    attributes = json.loads(text)["attributes"]
    return {label_name(key): frozenset(one["values"]) for key, one in attributes.items() if one.get("values")}


def check(groups: Iterable[Group], series: Mapping[str, frozenset[str]]) -> None:
    """Check the rules in their order: a recorded series may be used only below where it is recorded.

    Raises:
        RuleError: A rule names a metric, label or value that nobody defines.
    """
    known = dict(series)
    written: set[tuple[str, str]] = set()
    for group in groups:
        for rule in group.rules:
            name = rule.record if isinstance(rule, Recording) else rule.name
            identity = (name, str(rule.fixed) if isinstance(rule, Recording) else "")
            if identity in written:
                raise RuleError(name, "is there already")
            written.add(identity)
            _check_names(name, _names(name, rule.expr), known)
            if isinstance(rule, Alert):
                _check_templates(rule)
            known[name] = rule.labels | (rule.fixed.keys() if isinstance(rule, Recording) else set())


def _names(rule: str, expression: str) -> Names:
    try:
        return names_in(expression)
    except NotPromQLError as problem:
        raise RuleError(rule, str(problem)) from problem


def _check_names(rule: str, names: Names, known: Mapping[str, frozenset[str]]) -> None:
    reachable: set[str] = set()
    for selector in names.selectors:
        if selector.metric not in known:
            raise RuleError(rule, f"no metric {selector.metric}")
        reachable |= known[selector.metric]
        _check_matchers(rule, selector, known[selector.metric])
    if unknown := names.labels - reachable:
        raise RuleError(rule, f"no label {', '.join(sorted(unknown))} on what it reads")


def _check_matchers(rule: str, selector: Selector, known: frozenset[str]) -> None:
    for label, operator, value in selector.matchers:
        if label not in known:
            raise RuleError(rule, f"{selector.metric} has no label {label}")
        values = value.split("|") if "~" in operator else [value]
        closed = label_values().get(label)
        if closed and (wrong := [one for one in values if one and one not in closed]):
            raise RuleError(rule, f"{label} is never {', '.join(wrong)}")


def _check_templates(alert: Alert) -> None:
    for text in (alert.summary, alert.description):
        for label in _TEMPLATE_LABEL.findall(text):
            if label not in alert.labels:
                raise RuleError(alert.name, f"its text uses the label {label}, which it does not have")
