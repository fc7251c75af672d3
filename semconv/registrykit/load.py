"""Reads the registry's files and follows every reference; what does not fit together raises ``RegistryError``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from registrykit import gates
from registrykit.buckets import bounds_of
from registrykit.types import Attribute, Entity, Event, Member, Metric, Registry, RegistryError, Span, Use, is_own
from registrykit.upstream import Needed, groups_in, read_lock, read_yaml

CORE_GROUP = "attributes.specdecode.core"
MODE_ONLY_GROUP = "attributes.specdecode.mode_only"

_OVERLAY = "overlay.yaml"
_EMITTERS = frozenset({"library", "collector"})
_INSTRUMENTS = frozenset({"counter", "updowncounter", "gauge", "histogram"})
_LEVELS = frozenset({"required", "conditionally_required", "recommended", "opt_in"})
_TYPES = frozenset({"string", "int", "double", "boolean", "string[]", "int[]", "double[]", "boolean[]", "any"})

Raw = Mapping[str, Any]


def _own_annotations(item: Raw) -> Raw:
    found: Raw = item.get("annotations", {}).get("specdecode", {})
    return found


def _brief(file: str, ident: str, item: Raw) -> str:
    brief = " ".join(str(item.get("brief", "")).split())
    if not brief:
        raise RegistryError(file, ident, "has no brief")
    return brief


class _Loader:
    """One reading of a registry folder. Holds what is needed to follow references."""

    def __init__(self, root: Path, lock: Raw | None = None) -> None:
        self.overlay = read_yaml(root / _OVERLAY)
        self.manifest = read_yaml(root / "model" / "manifest.yaml")
        self.groups: dict[str, tuple[str, Raw]] = {}
        for file, group in groups_in(root / "model"):
            if group["id"] in self.groups:
                raise RegistryError(file, group["id"], f"is already defined in {self.groups[group['id']][0]}")
            self.groups[group["id"]] = (file, group)
        self.imports = [read_yaml(path).get("imports", {}) for path in sorted((root / "model").rglob("*.yaml"))]
        self.lock: Raw = lock if lock is not None else {}
        self.buckets = self._buckets(root / "buckets.yaml")
        self.attributes: dict[str, Attribute] = {}

    def imported(self, kind: str) -> list[str]:
        """Names of the upstream metrics or events that the model imports."""
        return [name for imports in self.imports for name in imports.get(kind, ())]

    def _buckets(self, path: Path) -> dict[str, tuple[float, ...]]:
        found: dict[str, tuple[float, ...]] = {}
        for name, description in read_yaml(path)["buckets"].items():
            try:
                found[name] = bounds_of(description)
            except ValueError as error:
                raise RegistryError(path.name, name, str(error)) from error
        return found

    # Attributes

    def own_attributes(self) -> Iterator[Attribute]:
        seen: dict[str, str] = {}
        for file, group in self.groups.values():
            for item in group.get("attributes", ()):
                if "id" not in item:
                    continue
                if item["id"] in seen:
                    raise RegistryError(file, item["id"], f"is already defined in {seen[item['id']]}")
                seen[item["id"]] = file
                yield self._own_attribute(file, item)

    def _own_attribute(self, file: str, item: Raw) -> Attribute:
        key, kind = item["id"], item.get("type")
        if not is_own(key):
            raise RegistryError(file, key, "lies outside the namespace specdecode")
        members: tuple[Member, ...] = ()
        if isinstance(kind, Mapping):
            members = tuple(Member(str(m["value"]), _brief(file, key, m)) for m in kind.get("members") or ())
            if not members:
                raise RegistryError(file, key, "is an enum without members")
            kind = "string"
        if kind not in _TYPES:
            raise RegistryError(file, key, f"has the unknown type {kind}")
        values = tuple(m.value for m in members) or tuple(_own_annotations(item).get("values", ()))
        examples = item.get("examples")
        if not values and examples is None:
            raise RegistryError(file, key, "has no examples")
        return Attribute(key, kind, _brief(file, key, item), values, members, tuple(examples or ()), file)

    def upstream_attributes(self) -> Iterator[Attribute]:
        for key, item in self.overlay["attributes"].items():
            known = self.lock["attributes"].get(key)
            kind = item.get("type") or (known and known["type"])
            if kind is None:
                raise RegistryError(_OVERLAY, key, "is not in upstream.lock.yaml: refresh it")
            values = tuple(item.get("values", ()))
            yield Attribute(key, kind, _brief(_OVERLAY, key, item), values, (), (), _OVERLAY)

    # Uses of attributes

    def _level(self, file: str, key: str, raw: Any) -> tuple[str, str]:
        """The requirement level and the text of its condition; recommended where nothing is said."""
        level, condition = next(iter(raw.items())) if isinstance(raw, Mapping) else (raw or "recommended", "")
        if level not in _LEVELS:
            raise RegistryError(file, key, f"has the unknown requirement level {level}")
        return level, str(condition)

    def use(self, file: str, owner: str, key: str, item: Raw) -> Use:
        """One attribute on the signal ``owner``."""
        if key not in self.attributes:
            raise RegistryError(file, owner, f"refers to the unknown attribute {key}")
        level, condition = self._level(file, key, item.get("requirement_level"))
        own = _own_annotations(item)
        return Use(
            key, level, condition, bool(item.get("sampling_relevant")), own.get("required_when"), own.get("absent_when")
        )

    def group(self, ident: str, file: str) -> tuple[str, Raw]:
        """The group ``ident``, which ``file`` refers to, and the file it is in."""
        if ident not in self.groups:
            raise RegistryError(file, ident, "is referred to but defined nowhere")
        return self.groups[ident]

    def uses(self, ident: str, file: str = "") -> tuple[Use, ...]:
        """Attributes of a group after those it extends; a repeated reference replaces the earlier one."""
        file, group = self.group(ident, file)
        found = {use.key: use for use in self.uses(group["extends"], file)} if group.get("extends") else {}
        for item in group.get("attributes", ()):
            if "ref" in item:
                found[item["ref"]] = self.use(file, ident, item["ref"], item)
        return tuple(found.values())

    def own_keys(self, ident: str) -> tuple[str, ...]:
        """Keys that a group refers to itself, without those it extends."""
        _, group = self.group(ident, "model")
        return tuple(item["ref"] for item in group["attributes"])

    def core_keys(self) -> tuple[str, ...]:
        """Keys of the core group, and of those that it extends where they are always there."""
        own = self.own_keys(CORE_GROUP)
        return tuple(use.key for use in self.uses(CORE_GROUP) if use.key in own or use.level == "required")

    # Signals

    def of_type(self, kind: str) -> Iterator[tuple[str, Raw]]:
        return ((file, group) for file, group in self.groups.values() if group["type"] == kind)

    def spans(self) -> Iterator[Span]:
        for file, group in self.of_type("span"):
            own = _own_annotations(group)
            for field in ("span_name", "told_by"):
                if field not in own:
                    raise RegistryError(file, group["id"], f"has no annotation {field}")
            brief = _brief(file, group["id"], group)
            yield Span(group["id"], group["span_kind"], own["span_name"], own["told_by"], brief, self.uses(group["id"]))

    def own_metrics(self) -> Iterator[Metric]:
        for file, group in self.of_type("metric"):
            name = group["metric_name"]
            if not is_own(name):
                raise RegistryError(file, name, "lies outside the namespace specdecode")
            own = _own_annotations(group)
            facts = {
                **group,
                "value_type": group.get("annotations", {}).get("code_generation", {}).get("metric_value_type"),
                "buckets": own.get("buckets"),
                "convention": "any",
                "emitted_by": own.get("emitted_by", "library"),
            }
            yield self._metric(file, name, facts, self.uses(group["id"]))

    def upstream_metrics(self) -> Iterator[Metric]:
        for name in self.imported("metrics"):
            if name not in self.overlay["metrics"]:
                raise RegistryError(_OVERLAY, name, "is imported by the model but has no labels here")
        for name, item in self.overlay["metrics"].items():
            known = {} if item["convention"] == "latest" else self.lock["metrics"].get(name)
            if known is None:
                raise RegistryError(_OVERLAY, name, "is not in upstream.lock.yaml: refresh it")
            labels = [
                self.use(_OVERLAY, name, key, {"requirement_level": level})
                for key, level in item.get("labels", {}).items()
            ]
            yield self._metric(_OVERLAY, name, {**item, **known}, (*self._extended(item), *labels))

    def _extended(self, item: Raw) -> tuple[Use, ...]:
        return self.uses(item["extends"], _OVERLAY) if "extends" in item else ()

    def _metric(self, file: str, name: str, facts: Raw, uses: tuple[Use, ...]) -> Metric:
        buckets = facts.get("buckets")
        if facts.get("instrument") not in _INSTRUMENTS:
            raise RegistryError(file, name, f"has the unknown instrument {facts.get('instrument')}")
        if not facts.get("unit"):
            raise RegistryError(file, name, "has no unit")
        if facts.get("value_type") not in ("int", "double"):
            raise RegistryError(file, name, "has no value type")
        if (facts["instrument"] == "histogram") != (buckets is not None):
            raise RegistryError(file, name, "must have buckets if and only if it is a histogram")
        if buckets is not None and buckets not in self.buckets:
            raise RegistryError(file, name, f"names the unknown buckets {buckets}")
        emitted_by = facts.get("emitted_by", "library")
        if emitted_by not in _EMITTERS:
            raise RegistryError(file, name, f"is emitted by the unknown {emitted_by}")
        return Metric(
            name=name,
            instrument=facts["instrument"],
            unit=facts["unit"],
            value_type=facts["value_type"],
            brief=_brief(file, name, facts),
            uses=uses,
            buckets=buckets,
            convention=facts["convention"],
            replaces=facts.get("replaces"),
            emitted_by=emitted_by,
        )

    def events(self) -> Iterator[Event]:
        for file, group in self.of_type("event"):
            if not is_own(group["name"]):
                raise RegistryError(file, group["name"], "lies outside the namespace specdecode")
            yield Event(group["name"], _brief(file, group["name"], group), self.uses(group["id"]))
        for name, item in self.overlay["events"].items():
            allowed = self.lock["events"].get(name, {}).get("attributes", ())
            for key in item["attributes"]:
                if key not in allowed:
                    raise RegistryError(_OVERLAY, name, f"has {key}, which the upstream event has not")
            levels = {**item["attributes"], **item.get("adds", {})}
            uses = [self.use(_OVERLAY, name, key, {"requirement_level": level}) for key, level in levels.items()]
            yield Event(name, _brief(_OVERLAY, name, item), tuple(uses))

    def entities(self) -> Iterator[Entity]:
        for file, group in self.of_type("entity"):
            yield Entity(group["name"], _brief(file, group["id"], group), self.uses(group["id"]))


def needed_upstream(root: Path) -> Needed:
    """Names of the upstream definitions that the registry in ``root`` refers to."""
    loader = _Loader(root)
    refs = {item["ref"] for _, group in loader.groups.values() for item in group.get("attributes", ()) if "ref" in item}
    overlaid = {key for key, item in loader.overlay["attributes"].items() if "type" not in item}
    return Needed(
        frozenset(key for key in refs | overlaid if not is_own(key)),
        frozenset(loader.imported("metrics")),
        frozenset(loader.imported("events")),
    )


def load(root: Path) -> Registry:
    """The registry of the folder ``root``, resolved and held against the gates."""
    loader = _Loader(root, read_lock(root))
    for attribute in (*loader.own_attributes(), *loader.upstream_attributes()):
        loader.attributes[attribute.key] = attribute
    registry = Registry(
        schema_url=loader.manifest["schema_url"],
        attributes=loader.attributes,
        spans=tuple(loader.spans()),
        metrics=(*loader.own_metrics(), *loader.upstream_metrics()),
        events=tuple(loader.events()),
        entities=tuple(loader.entities()),
        core=loader.core_keys(),
        mode_only=loader.own_keys(MODE_ONLY_GROUP),
        buckets=loader.buckets,
    )
    gates.check(registry)
    return registry
