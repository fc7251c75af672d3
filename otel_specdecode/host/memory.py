"""Resident memory of this process."""

from __future__ import annotations

import os
import sys
from functools import cache

import psutil

_COUNTERS = 4 * 1024 * 1024  # by how much the kernel's two counters of one thing may differ


def resident_bytes() -> int:
    """Return the resident set size in bytes."""
    return int(_process(os.getpid()).memory_info().rss)


@cache
def _process(pid: int) -> psutil.Process:
    return psutil.Process(pid)


def peak_resident_bytes() -> int | None:
    """Return the high-water mark of the resident set size since the program began, in bytes; None on Windows.

    getrusage(2) reports kibibytes on Linux and bytes on macOS. Compressed pages and, on macOS, Metal buffers are
    not part of it. On Linux exec hands the mark of the program before on to the next, which a large process does to
    all that it starts; up to that mark only /proc/self/status knows this program's own.
    """
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if sys.platform == "darwin":
        return peak
    told = peak * 1024
    return (_own_mark() or told) if told <= _handed_down(os.getpid()) else told


@cache
def _handed_down(_pid: int) -> int:
    """Return the mark that a process had from the program before it, 0 if that was not above its own."""
    import resource

    told, own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, _own_mark()
    return told if own is not None and told > own + _COUNTERS else 0


def _own_mark() -> int | None:
    try:
        with open("/proc/self/status", "rb") as file:
            line = next(line for line in file if line.startswith(b"VmHWM:"))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration, ValueError):
        return None
