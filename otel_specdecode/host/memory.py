"""Resident memory of this process."""

from __future__ import annotations

import os
import sys
from functools import cache

import psutil


def resident_bytes() -> int:
    """Return the resident set size in bytes."""
    return int(_process(os.getpid()).memory_info().rss)


@cache
def _process(pid: int) -> psutil.Process:
    return psutil.Process(pid)


def peak_resident_bytes() -> int | None:
    """Return the high-water mark of the resident set size since the process began, in bytes; None on Windows.

    getrusage(2) reports kibibytes on Linux and bytes on macOS. Compressed pages and, on macOS, Metal buffers are
    not part of it.
    """
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


class PeakWatch:
    """Peak resident memory while something runs: the highest reading, or the lifetime mark if it rose meanwhile."""

    __slots__ = ("_highest", "_lifetime_before")

    def __init__(self) -> None:
        """Take the first reading."""
        self._lifetime_before = peak_resident_bytes()
        self._highest = resident_bytes()

    def read(self) -> None:
        """Take another reading."""
        self._highest = max(self._highest, resident_bytes())

    def peaks(self) -> tuple[int, int]:
        """Take the last reading; return the peak while watched and the peak since the process began, in bytes."""
        self.read()
        lifetime = peak_resident_bytes()
        if lifetime is None:
            return self._highest, self._highest
        rose = self._lifetime_before is None or lifetime > self._lifetime_before
        return (max(self._highest, lifetime) if rose else self._highest), max(lifetime, self._highest)
