"""What must hold across the whole registry once it is read; what does not raises ``RegistryError``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import Any

from registrykit.types import Registry, RegistryError, Use, constant, is_own

OPERATORS: Mapping[str, frozenset[str]] = {
    "equals": frozenset({"attribute", "equals"}),
    "not_equals": frozenset({"attribute", "not_equals"}),
    "above": frozenset({"attribute", "above"}),
    "differ": frozenset({"differ"}),
    "same": frozenset({"same"}),
    "span_status": frozenset({"span_status"}),
    "all": frozenset({"all"}),
    "any": frozenset({"any"}),
}
"""The operators of a condition with the fields each takes."""


def check(registry: Registry) -> None:
    """Raise for the first thing in the registry that does not fit together."""
    _distinct_names([(key, attribute.file) for key, attribute in registry.attributes.items()])
    _distinct_names([(metric.name, "metrics") for metric in registry.metrics])
    _spans_are_told_apart(registry)
    for owner, uses in _signals(registry):
        for use in uses:
            for condition in (use.required_when, use.absent_when):
                if condition is not None:
                    _condition(owner, use.key, condition, {other.key for other in uses})
    _every_attribute_is_used(registry)


def _distinct_names(named: Iterable[tuple[str, str]]) -> None:
    """No name twice, no name that is a namespace of another, no two names with one constant."""
    for (left, _), (right, file) in combinations(sorted(named), 2):
        if constant(left) == constant(right):
            raise RegistryError(file, right, f"has the same constant as {left}")
        if is_own(left) and right.startswith(f"{left}."):
            raise RegistryError(file, right, f"makes the name {left} a namespace")


def _spans_are_told_apart(registry: Registry) -> None:
    for span in registry.spans:
        levels = {use.key: use.level for use in span.uses}
        if levels.get(span.told_by.partition("=")[0]) != "required":
            raise RegistryError("spans", span.ident, f"is told by {span.told_by}, which it does not require")
        for key in re.findall(r"{([^}]+)}", span.name_pattern):
            if key not in levels:
                raise RegistryError("spans", span.ident, f"has {key} in its name but not among its attributes")


def _signals(registry: Registry) -> Iterator[tuple[str, tuple[Use, ...]]]:
    yield from ((span.ident, span.uses) for span in registry.spans)
    yield from ((metric.name, metric.uses) for metric in registry.metrics)
    yield from ((event.name, event.uses) for event in registry.events)
    yield from ((entity.name, entity.uses) for entity in registry.entities)


def _condition(owner: str, key: str, condition: Mapping[str, Any], known: set[str]) -> None:
    operator = next((name for name, fields in OPERATORS.items() if fields == set(condition)), None)
    if operator is None:
        raise RegistryError(owner, key, f"has the unreadable condition {dict(condition)}")
    for part in condition[operator] if operator in ("all", "any") else ():
        _condition(owner, key, part, known)
    read = condition[operator] if operator in ("differ", "same") else [condition.get("attribute", key)]
    for other in read:
        if other not in known:
            raise RegistryError(owner, key, f"has a condition on {other}, which {owner} has not")


def _every_attribute_is_used(registry: Registry) -> None:
    used = {use.key for _, uses in _signals(registry) for use in uses}
    for key, attribute in registry.attributes.items():
        if key not in used:
            raise RegistryError(attribute.file, key, "is on no span, metric, event or entity")
