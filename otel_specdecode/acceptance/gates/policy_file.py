"""Reads policies of gates: the presets, and files that start from one and say what is different."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any, Final

from otel_specdecode.acceptance.gates.measures import MEASURES, SPECIAL_KEYS
from otel_specdecode.acceptance.gates.policy import (
    BOUNDS,
    PRESETS,
    VERSION,
    Gate,
    GatesPolicy,
    Preset,
    Validity,
    Waiver,
    numbers,
)
from otel_specdecode.guard.policy_shape import AnyTable, named, nearest, read_table, shown
from otel_specdecode.guard.toml_file import Finding, read_toml
from otel_specdecode.guard.toml_lines import Place

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_COMMON: Final = "common"
_KEYS: Final = ("version", "preset", "validity", "gates", "waivers")
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_REFERENCES: Final = (*BOUNDS, "needs", "max_input_tokens", "free_memory")
_NEEDED: Final = ("gate", "who", "reason", "expires")


@cache
def preset_policy(preset: Preset) -> GatesPolicy:
    """Return a preset as it comes with this package."""
    findings: list[Finding] = []
    policy = _policy({"preset": preset}, findings)
    if policy is None or findings:
        raise AssertionError(f"presets.toml: {findings}")
    return policy


def read_gates(path: str | os.PathLike[str]) -> GatesPolicy:
    """Return the policy in a file.

    Raises:
        PolicyError: It cannot be read, is no TOML, or says what no policy may say.
    """
    file = read_toml(path, "otel-specdecode gates init --preset balanced --output FILE")
    findings: list[Finding] = []
    policy = _policy(file.document, findings)
    if policy is None or findings:
        raise file.error(findings)
    return policy


@cache
def preset_tables() -> Mapping[str, Any]:
    """Return the tables of presets.toml."""
    text = resources.files("otel_specdecode.acceptance.gates").joinpath("presets.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def preset_gates(preset: str | None) -> dict[str, dict[str, Any]]:
    """Return the gates of a preset as they are written, its own first, then those of all; none without a preset."""
    tables = preset_tables()
    return {} if preset is None else {**tables[preset], **tables[_COMMON]}


def _policy(document: Mapping[str, Any], findings: list[Finding]) -> GatesPolicy | None:
    version = document.get("version", VERSION)
    if isinstance(version, bool) or version != VERSION:
        what = f"this release reads version {VERSION} of the format, not {shown(version)}"
        findings.append(Finding(("version",), f"{what}: `otel-specdecode gates init` prints one to adapt"))
        return None
    findings += [Finding((key,), _unknown(key, "a policy of gates", _KEYS)) for key in document if key not in _KEYS]
    preset = document.get("preset")
    if preset is not None and preset not in PRESETS:
        guess = nearest(preset, PRESETS) if isinstance(preset, str) else ""
        findings.append(Finding(("preset",), f"preset must be one of {', '.join(PRESETS)}, not {shown(preset)}{guess}"))
        return None
    validity = _validity(document.get("validity", {}), findings)
    gates = _gates(document.get("gates", {}), preset, findings)
    if not findings and not any(gate.enabled for gate in gates.values()):
        findings.append(Finding(("gates",), "there is no gate: name a preset, or write [gates.NAME]"))
    waivers = _waivers(document.get("waivers", []), gates, findings)
    if findings or validity is None:
        return None
    return GatesPolicy(preset=preset, validity=validity, gates=gates, waivers=waivers)


def _validity(written: object, findings: list[Finding]) -> Validity | None:
    if not isinstance(written, dict):
        findings.append(Finding(("validity",), f"validity must be a table, not {shown(written)}"))
        return None
    table = _table(Validity, {**preset_tables()["validity"], **written}, ("validity",), findings)
    findings += _references(("validity",), written)
    return table


def _gates(written: object, preset: str | None, findings: list[Finding]) -> dict[str, Gate]:
    if not isinstance(written, dict):
        findings.append(
            Finding(("gates",), f"gates must be a table of tables, as in [gates.NAME], not {shown(written)}")
        )
        return {}
    tables: dict[str, Any] = dict(preset_gates(preset))
    for name, table in written.items():
        place = ("gates", name)
        if not _NAME.fullmatch(name):
            what = "must begin with a small letter and have only small letters, digits and _, at most 64 of them"
            findings.append(Finding(place, f"the gate's name {shown(name)} {what}"))
        if not isinstance(table, dict):
            findings.append(Finding(place, f"{named(place)} must be a table, not {shown(table)}"))
            tables.pop(name, None)
            continue
        tables[name] = _over(tables.get(name, {}), table)
    found = {name: _gate(name, table, findings) for name, table in tables.items()}
    return {name: gate for name, gate in found.items() if gate is not None}


def _over(preset: Mapping[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """Return a gate with what was written over the preset's; a bound takes the place of the preset's."""
    bounded = any(key in BOUNDS for key in written)
    return {**{key: value for key, value in preset.items() if not (bounded and key in BOUNDS)}, **written}


def _gate(name: str, written: Mapping[str, Any], findings: list[Finding]) -> Gate | None:
    place = ("gates", name)
    table = {"measure": name, **written} if name in MEASURES else dict(written)
    measure = table.get("measure")
    if measure is None:
        if name in _preset_names():
            guess = f"; presets have a gate of that name: name one that has, as in preset = {shown(_preset_with(name))}"
        else:
            guess = nearest(name, (*MEASURES, *_preset_names()))
        what = f"{named(place)} needs a measure, as its name is that of none, nor of a gate of the preset{guess}"
        findings.append(Finding(place, what))
        return None
    if isinstance(measure, str) and measure not in MEASURES:
        near = nearest(measure, MEASURES) or f"; there are {', '.join(MEASURES)}"
        findings.append(Finding((*place, "measure"), f"there is no measure {shown(measure)}{near}"))
        return None
    gate = _table(Gate, table, place, findings)
    before = len(findings)
    findings += _references(place, table)
    if gate is None or len(findings) > before:
        return None
    findings += _rules(place, gate, table)
    return gate if len(findings) == before else None


def _rules(place: Place, gate: Gate, table: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield what contradicts itself in a gate whose values have the right shape."""
    bounds = [each for each in BOUNDS if getattr(gate, each) is not None]
    if len(bounds) != 1:
        what = f"has {' and '.join(bounds)}: leave one" if bounds else f"needs a bound: say one of {', '.join(BOUNDS)}"
        yield Finding((*place, bounds[-1]) if bounds else place, f"{named(place)} {what}")
    knows = MEASURES[gate.measure].keys
    for key in table:
        if key in SPECIAL_KEYS and key not in knows:
            yield Finding(
                (*place, key), f"{named((*place, key))} means nothing to the measure {gate.measure}: leave it out"
            )
    if gate.window and (len(gate.window) != 2 or gate.window[0] >= gate.window[1]):
        yield Finding((*place, "window"), f"{named((*place, 'window'))} must be a first token and a later last one")
    if gate.arm == "autoregressive" and (gate.k is not None or gate.over_autoregressive):
        yield Finding((*place, "arm"), f"{named(place)} is of the autoregressive arm, which has no k and no baseline")


