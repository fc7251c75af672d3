"""One reader a system, behind one small interface."""

from __future__ import annotations

import sys
from typing import Protocol

from otel_specdecode.host.commands import Runner
from otel_specdecode.host.linux import LinuxReader
from otel_specdecode.host.macos import MacReader
from otel_specdecode.host.state import HostState, unknown_host


class Reader(Protocol):
    """Reads the state of a machine."""

    def read(self) -> HostState:
        """Return the state now. Can take seconds where commands hang; never raises."""
        ...


class UnknownReader:
    """Stands for a system that nobody has written a reader for."""

    def __init__(self, system: str) -> None:
        """Name the system in every reason."""
        self._state = unknown_host(f"there is no reader for {system}")

    def read(self) -> HostState:
        """Return a state of which nothing is known."""
        return self._state


def reader_for(system: str = sys.platform, *, root: str = "/", run: Runner | None = None) -> Reader:
    """Return the reader of a system.

    Args:
        system: As `sys.platform` names it.
        root: Linux: the folder that has /proc and /sys.
        run: macOS: what answers commands. With one, this machine's own kernel is not asked: a captured state is all
            from its capture.
    """
    if system == "darwin":
        return MacReader() if run is None else MacReader(run, None)
    if system.startswith("linux"):
        return LinuxReader(root)
    return UnknownReader(system)
