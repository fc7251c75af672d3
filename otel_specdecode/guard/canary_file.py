"""Results of quality canaries, from a file to whose end somebody adds a line for each."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import NamedTuple

_MOST = 1 << 16
"""Bytes that one look reads, and those before them by which it knows the file again."""

_RESULTS = {b"pass": True, b"fail": False}


class _Found(NamedTuple):
    """A file as it is at a look: which one, when it was written, and its size. Nothing of what is no file."""

    file: tuple[int, int] | None = None
    written: int = 0
    size: int = 0


class CanaryFile:
    """Reads the lines that were added since the last look; what was there before the first is not of this process.

    A file that was saved anew, as editors do, has no news where it says what was read already. One that says something
    else there, or less, was begun anew.
    """

    def __init__(self, path: Path) -> None:
        """Begin at the end of what is there.

        Args:
            path: The file; it need not be there yet.
        """
        self._path = path
        self._before = self._now()
        self._read = self._before.size
        self._known = self._bytes(max(0, self._read - _MOST), self._read) or b""

    def news(self) -> list[bool]:
        """Return whether each canary passed that has a line since; a line that is neither `pass` nor `fail` is none."""
        now = self._now()
        if now == self._before and now.size == self._read:
            return []
        if now.size < self._read:
            self._read, self._known = 0, b""
        if now.file is None:
            self._before = now
            return []
        begin = self._read - len(self._known)
        found = self._bytes(begin, self._read + _MOST)
        if found is None:
            return []
        if not found.startswith(self._known):
            self._read, self._known = 0, b""
            found = self._bytes(0, _MOST) or b""
        self._before = now
        added = found[len(self._known) :]
        whole = added[: added.rfind(b"\n") + 1]
        taken = whole if whole or len(added) < _MOST else added
        self._read += len(taken)
        self._known = (self._known + taken)[-_MOST:]
        results = (_RESULTS.get(line.strip().lower()) for line in whole.splitlines())
        return [each for each in results if each is not None]

    def _bytes(self, begin: int, end: int) -> bytes | None:
        """Return that part of the file, as far as it is there; None where it cannot be read."""
        if begin == end:
            return b""
        try:
            with self._path.open("rb") as opened:
                opened.seek(begin)
                return opened.read(end - begin)
        except OSError:
            return None

    def _now(self) -> _Found:
        try:
            found = self._path.stat()
        except OSError:
            return _Found()
        if not stat.S_ISREG(found.st_mode):
            return _Found()
        return _Found((found.st_dev, found.st_ino), found.st_mtime_ns, found.st_size)
