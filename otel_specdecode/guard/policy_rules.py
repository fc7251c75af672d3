"""What must hold in a policy beyond the shape of its values: what contradicts itself, or could never trip."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import UNSET

from otel_specdecode.guard.breaker import PROBE, RECOVERED, measure_of
from otel_specdecode.guard.policy import (
    BY_LENGTH,
    MEASURES,
    OF_FAILURES,
    OF_THE_MACHINE,
    Audit,
    Baseline,
    Bound,
    DegradedSLO,
    Ladder,
    Probe,
    Trigger,
    default_triggers,
)
from otel_specdecode.guard.policy_shape import named, nearest, shown
from otel_specdecode.guard.toml_file import Finding
from otel_specdecode.guard.toml_lines import Place

LOW_IS_BAD: Final = frozenset(("break_even", "accept_rate", "speedup", "service_speedup"))
SHARES: Final = frozenset(("accept_rate", "all_rejected", "nothing_proposed"))
NEVER_NOTHING: Final = frozenset(("all_rejected", "nothing_proposed", "time_per_token", "time_to_first_token"))
"""Measures that are bad where they are high, and that no service keeps at 0."""

OWN_TRIGGERS: Final = frozenset(("flag", PROBE, RECOVERED))
"""What a trail has as the trigger of what no trigger does."""

LENGTHS: Final = (*(str(length) for length in range(1, 16)), "16+")
"""Keys of a bound that depends on the draft length."""

LARGEST: Final = 1e15
NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")

_PLAUSIBLE: Final = {"time_to_first_token_p95": 3600.0, "time_per_token_p95": 60.0, "tokens_per_second": 1e6}
"""The most of a service level; above it, somebody thought of another unit."""


def broken_rules(parts: Mapping[str, Any], folder: Path, policy: Path | None = None) -> Iterator[Finding]:
    """Yield what is wrong in those parts of a policy that have the right shape.

    Args:
        parts: Its tables and values, by key.
        folder: What relative paths start from.
        policy: The policy's own file, None of one that was made in code.
    """
    for key in ("flag_file", "canary_file"):
        if parts.get(key) is not None:
            yield from _path((key,), parts[key], folder, wants_folder=False)
    if "triggers" in parts:
        yield from _triggers(parts["triggers"])
    yield from _ways_back(parts)
    yield from _same_files(parts, folder, policy)
    rules: dict[type, Any] = {Ladder: _ladder, Probe: _probe, DegradedSLO: _degraded_slo}
    for key, part in parts.items():
        if type(part) in rules:
            yield from rules[type(part)]((key,), part)
        elif isinstance(part, Baseline):
            yield from _baseline((key,), part, folder)
        elif isinstance(part, Audit):
            yield from _audit((key,), part, folder)


def _triggers(triggers: Mapping[str, Trigger]) -> Iterator[Finding]:
    for name, trigger in triggers.items():
        place = ("triggers", name)
        if not NAME.fullmatch(name):
            what = "must begin with a small letter and have only small letters, digits and _, at most 64 of them"
            yield Finding(place, f"the trigger's name {shown(name)} {what}")
        elif name in OWN_TRIGGERS:
            yield Finding(place, f"{named(place)}: the trail has {name} for what the guard itself does, take another")
        elif trigger.measure is UNSET and name not in MEASURES:
            guess = nearest(name, MEASURES)
            what = f"{named(place)} needs a measure, as its name is none of {', '.join(MEASURES)}{guess}"
            yield Finding(place, what)
            continue
        measure = measure_of(name, trigger)
        if measure in MEASURES:
            yield from _trigger(place, trigger, measure)


def _trigger(place: Place, trigger: Trigger, measure: str) -> Iterator[Finding]:
    key, other = ("below", "above") if measure in LOW_IS_BAD else ("above", "below")
    bound = getattr(trigger, key)
    if getattr(trigger, other) is not UNSET:
        bad = "low" if key == "below" else "high"
        yield Finding(
            (*place, other), f"{named(place)} must say {key}, not {other}: {measure} is bad where it is {bad}"
        )
    elif bound is UNSET:
        yield Finding(place, f"{named(place)} needs a bound: say {key}")
    if measure in OF_FAILURES | OF_THE_MACHINE:
        for key in (key for key, least in (("windows", 1), ("seconds", 0)) if getattr(trigger, key) > least):
            what = f"{named(place)} has no {key}: {measure} counts in a row itself; raise above, and leave {key} out"
            yield Finding((*place, key), what)
    if bound is not UNSET:
        yield from _bound((*place, key), bound, measure)


def _bound(place: Place, bound: Bound, measure: str) -> Iterator[Finding]:
    if not isinstance(bound, dict):
        yield from _number(place, bound, measure)
    elif measure not in BY_LENGTH:
        what = f"must be one number: only {', '.join(sorted(BY_LENGTH))} may have one for each draft length"
        yield Finding(place, f"{named(place)} {what}")
    elif not bound:
        yield Finding(place, f"{named(place)} has no bound: its keys are draft lengths, 1 to 15 and 16+")
    else:
        for length, each in bound.items():
            if length not in LENGTHS:
                yield Finding((*place, length), f'{named((*place, length))} is no draft length: say 1 to 15, or "16+"')
            else:
                yield from _number((*place, length), each, measure)
        gaps = _gaps(bound)
        if gaps:
            what = f"has no bound for draft length {', '.join(gaps)}: it needs one for each from 1 to its longest"
            yield Finding(place, f"{named(place)} {what}, as drafts are shortened")


def _gaps(bound: Mapping[str, float]) -> list[str]:
    """Return the draft lengths below the longest of a table that it has no bound for, where its keys are lengths."""
    if not all(length in LENGTHS for length in bound):
        return []
    longest = max(map(LENGTHS.index, bound))
    return [length for length in LENGTHS[:longest] if length not in bound]


def _ways_back(parts: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield bounds that no value keeps with the margin that a way back needs: speculation would never come back."""
    probe, triggers = parts.get("probe", Probe()), parts.get("triggers", default_triggers())
    margin = probe.hysteresis
    for name, trigger in triggers.items():
        measure = name if trigger.measure is UNSET else trigger.measure
        for place, kept in _kept(name, trigger, measure, margin):
            key = named(("probe", "hysteresis"))
            what = f"with {key} = {shown(margin)} {named(place)} lets no speculation back: {measure} is never {kept}"
            if "triggers" not in parts:  # those of the default policy, which have no line
                yield Finding(("probe", "hysteresis"), f"{what}; lower {key}")
                return
            yield Finding(place, f"{what}; lower one of them")


