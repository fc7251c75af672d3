"""Holds what was read from a policy file against the classes of the policy, and finds all that does not fit."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, time
from typing import Any, Final, TypeVar, get_args, get_origin

import msgspec

from otel_specdecode.guard.policy import BY_LENGTH, OF_FAILURES, Policy, Table, Trigger
from otel_specdecode.guard.toml_file import Finding
from otel_specdecode.guard.toml_lines import Place

_MOST: Final = 64
"""Characters of a name or value that a message shows."""

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")

_TAKES: Final[Mapping[str, frozenset[str]]] = {
    "a number of bytes, as 1_610_612_736": frozenset(("swap_growth",)),
    "a number of seconds": frozenset(("memory_pressure", "thermal_state", "queue")),
    "a whole number": OF_FAILURES,
    "a number, or a table with one for each draft length": BY_LENGTH,
}
"""What the bounds of measures are."""

AnyTable = TypeVar("AnyTable", bound=Table)


def read_parts(kind: type[Table], value: object, place: Place, findings: list[Finding]) -> dict[str, Any]:
    """Return those keys of a table that have a good value, converted.

    Args:
        kind: The table's class.
        value: What was read.
        place: Where it stands.
        findings: What is wrong is added here.
    """
    if not isinstance(value, dict):
        findings.append(Finding(place, f"{named(place)} must be a table, not {shown(value)}"))
        return {}
    kinds = {each.name: each.type for each in msgspec.structs.fields(kind)}
    parts = {}
    for key, each in value.items():
        here = (*place, key)
        if key not in kinds:
            findings.append(Finding(here, _unknown_key(here, kinds)))
            continue
        before = len(findings)
        part = _read(kinds[key], each, here, findings)
        if len(findings) == before or key == "triggers":
            parts[key] = part
    return parts


def read_table(kind: type[AnyTable], value: object, place: Place, findings: list[Finding]) -> AnyTable | None:
    """Return a table, or None if anything in it is wrong. Arguments are those of read_parts."""
    before = len(findings)
    parts = read_parts(kind, value, place, findings)
    return kind(**parts) if len(findings) == before else None


def _read(kind: Any, value: object, place: Place, findings: list[Finding]) -> Any:
    if isinstance(kind, type) and issubclass(kind, Table):
        return read_table(kind, value, place, findings)
    if get_args(kind) == (str, Trigger):
        return _triggers(value, place, findings)
    return _plain(kind, value, place, findings)


def _triggers(value: object, place: Place, findings: list[Finding]) -> dict[str, Trigger]:
    """Return the good triggers."""
    if not isinstance(value, dict):
        what = f"{named(place)} must be a table of tables, as in [{named((*place, 'NAME'))}], not {shown(value)}"
        findings.append(Finding(place, what))
        return {}
    if not value:
        findings.append(Finding(place, f"[{named(place)}] has no trigger: add one, or leave it out for the default's"))
    read = {name: _trigger(name, each, (*place, name), findings) for name, each in value.items()}
    return {name: trigger for name, trigger in read.items() if trigger is not None}


def _trigger(name: str, value: object, place: Place, findings: list[Finding]) -> Trigger | None:
    """Return a trigger; what is wrong with a bound that is no number is told by what its measure takes."""
    if not isinstance(value, dict):
        return read_table(Trigger, value, place, findings)
    before, measure = len(findings), value.get("measure", name)
    kinds = (int, float, dict)
    wrong = [
        key
        for key in ("below", "above")
        if key in value and (isinstance(value[key], bool) or not isinstance(value[key], kinds))
    ]
    for key in wrong:
        what = next((words for words, measures in _TAKES.items() if measure in measures), "a number")
        findings.append(Finding((*place, key), f"{named((*place, key))} must be {what}, not {shown(value[key])}"))
    read = read_table(Trigger, {key: each for key, each in value.items() if key not in wrong}, place, findings)
    return read if len(findings) == before else None


def _plain(kind: Any, value: object, place: Place, findings: list[Finding]) -> Any:
    """Return a value that is no table of ours; each item of a list or of a table of numbers has its own finding."""
    if isinstance(value, list) and get_origin(kind) is tuple:
        return tuple(_plain(get_args(kind)[0], each, (*place, at), findings) for at, each in enumerate(value))
    numbers = next((each for each in (kind, *get_args(kind)) if get_origin(each) is dict), None)
    if isinstance(value, dict) and numbers is not None:
        return {key: _plain(get_args(numbers)[1], each, (*place, key), findings) for key, each in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        findings.append(Finding(place, f"{named(place)} must be finite, not {shown(value)}"))
        return None
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        message = f"{named(place)} must be {expected(kind)}, not {shown(value)}{_meant(kind, value)}"
        findings.append(Finding(place, message))
        return None


def expected(kind: Any) -> str:
    """Return what a value has to be, in words."""
    return _words(msgspec.inspect.type_info(kind))


def _words(info: msgspec.inspect.Type) -> str:
    if isinstance(info, msgspec.inspect.LiteralType):
        choices = [json.dumps(each) for each in sorted(info.values, key=str)]
        return choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"
    if isinstance(info, (msgspec.inspect.IntType, msgspec.inspect.FloatType)):
        what = "a whole number" if isinstance(info, msgspec.inspect.IntType) else "a number"
        return f"{what}{_range(info)}"
    if isinstance(info, msgspec.inspect.VarTupleType):
        return f"a list; each of its items {_words(info.item_type)}"
    if isinstance(info, msgspec.inspect.DictType):
        return "a table with one for each draft length"
    if isinstance(info, msgspec.inspect.UnionType):
        kinds = [each for each in info.types if not isinstance(each, msgspec.inspect.NoneType)]
        return ", or ".join(_words(each) for each in kinds)
    return {
        msgspec.inspect.StrType: "a text in quotes",
        msgspec.inspect.BoolType: "true or false",
        msgspec.inspect.DateType: "a date such as 2026-01-31, without quotes",
    }[type(info)]


def _range(info: msgspec.inspect.IntType | msgspec.inspect.FloatType) -> str:
    limits = [
        f"{word} {limit:_}" if limit < 1e9 else f"{word} {limit:g}".replace("+", "")
        for word, limit in (("above", info.gt), ("from", info.ge), ("below", info.lt), ("up to", info.le))
        if limit is not None
    ]
    return f" {' and '.join(limits)}".replace(" and up to", " to") if limits else ""


def _meant(kind: Any, value: object) -> str:
    info = msgspec.inspect.type_info(kind)
    if not isinstance(info, msgspec.inspect.LiteralType) or not isinstance(value, str):
        return ""
    return nearest(value, [str(each) for each in info.values])


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a question for what a name may have been meant to be, or nothing."""
    close = difflib.get_close_matches(name[:_MOST], known, 1)
    return f"; did you mean {close[0]}?" if close else ""


