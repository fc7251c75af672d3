"""A preset as a commented file, which a user edits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from otel_specdecode.acceptance.gates.measures import MEASURES
from otel_specdecode.acceptance.gates.policy import VERSION, Gate, Preset, Validity, Waiver, numbers
from otel_specdecode.acceptance.gates.policy_file import preset_gates, preset_tables
from otel_specdecode.guard.policy_text import attributes, comment, toml

_HEAD: Final = (
    "What a run is held against before speculation is rolled out. `otel-specdecode gates check FILE` says what is wrong"
    " with it, and in which line; `otel-specdecode gate RUN --policy FILE --soak SOAK` holds a run against it."
)
_ALL: Final = (
    "All that is here is as in the preset, and may be left out. A text in the place of a number is the name of one in"
    " thresholds.toml. Seconds, bytes, tokens; shares from 0 to 1."
)
_GATES: Final = (
    "The gates. What is written here takes the place of the preset's; a gate of your own needs a measure and a bound,"
    " and `enabled = false` switches one off. Their keys are:"
)
_WAIVERS: Final = (
    "A failure that somebody answers for, until a day. It is shown in the verdict. What was not measured cannot be"
    " waived."
)
_EXAMPLE: Final = {"gate": "quality", "who": "A. Reviewer", "reason": "too few tasks by now"}
_UNTIL: Final = "2026-01-31"


def preset_text(preset: Preset) -> str:
    """Return a preset as TOML in which a comment says what each gate and key is good for."""
    lines = [*comment(_HEAD, _ALL), "", f"version = {VERSION}", f'preset = "{preset}"', ""]
    lines += [*comment("What must hold for a run to count at all."), "[validity]", *_validity(), ""]
    lines += [*comment(_GATES), *_keys(), *comment(f"Measures: {', '.join(MEASURES)}."), ""]
    for name, gate in preset_gates(preset).items():
        lines += [*_gate(name, gate), ""]
    lines += [*comment(_WAIVERS), *_waiver(), ""]
    return "\n".join(lines)


def _validity() -> Iterator[str]:
    texts = attributes(Validity)
    for key, value in preset_tables()["validity"].items():
        yield from comment(texts[key])
        yield _pair(key, value)


def _keys() -> Iterator[str]:
    for key, text in attributes(Gate).items():
        yield from comment(f"{key}: {text}")


def _gate(name: str, gate: Mapping[str, Any]) -> Iterator[str]:
    yield from comment(gate["about"])
    yield f"[gates.{name}]"
    for key, value in gate.items():
        if key != "about":
            yield _pair(key, value)


def _waiver() -> Iterator[str]:
    texts = attributes(Waiver)
    yield "# [[waivers]]"
    for key, value in {**{key: toml(value) for key, value in _EXAMPLE.items()}, "expires": _UNTIL}.items():
        yield f"# {key} = {value}  # {texts[key]}"


def _pair(key: str, value: Any) -> str:
    written = toml(tuple(value)) if isinstance(value, list) else toml(value)
    if not isinstance(value, str) or value not in numbers():
        return f"{key} = {written}"
    found = numbers()[value]
    return f"{key} = {written}  # {toml(int(found) if found.is_integer() else found)}"