def _kept(name: str, trigger: Trigger, measure: str, margin: float) -> Iterator[tuple[Place, str]]:
    """Yield the places of such bounds, and what the measure would have to be."""
    if measure in SHARES & LOW_IS_BAD and trigger.below is not UNSET:
        of_each = trigger.below.items() if isinstance(trigger.below, dict) else [("", trigger.below)]
        for length, bound in of_each:
            if bound <= 1 < bound * (1 + margin):  # a bound above 1 is told as such
                yield ("triggers", name, "below", *([length] if length else [])), f"at least {bound * (1 + margin):.4g}"
    elif (
        measure in NEVER_NOTHING
        and isinstance(trigger.above, float)
        and trigger.above * (1 - margin) <= 0 < trigger.above
    ):
        yield ("triggers", name, "above"), "0"


def _same_files(parts: Mapping[str, Any], folder: Path, policy: Path | None) -> Iterator[Finding]:
    """Yield paths that lead to the same file: one would be written over the other, or read as what it is not."""
    seen: list[tuple[str, Path]] = [] if policy is None else [("the policy itself", policy)]
    baseline, audit = parts.get("baseline", Baseline()), parts.get("audit", Audit())
    named_paths: list[tuple[Place, Any]] = [
        (("flag_file",), parts.get("flag_file")),
        (("canary_file",), parts.get("canary_file")),
        (("baseline", "file"), baseline.file),
        (("baseline", "write"), baseline.write),
        (("audit", "folder"), audit.folder),  # one that is a file is told as such
    ]
    for place, path in named_paths:
        if path is None or (place[0] == "audit" and _is(folder / path, "is_file")):
            continue
        other = next((name for name, known in seen if _same(known, folder / path)), None)
        if other is not None:
            yield Finding(place, f"{named(place)} must be a file of its own, and is that of {other}")
        seen.append((named(place), folder / path))


def _number(place: Place, bound: float, measure: str) -> Iterator[Finding]:
    if measure in SHARES:
        low = measure in LOW_IS_BAD
        fits, what = (0 < bound <= 1, "above 0 and at most 1") if low else (0 <= bound < 1, "from 0 to below 1")
        what = f"a share {what}"
    elif measure in OF_FAILURES:
        fits, what = 1 <= bound < LARGEST and bound == math.floor(bound), "a whole number from 1 on"
    elif measure in OF_THE_MACHINE or measure == "queue":
        fits, what = 0 <= bound < LARGEST, "a number from 0 on, below 1e15"
    else:
        fits, what = 0 < bound < LARGEST, "a ratio above 0, below 1e15"
    if not fits:
        yield Finding(place, f"{named(place)} must be {what}, not {shown(bound)}")


