"""The states that the Mac goes through, and what its commands write in each."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from otel_specdecode.demo.load import mac
from otel_specdecode.host import macos

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MIB = 1024**2
_SWAP_STEP = 1024.0
"""MiB by which a Mac makes its swap larger."""


@dataclass(frozen=True)
class Moment:
    """The Mac at one moment.

    Attributes:
        state: Name of the state.
        values: Its numbers by their names in states.toml, those between two ends interpolated.
    """

    state: str
    values: Mapping[str, Any]

    def output(self, command: Sequence[str]) -> str | None:
        """Return what a command writes, None for one that nobody captured."""
        name = _FILES.get(tuple(command))
        if name is None:
            return None
        total = -(-self.values["swap_used"] // _SWAP_STEP) * _SWAP_STEP
        filled = {"swap_total": total, "swap_free": total - self.values["swap_used"], **self.values}
        return _read(name.format(**filled)).format(**filled)

    def bytes_of(self, name: str) -> int:
        """Return memory of the process, in bytes."""
        return int(self.values[name] * MIB)


@dataclass(frozen=True)
class Window:
    """When a state holds, in seconds since the beginning."""

    name: str
    start: float
    end: float


class Story:
    """All states, spread over a time.

    Attributes:
        windows: When each holds.
    """

    def __init__(self, seconds: float) -> None:
        """Spread the states over so many seconds."""
        self._states: list[dict[str, Any]] = tomllib.loads(_read("states.toml"))["states"]
        self.windows: list[Window] = []
        start = 0.0
        for state in self._states:
            end = start + state["share"] * seconds
            self.windows.append(Window(state["name"], start, end))
            start = end

    def at(self, seconds: float) -> Moment:
        """Return the Mac at a time; before the beginning as it begins, after the end as it ends."""
        place = next((i for i, window in enumerate(self.windows) if seconds < window.end), len(self.windows) - 1)
        window, state = self.windows[place], self._states[place]
        part = min(max((seconds - window.start) / (window.end - window.start), 0.0), 1.0)
        return Moment(window.name, {key: _between(value, part) for key, value in state.items()})


def _between(value: Any, part: float) -> Any:
    if not isinstance(value, list):
        return value
    first, last = value
    between = first + (last - first) * part
    return round(between) if isinstance(first, int) and isinstance(last, int) else between


@cache
def _read(name: str) -> str:
    return resources.files(mac).joinpath("captured", name).read_text(encoding="utf-8")


_FILES = {
    macos.SYSCTL_COMMAND: "sysctl.txt",
    macos.PMSET_COMMAND: "pmset-g.txt",
    macos.PMSET_BATTERY_COMMAND: "pmset-batt-{power}.txt",
    macos.NOTIFY_COMMAND: "notifyutil.txt",
    macos.VM_STAT_COMMAND: "vm_stat.txt",
}