def _unknown_key(place: Place, known: Iterable[str]) -> str:
    """Say what to do about a key that its table does not have."""
    key, table = str(place[-1]), place[:-1]
    where = f"[{named(table)}]" if table else "a policy"
    what = f"{where} has no key {named((key,))}"
    homes = [home for home in _homes(key) if home != table]
    near = nearest(key, known)
    if near or not homes:
        return f"{what}{near or '; its keys are ' + ', '.join(known)}"
    if () in homes:
        return f"{what}; it is a key of the policy itself: move it above the first [table]"
    return f"{what}; it is a key of {' and of '.join(f'[{named(home)}]' for home in homes)}"


def _homes(key: str) -> list[Place]:
    """Return the tables of a policy that have this key; () is the policy itself."""
    fields = msgspec.structs.fields(Policy)
    tables = [each for each in fields if isinstance(each.type, type) and issubclass(each.type, Table)]
    plain = [each for each in fields if each not in tables and each.name != "triggers"]
    homes: list[tuple[Place, Sequence[msgspec.structs.FieldInfo]]] = [((), plain)]
    homes += [((each.name,), msgspec.structs.fields(each.type)) for each in tables]
    return [place for place, keys in homes if any(each.name == key for each in keys)]


def plain(value: Any) -> Any:
    """Return a policy as TOML would have it, and what is none of its values as it is."""
    if isinstance(value, Table):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        return {name: plain(each) for name, each in fields.items() if each is not msgspec.UNSET}
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def named(place: Place) -> str:
    """Return a place as it is written in TOML, on one line and not too long."""
    text = ""
    for key in place[:_MOST]:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            text += ("." if text else "") + (key if _BARE.fullmatch(key) else json.dumps(key))
        if len(text) > _MOST:
            return text[:_MOST] + "..."
    return text


def shown(value: object) -> str:
    """Return a value as it is written in TOML, on one line; of a table or list only what it is."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value if len(value) <= _MOST else value[:_MOST] + "...")
    if isinstance(value, float) or (isinstance(value, int) and value.bit_length() <= _MOST):
        return str(value)
    if isinstance(value, int):
        return "so large a number"
    if isinstance(value, (dict, list)):
        return "a table" if isinstance(value, dict) else "a list"
    if isinstance(value, (date, time)):
        return "a date or time"
    return f"a {type(value).__name__}" if value is not None else "None"  # of a policy that was made in code