def _ladder(place: Place, ladder: Ladder) -> Iterator[Finding]:
    for at, (longer, shorter) in enumerate(zip(ladder.lengths, ladder.lengths[1:], strict=False), 1):
        if shorter >= longer:
            what = f"must fall, longest first, each once: {shorter} comes after {longer}"
            yield Finding((*place, "lengths", at), f"{named((*place, 'lengths'))} {what}")


def _probe(place: Place, probe: Probe) -> Iterator[Finding]:
    if probe.longest_cool_down < probe.cool_down:
        key = (*place, "longest_cool_down")
        what = f"must not be below {named((*place, 'cool_down'))}, which is {shown(probe.cool_down)}"
        yield Finding(key, f"{named(key)} {what}")


def _degraded_slo(place: Place, slo: DegradedSLO) -> Iterator[Finding]:
    for key, most in _PLAUSIBLE.items():
        value = getattr(slo, key)
        if value is not None and value > most:
            unit = "tokens a second" if key == "tokens_per_second" else "seconds, not milliseconds"
            what = f"must be at most {most:g}, not {shown(value)}: it is in {unit}"
            yield Finding((*place, key), f"{named((*place, key))} {what}")


def _baseline(place: Place, baseline: Baseline, folder: Path) -> Iterator[Finding]:
    if baseline.most_share < baseline.share:
        key = (*place, "most_share")
        what = f"must not be below {named((*place, 'share'))}, which is {shown(baseline.share)}"
        yield Finding(key, f"{named(key)} {what}")
    if baseline.write is not None:
        write = (*place, "write")
        yield from _path(write, baseline.write, folder, wants_folder=False)
        if baseline.write.endswith(".toml"):
            yield Finding(write, f"{named(write)} is written as JSON, over what is there: name no policy, a .json file")
    key = (*place, "file")
    if baseline.source == "file" and baseline.file is None:
        yield Finding((*place, "source"), f'{named((*place, "source"))} = "file" needs {named(key)} = "FILE"')
    if baseline.file is None:
        return
    if baseline.source != "file":
        yield Finding(
            key, f'{named(key)} is read only with {named((*place, "source"))} = "file": say so, or leave it out'
        )
    wrong = list(_path(key, baseline.file, folder, wants_folder=False))
    yield from wrong
    if not wrong and baseline.source == "file" and not _is(folder / baseline.file, "is_file"):
        yield Finding(
            key,
            f"{named(key)} is not there: a process without a draft whose policy says {named((*place, 'write'))} writes "
            "one, and a relative path starts from the policy's folder",
        )


def _audit(place: Place, audit: Audit, folder: Path) -> Iterator[Finding]:
    if audit.folder is not None:
        yield from _path((*place, "folder"), audit.folder, folder, wants_folder=True)
    elif audit.state:
        key = (*place, "folder")
        yield Finding((*place, "state"), f'{named((*place, "state"))} needs {named(key)} = "FOLDER" to save it in')


def _path(place: Place, path: str, folder: Path, *, wants_folder: bool) -> Iterator[Finding]:
    if not path.strip() or not path.isprintable():
        yield Finding(place, f"{named(place)} must be a path, not {shown(path)}")
    elif path.startswith("~"):
        yield Finding(place, f"{named(place)} must be a whole path: ~ does not stand for a home folder here")
    elif not wants_folder and _is(folder / path, "is_dir"):
        yield Finding(place, f"{named(place)} must be a file, and {shown(path)} is a folder")
    elif wants_folder and _is(folder / path, "is_file"):
        yield Finding(place, f"{named(place)} must be a folder, and {shown(path)} is a file")


def _same(one: Path, other: Path) -> bool:
    """Whether two paths lead to the same file, be it there or not; what cannot be looked at is another one."""
    try:
        if one.resolve() == other.resolve():
            return True
        return one.samefile(other)
    except (OSError, RuntimeError, ValueError):  # a loop of links is a RuntimeError before Python 3.13
        return False


def _is(path: Path, what: str) -> bool:
    """Whether a path is there and is that; what cannot be looked at is not."""
    try:
        return bool(getattr(path, what)())
    except (OSError, ValueError):
        return False
