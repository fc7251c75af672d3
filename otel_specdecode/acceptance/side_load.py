"""CPU that other processes take while a run goes on, by what they are."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping

import psutil

GROUPS: Mapping[str, tuple[str, ...]] = {
    "browser": (
        *("safari", "google chrome", "chrome", "chromium", "firefox", "microsoft edge", "msedge", "brave", "arc"),
        *("com.apple.webkit", "webkit", "opera", "vivaldi"),
    ),
    "ide": ("code", "cursor", "xcode", "idea", "pycharm", "webstorm", "goland", "clion", "zed", "nova", "sourcekit"),
    "indexer": (
        "mds",
        "mds_stores",
        "mdworker",
        "mdbulkimport",
        "photoanalysisd",
        "tracker-miner",
        "baloo",
        "updatedb",
    ),
}
"""Beginnings of process names, in lower case, by group. What is in none is `other`."""

OTHER = "other"

CpuTime = tuple[int, str, float]
"""Process id, name, and CPU seconds since it began."""


class SideLoad:
    """How many cores other processes keep busy, between two readings. Names of processes do not leave it."""

    def __init__(
        self,
        read: Callable[[], Iterable[CpuTime]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the first reading, which the next one is compared with.

        Args:
            read: Reads the CPU time of every process but this one and its children.
            clock: Seconds.
        """
        self._read = read or _other_processes
        self._clock = clock
        self._before = self._now()

    def read(self) -> dict[str, float]:
        """Return the cores that each group kept busy since the last reading, to a hundredth."""
        (began, before), (ended, after) = self._before, self._now()
        self._before = ended, after
        seconds = max(ended - began, 1e-3)
        busy = dict.fromkeys((*GROUPS, OTHER), 0.0)
        for process, (name, spent) in after.items():
            known = before.get(process)
            busy[group_of(name)] += max(spent - (known[1] if known is not None else 0.0), 0.0) / seconds
        return {group: round(cores, 2) for group, cores in busy.items()}

    def _now(self) -> tuple[float, dict[int, tuple[str, float]]]:
        return self._clock(), {process: (name, spent) for process, name, spent in self._read()}


def group_of(name: str) -> str:
    """Return the group of a process by its name."""
    lower = name.lower()
    return next((group for group, starts in GROUPS.items() if lower.startswith(starts)), OTHER)


def _other_processes() -> list[CpuTime]:
    """Read all processes that this user may look at. On macOS those of other users tell nothing without root."""
    mine = {os.getpid()}
    found: list[CpuTime] = []
    for process in psutil.process_iter():
        try:
            if process.pid in mine or process.ppid() in mine:
                continue
            times = process.cpu_times()
            found.append((process.pid, process.name(), times.user + times.system))
        except (psutil.Error, OSError):
            continue
    return found
