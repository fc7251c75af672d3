"""The default policy as a commented file, and the JSON schema of policies for editors; both from the classes."""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import UNSET

from otel_specdecode.guard.breaker import measure_of
from otel_specdecode.guard.policy import (
    MEANING,
    OF_FAILURES,
    OF_THE_MACHINE,
    Policy,
    Table,
    Trigger,
)
from otel_specdecode.guard.policy_rules import LENGTHS, NAME
from otel_specdecode.guard.policy_shape import expected

SCHEMA_FILE: Final = "docs/reference/guard-policy.schema.json"
"""Where the schema is kept, from the repository's root."""

EXAMPLES: Final[dict[tuple[str, ...], Any]] = {
    ("flag_file",): "speculation",
    ("canary_file",): "canary",
    ("baseline", "file"): "baseline.json",
    ("baseline", "write"): "measured.json",
    ("budget", "share_of_streams"): 0.5,
    ("budget", "draft_tokens_per_minute"): 60_000,
    ("degraded_slo", "time_to_first_token_p95"): 2.0,
    ("degraded_slo", "time_per_token_p95"): 0.1,
    ("degraded_slo", "tokens_per_second"): 20.0,
    ("audit", "folder"): "guard-audit",
}
"""Values of the keys that are not set by default, which the file has as comments."""

_HEAD: Final = (
    "A policy of the guard, which switches speculation off where it does not pay, and on again.",
    "Every key is at its default, and may be left out. A line with a key behind # is not set; the value is an example.",
    "`otel-specdecode guard check FILE` says what is wrong with a policy, and in which line.",
)
_WIDTH: Final = 100
_ATTRIBUTE: Final = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)


def default_policy_text() -> str:
    """Return the default policy as TOML in which a comment says what each key means."""
    lines = [*comment(*_HEAD), ""]
    tables: list[str] = []
    texts, policy = attributes(Policy), Policy()
    for each in msgspec.structs.fields(Policy):
        value = getattr(policy, each.name)
        if isinstance(value, Table):
            tables += ["", *comment(summary(type(value))), f"[{each.name}]", *_keys(value, each.name)]
        elif each.name == "triggers":
            tables += ["", *_triggers(value)]
        else:
            lines += _key(each, value, texts[each.name], (each.name,))
    return "\n".join([*lines, *tables, ""])


def _keys(table: Table, name: str) -> Iterator[str]:
    texts = attributes(type(table))
    for each in msgspec.structs.fields(type(table)):
        yield from _key(each, getattr(table, each.name), texts[each.name], (name, each.name))


def _key(each: msgspec.structs.FieldInfo, value: Any, text: str, place: tuple[str, ...]) -> Iterator[str]:
    yield from comment(f"{text} {_sentence(expected(each.type))}")
    yield f"# {each.name} = {toml(EXAMPLES[place])}" if value is None else f"{each.name} = {toml(value)}"


def _triggers(triggers: dict[str, Trigger]) -> Iterator[str]:
    texts = attributes(Trigger)
    yield from comment("The rules, by name. A policy that has any has only those that it has. Their keys are:")
    for each in msgspec.structs.fields(Trigger):
        yield from comment(f"{each.name}: {texts[each.name]} {_sentence(expected(each.type))}")
    for name, trigger in triggers.items():
        measure = measure_of(name, trigger)
        yield ""
        yield from comment(MEANING[measure])
        yield f"[triggers.{name}]"
        for key in msgspec.structs.fields(Trigger):
            value = getattr(trigger, key.name)
            in_a_row_itself = key.name in ("windows", "seconds") and measure in OF_FAILURES | OF_THE_MACHINE
            if value is not UNSET and not in_a_row_itself:
                yield f"{key.name} = {toml(value)}"


def toml(value: Any) -> str:
    """Return a value as it is written in TOML."""
    if isinstance(value, dict):
        pairs = (f"{key if key.isalnum() else json.dumps(key)} = {toml(each)}" for key, each in value.items())
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, (bool, str)):
        return json.dumps(value)
    return f"{value:_}".removesuffix(".0") if value >= 1000 else str(value)


def comment(*texts: str) -> Iterator[str]:
    """Yield the lines of a comment, a paragraph each text."""
    for text in texts:
        yield from textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def summary(kind: type[Table]) -> str:
    """Return the first paragraph of a class's docstring."""
    return " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())


def attributes(kind: type[Table]) -> dict[str, str]:
    """Return what a class's docstring says of each attribute."""
    found = _ATTRIBUTE.findall(inspect.getdoc(kind) or "")
    return {name: " ".join(text.split()) for name, text in found}


def policy_schema() -> dict[str, Any]:
    """Return the JSON schema of a policy file, in which every table and key has a description.

    It knows shapes. What contradicts itself, such as a bound on the wrong side, only `guard check` finds.
    """
    schema = msgspec.json.schema(Policy)
    kinds: dict[str, type[Table]] = {each.__name__: each for each in Table.__subclasses__()}
    for name, definition in schema["$defs"].items():
        definition["description"] = summary(kinds[name])
        texts = attributes(kinds[name])
        for key, each in definition["properties"].items():
            each["description"] = texts[key]
            _without_null(each)
    trigger = schema["$defs"]["Trigger"]
    trigger["oneOf"] = [{"required": ["below"]}, {"required": ["above"]}]
    schema["$defs"]["Policy"]["properties"]["triggers"] |= {
        "minProperties": 1,
        "propertyNames": {"pattern": f"^{NAME.pattern}$"},
    }
    for key in ("below", "above"):
        for kind in trigger["properties"][key]["anyOf"]:
            if kind["type"] == "object":
                kind |= {"minProperties": 1, "propertyNames": {"enum": list(LENGTHS)}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A policy of the guard of otel-specdecode",
        **schema,
    }


def _without_null(schema: dict[str, Any]) -> None:
    """TOML has none: a key without a value is left out."""
    if {"type": "null"} in schema.get("anyOf", ()):
        (other,) = (each for each in schema.pop("anyOf") if each != {"type": "null"})
        schema |= other
        del schema["default"]
