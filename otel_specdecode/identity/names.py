"""Model names fit for telemetry."""

from __future__ import annotations

import re
import weakref
from pathlib import Path

_HUB_SNAPSHOT = re.compile(r"models--(?P<owner>[^/]+?)--(?P<name>[^/]+)/snapshots/[^/]+$")
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
        return f"{snapshot['owner']}/{snapshot['name']}"
    if _REPOSITORY.fullmatch(location) and not location.startswith(".") and not Path(location).exists():
        return location
    name = posix.rpartition("/")[2]
    if name in (".", ".."):
        folder = Path(location).resolve()
        return None if folder == Path.home() else folder.name or None
    return None if name.startswith("~") else name or None


class NameBook:
    """Names of loaded model objects, for as long as those live. Objects need weak references, not hashes."""

    def __init__(self) -> None:
        """Start with no name."""
        self._names: dict[int, tuple[weakref.ref[object], str]] = {}

    def remember(self, model: object, name: str) -> None:
        """Remember the name of a model object; a newer name replaces an older one."""
        key = id(model)
        self._names[key] = (weakref.ref(model, lambda _: self._names.pop(key, None)), name)

    def name_of(self, model: object) -> str | None:
        """Return the remembered name of a model object, None if there is none."""
        known = self._names.get(id(model))
        return known[1] if known is not None and known[0]() is model else None
