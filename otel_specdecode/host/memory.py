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
