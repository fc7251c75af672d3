"""What a resolved registry consists of: plain data, with every reference followed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

OWN_NAMESPACE = "specdecode"
"""Everything this library defines lies under this name; everything else is upstream's."""


class RegistryError(Exception):
    """The registry contradicts itself. The message names the file and the id."""

    def __init__(self, file: str, ident: str, problem: str) -> None:
        super().__init__(f"{file}: {ident}: {problem}")


def is_own(name: str) -> bool:
    """Whether a name is this library's rather than upstream's."""
    return name.startswith(f"{OWN_NAMESPACE}.")


def constant(name: str) -> str:
    """The Python constant of a dotted name."""
    return name.upper().replace(".", "_")


@dataclass(frozen=True)
class Member:
    """One value of an enum."""

    value: str
    brief: str


@dataclass(frozen=True)
class Attribute:
    """One attribute key. ``values`` is its closed value set, empty if it may hold anything of its type."""

    key: str
    type: str
    brief: str
    values: tuple[str, ...]
    members: tuple[Member, ...]
    examples: tuple[Any, ...]
    file: str


@dataclass(frozen=True)
class Use:
    """An attribute on a signal: how strongly it is asked for, and when."""

    key: str
    level: str
    condition: str
    sampling_relevant: bool
    required_when: Mapping[str, Any] | None
    absent_when: Mapping[str, Any] | None


@dataclass(frozen=True)
class Span:
    """One kind of span, told from the others by ``told_by``: the presence of an attribute, or ``key=value``."""

    ident: str
    kind: str
    name_pattern: str
    told_by: str
    brief: str
    uses: tuple[Use, ...]


@dataclass(frozen=True)
class Metric:
    """One instrument.

    ``convention`` is any, released or latest: under which GenAI metric names it is emitted. ``emitted_by`` is library,
    or collector for what the collector's bridge reads from the pages of other engines.
    """

    name: str
    instrument: str
    unit: str
    value_type: str
    brief: str
    uses: tuple[Use, ...]
    buckets: str | None
    convention: str
    replaces: str | None
    emitted_by: str


@dataclass(frozen=True)
class Event:
    """One log record with a name."""

    name: str
    brief: str
    uses: tuple[Use, ...]


@dataclass(frozen=True)
class Entity:
    """What resource attributes describe."""

    name: str
    brief: str
    uses: tuple[Use, ...]


@dataclass(frozen=True)
class Registry:
    """Everything that is emitted, in the order of the registry's files."""

    schema_url: str
    attributes: Mapping[str, Attribute]
    spans: tuple[Span, ...]
    metrics: tuple[Metric, ...]
    events: tuple[Event, ...]
    entities: tuple[Entity, ...]
    core: tuple[str, ...]
    mode_only: tuple[str, ...]
    buckets: Mapping[str, tuple[float, ...]]