def _references(place: Place, table: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield texts that stand for a number and name none."""
    for key in _REFERENCES:
        value = table.get(key)
        if isinstance(value, str) and value not in numbers():
            what = f"must be a number, or the name of one in thresholds.toml, not {shown(value)}"
            yield Finding((*place, key), f"{named((*place, key))} {what}{nearest(value, numbers())}")


def _waivers(written: object, gates: Mapping[str, Gate], findings: list[Finding]) -> tuple[Waiver, ...]:
    if not isinstance(written, list):
        findings.append(
            Finding(("waivers",), f"waivers must be a list of tables, as in [[waivers]], not {shown(written)}")
        )
        return ()
    found = []
    for number, table in enumerate(written):
        place = ("waivers", number)
        missing = [key for key in _NEEDED if key not in table] if isinstance(table, dict) else []
        if missing:
            findings.append(Finding(place, f"a waiver needs {', '.join(_NEEDED)}; this one lacks {', '.join(missing)}"))
            continue
        waiver = _table(Waiver, table, place, findings)
        if waiver is None:
            continue
        found.append(waiver)
        if waiver.gate not in gates:
            guess = nearest(waiver.gate, gates)
            findings.append(Finding((*place, "gate"), f"there is no gate {shown(waiver.gate)} to waive{guess}"))
        empty = [key for key in ("who", "reason") if not getattr(waiver, key).strip()]
        findings += [Finding((*place, key), f"{named((*place, key))} must say something") for key in empty]
    return tuple(found)


def _table(kind: type[AnyTable], written: object, place: Place, findings: list[Finding]) -> AnyTable | None:
    """Return a table, or None if anything in it is wrong."""
    if not isinstance(written, dict):
        return read_table(kind, written, place, findings)
    keys = kind.__struct_fields__
    unknown = [key for key in written if key not in keys]
    where = f"[{named(place)}]" if kind is not Waiver else "a waiver"
    findings += [Finding((*place, key), _unknown(key, where, keys)) for key in unknown]
    table = read_table(kind, {key: value for key, value in written.items() if key in keys}, place, findings)
    return None if unknown else table


def _unknown(key: str, where: str, known: tuple[str, ...]) -> str:
    return f"{where} has no key {named((key,))}{nearest(key, known) or '; its keys are ' + ', '.join(known)}"


def _preset_with(gate: str) -> str:
    """Return a preset that has a gate of a name; all of them have the common ones."""
    return next((each for each in PRESETS if gate in preset_tables()[each]), PRESETS[0])


def _preset_names() -> list[str]:
    return [name for table in (_COMMON, *PRESETS) for name in preset_tables()[table]]
