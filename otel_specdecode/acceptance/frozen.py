"""What a run is frozen to, and how the machine was: two documents, each with an id of its own.

Results of different manifests are not compared; results under different conditions are, and both are shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from otel_specdecode.acceptance.engines.interface import Models, Session
from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.records import Arm, HostSample
from otel_specdecode.host.machine import Machine
from otel_specdecode.identity.canonical import sha256_of
from otel_specdecode.identity.declared import Declared
from otel_specdecode.identity.manifest import Manifest, is_told, manifest_of

SCHEMA = 1
NOTES = ("ambient", "placement", "fan", "power_limit", "background")
"""What nobody can read off a machine without root, and the user may note of it."""

_ID_DIGITS = 16
_NOBODY = Declared()
_OF_THE_PLACE = frozenset({"name", "content_sha256", "manifest_id", "id"})
_LONGEST = 60
_DIGEST = re.compile(r"[0-9a-f]{64}")


def frozen_manifest(
    session: Session, arms: Sequence[Arm], models: Models, machine: Machine, prompts: str
) -> dict[str, Any]:
    """Return what runs: models, tokenizers, templates, engine, flags, sampling, machine; with its `id`.

    Args:
        session: The loaded models.
        arms: The arms of the run: each draft is told once.
        models: What was asked to be loaded.
        machine: What it runs on.
        prompts: Digest of the prompts.

    Raises:
        AcceptanceError: A model has no fingerprint: what it was could not be told later.
    """
    manifests = {each.draft: _manifest(session, each) for each in arms if each.speculative}
    target = _manifest(session, next((each for each in arms if not each.speculative), Arm(0)))
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "library": target["library"],
        "engine": target["engine"],
        "target": target["target"],
        "drafts": {label or "draft": found["draft"] for label, found in manifests.items()},
        "options": dict(models.options),
        "sampling": {"seed": models.seed},
        "stop": sorted(models.stop),
        "prompts": prompts,
        "machine": {
            "profile": machine.profile,
            "architecture": machine.architecture,
            "os": f"{machine.os_name} {machine.os_version or ''}".strip(),
            "os_build": machine.os_build,
            "memory": machine.memory_total,
        },
    }
    return {**document, "id": _id(document)}


def conditions(first: HostSample | None, notes: Mapping[str, str]) -> dict[str, Any]:
    """Return how the machine was when a run began, and what the user noted; with its `id`.

    Args:
        first: The first sample of it, None if there is none.
        notes: Values of NOTES.
    """
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "power_mode": first.power_mode if first else "unknown",
        "power_source": first.power_source if first else "unknown",
        "thermal_state": first.thermal_state if first else "unknown",
        "memory_pressure": first.memory_pressure if first else "unknown",
        "side_load": first.side_load if first else None,
        "notes": {name: notes[name] for name in NOTES if notes.get(name)},
    }
    return {**document, "id": _id(document)}


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return in what two documents differ, each as `place: value, and value`; empty where they are the same.

    What another folder or another copy of the same files changes is no difference.
    """
    left, right = dict(_flat(one)), dict(_flat(other))
    places = [place for place in {**left, **right} if left.get(place) != right.get(place)]
    return [f"{place}: {_shown(left.get(place))}, and {_shown(right.get(place))}" for place in places]


def _manifest(session: Session, arm: Arm) -> dict[str, Any]:
    pair = session.pair(arm)
    if not is_told(pair):
        raise AcceptanceError(
            "a model's files cannot be read, so that nobody could tell later what ran: name a folder or a file that "
            "this user may read."
        )
    made: Manifest = manifest_of(pair, _NOBODY)
    return made.document


def _id(document: Mapping[str, Any]) -> str:
    return sha256_of(dict(_flat(document)))[:_ID_DIGITS]


def _flat(content: Any, place: str = "") -> list[tuple[str, Any]]:
    """Return the leaves of a document by their place, without those that depend on where files lie."""
    if isinstance(content, Mapping):
        inside = [(key, value) for key, value in content.items() if key not in _OF_THE_PLACE]
        return [leaf for key, value in inside for leaf in _flat(value, f"{place}.{key}" if place else str(key))]
    if isinstance(content, (list, tuple)):
        return [leaf for number, value in enumerate(content) for leaf in _flat(value, f"{place}[{number}]")]
    return [] if content is None else [(place, content)]


def _shown(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    if _DIGEST.fullmatch(text):
        return f"{text[:_ID_DIGITS]}..."
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
