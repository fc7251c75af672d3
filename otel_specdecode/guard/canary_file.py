"""Results of quality canaries, from a file to whose end somebody adds a line for each."""

from __future__ import annotations

from pathlib import Path

_MOST = 1 << 16
"""Bytes that one look reads."""

_RESULTS = {b"pass": True, b"fail": False}


class CanaryFile:
    """Reads the lines that were added since the last look; what was there before the first is not of this process."""

    def __init__(self, path: Path) -> None:
        """Begin at the end of what is there.

        Args:
            path: The file; it need not be there yet.
        """
        self._path = path
        self._file, self._read = self._now()

    def news(self) -> list[bool]:
        """Return whether each canary passed that has a line since; a line that is neither `pass` nor `fail` is none."""
        file, size = self._now()
        if file != self._file or size < self._read:  # taken away, another one in its place, or begun anew
            self._file, self._read = file, 0
        if size == self._read:
            return []
        try:
            with self._path.open("rb") as opened:
                opened.seek(self._read)
                added = opened.read(_MOST)
        except OSError:
            return []
        whole = added[: added.rfind(b"\n") + 1]
        self._read += len(whole) if whole or len(added) < _MOST else len(added)
        found = (_RESULTS.get(line.strip().lower()) for line in whole.splitlines())
        return [each for each in found if each is not None]

    def _now(self) -> tuple[tuple[int, int] | None, int]:
        """Return which file is there now, None without one, and its size."""
        try:
            found = self._path.stat()
        except OSError:
            return None, 0
        return (found.st_dev, found.st_ino), found.st_size
