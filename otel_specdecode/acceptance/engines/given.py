"""What the user names: models that ship with this package, and options. What is wrong is told without any path."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.identity.names import public_name
from otel_specdecode.tiny_pair import MODEL_NAMES, model_path

TINY = "tiny"


def shipped_model(name: str) -> Path | None:
    """Return the folder of a model that ships with this package, None for a name that is not one of those.

    `tiny` is the tiny pair's target, `tiny:draft`, `tiny:draft-kd` and `tiny:draft-weak` are its drafts. A folder of
    such a name is given as `./tiny`.

    Raises:
        AcceptanceError: There is no such model in the tiny pair.
    """
    pair, _, model = name.partition(":")
    if pair != TINY:
        return None
    for known in MODEL_NAMES:
        if known == (model or "target"):
            return model_path(known)
    names = ", ".join(f"{TINY}:{known}" for known in MODEL_NAMES if known != "target")
    raise AcceptanceError(f"no model {name!r} ships with otel-specdecode; there are {TINY} and {names}.")


def shown(location: str) -> str:
    """Return what a model is called in a message: its repository, or the last part of its path."""
    return public_name(location) or "the model"


def without_paths(error: Exception, location: str) -> str:
    """Return what an error says, with a model's name where its path stands."""
    text = str(error)
    for path in (os.path.realpath(location), os.path.abspath(location), location):
        text = text.replace(path, shown(location))
    return text.replace(os.path.expanduser("~"), "~") or type(error).__name__


def whole_numbers(
    title: str, given: Mapping[str, int | float | str | bool], least: Mapping[str, int]
) -> dict[str, int]:
    """Return the options, all of them whole numbers.

    Args:
        title: What the engine is called.
        given: As the user gave them.
        least: The options there are, with the least value of each.

    Raises:
        AcceptanceError: There is no such option, or its value is none for it.
    """
    unknown = sorted(set(given) - set(least))
    if unknown:
        raise AcceptanceError(f"{title} has no option {', '.join(unknown)} here; it takes {', '.join(least)}.")
    checked: dict[str, int] = {}
    for name, value in given.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < least[name]:
            raise AcceptanceError(f"{name} must be a whole number from {least[name]} on, not {value!r}.")
        checked[name] = value
    return checked


def check_stop(stop: Sequence[str]) -> None:
    """Raise AcceptanceError for a stop text that is empty: it would end every answer before it begins."""
    if not all(stop):
        raise AcceptanceError("a stop text is empty; it would end every answer before it begins.")
