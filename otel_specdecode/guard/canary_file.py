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
        self._read = self._size() or 0

    def news(self) -> list[bool]:
        """Return whether each canary passed that has a line since; a line that is neither `pass` nor `fail` is none."""
        size = self._size()
        if size is None or size < self._read:  # taken away, or begun anew
            self._read = 0
        if not size or size == self._read:
            return []
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                added = file.read(_MOST)
        except OSError:
            return []
        whole = added[: added.rfind(b"\n") + 1]
        self._read += len(whole) if whole or len(added) < _MOST else len(added)
        found = (_RESULTS.get(line.strip().lower()) for line in whole.splitlines())
        return [each for each in found if each is not None]

    def _size(self) -> int | None:
        try:
            return self._path.stat().st_size
        except OSError:
            return None
