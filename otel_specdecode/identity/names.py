"""Model names fit for telemetry."""

from __future__ import annotations

import os
import re
import weakref
from dataclasses import dataclass
from pathlib import Path

from otel_specdecode.identity.models import LoadedModel

_HUB_SNAPSHOT = re.compile(r"models--(?P<owner>[^/]+?)--(?P<name>[^/]+)/snapshots/[^/]+(/|$)")
_HOME = re.compile(r".*/(home|users)/[^/]+|([a-z]:)?/(home|users)/[^/]+|(/private|/var)?/root", re.IGNORECASE)
_MOST_TEXT = 128
_REPOSITORY = re.compile(r"[\w.-]+(/[\w.-]+)?")


def public_name(location: str) -> str | None:
    """Return the name a caller knows a model by: the repository id, or the folder's own name.

    Args:
        location: Repository id, folder, or snapshot folder of a hub cache.

    Returns:
        Never a path: the last component of one, so that no home folder or user name leaves the process. None where
        that leaves nothing.
    """
    posix = location.replace("\\", "/").rstrip("/")
    snapshot = _HUB_SNAPSHOT.search(posix)
    if snapshot:
        return printable(f"{snapshot['owner']}/{snapshot['name']}")
    if _REPOSITORY.fullmatch(location) and not location.startswith(".") and not os.path.exists(location):
        return printable(location)
    name = posix.rpartition("/")[2]
    if name in (".", ".."):
        posix = Path(location).resolve().as_posix()
        name = posix.rpartition("/")[2]
    return None if name.startswith("~") or _is_home(posix) else printable(name)


def _is_home(posix: str) -> bool:
    """Return whether a location is somebody's home folder, however it is written."""
    plain = os.path.normpath(posix).replace("\\", "/").replace("//", "/")
    if _HOME.fullmatch(plain):
        return True
    try:
        return os.path.realpath(posix) == os.path.realpath(os.path.expanduser("~"))
    except (OSError, ValueError):
        return False


def printable(text: str) -> str | None:
    """Return a name fit to be shown and sent: what does not print becomes `?`, and it is cut to 128 characters."""
    return "".join(each if each.isprintable() else "?" for each in text[:_MOST_TEXT]) or None


def short_text(value: object) -> str | None:
    """Return a printable text of 1 to 128 characters, None for anything else: model files are written by strangers."""
    short = isinstance(value, str) and 0 < len(value) <= _MOST_TEXT and value.isprintable()
    return str(value) if short else None


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was known of a model when it was loaded.

    Attributes:
        name: The name a caller knows it by.
        vocabulary: Tokens its tokenizer knows.
        model: What it is; None where that could not be told.
    """

    name: str | None = None
    vocabulary: int | None = None
    model: LoadedModel | None = None


class ModelBook:
    """What is known of loaded model objects, as long as those live. Objects need weak references, not hashes."""

    def __init__(self) -> None:
        """Start with no model."""
        self._known: dict[int, tuple[weakref.ref[object], Loaded]] = {}

    def remember(self, model: object, loaded: Loaded) -> None:
        """Remember a model object; newer facts replace older ones."""
        key = id(model)
        self._known[key] = (weakref.ref(model, lambda _: self._known.pop(key, None)), loaded)

    def name_of(self, model: object) -> str | None:
        """Return the remembered name of a model object, None if there is none."""
        return self._of(model).name

    def vocabulary_of(self, model: object) -> int | None:
        """Return the remembered vocabulary of a model object, None if there is none."""
        return self._of(model).vocabulary

    def model_of(self, model: object) -> LoadedModel | None:
        """Return what a model object is, None if that is not known."""
        return self._of(model).model

    def _of(self, model: object) -> Loaded:
        known = self._known.get(id(model))
        return known[1] if known is not None and known[0]() is model else Loaded()
