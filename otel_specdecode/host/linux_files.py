"""Small files below /proc and /sys. A file that is not there, or not to be read, is None."""

from __future__ import annotations

import os
from collections.abc import Iterator

_LONGEST = 1 << 20
_CHUNK = 1 << 16


class Files:
    """The files below a root folder; another root than / is for tests and replays."""

    def __init__(self, root: str = "/") -> None:
        """Look below this folder."""
        self._root = root.rstrip("/")

    def text(self, path: str) -> str | None:
        """Return what a file holds, without blanks at its ends, up to a mebibyte."""
        try:
            descriptor = os.open(f"{self._root}{path}", os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except (OSError, ValueError):
            return None
        try:
            return _rest(descriptor).decode("utf-8", "replace").strip()
        except OSError:
            return None
        finally:
            os.close(descriptor)

    def number(self, path: str) -> int | None:
        """Return what a file holds if it is one whole number."""
        return whole_number(self.text(path))

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; none if there is no such folder."""
        try:
            return sorted(os.listdir(f"{self._root}{folder}"))
        except (OSError, ValueError):
            return []

    def rows(self, path: str) -> Iterator[list[str]]:
        """Yield the lines of a file, split at blanks."""
        for line in (self.text(path) or "").splitlines():
            if words := line.split():
                yield words


def _rest(descriptor: int) -> bytes:
    """Read to the end: one read of a file of /proc gives about a page, however large the buffer."""
    read = bytearray()
    while len(read) < _LONGEST and (part := os.read(descriptor, _CHUNK)):
        read += part
    return bytes(read)


def whole_number(text: str | None) -> int | None:
    """Return a text as a whole number, if it is one of at most 20 digits."""
    if text is None or len(text) > 21:
        return None
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() else None
