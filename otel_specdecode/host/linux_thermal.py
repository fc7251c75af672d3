"""Heat of a Linux machine, from what the kernel and the processor do about it."""

from __future__ import annotations

import re

from otel_specdecode.host.linux_files import Files
from otel_specdecode.host.state import Reading, ThermalState, no_state

ZONES = "/sys/class/thermal"
PROCESSORS = "/sys/devices/system/cpu"

# Zones of processor, package or board. A hot radio or battery says nothing about speed.
_PROCESSOR_ZONE = re.compile(r"cpu|gpu|soc|pkg|package|acpitz|b0d4|core|cluster|imx|tctl", re.IGNORECASE)
_TRIPPED: dict[str, ThermalState] = {"active": "fair", "passive": "serious", "hot": "critical", "critical": "critical"}
_SEVERITY: tuple[ThermalState, ...] = ("nominal", "fair", "serious", "critical")
# Trip points that are switched off read 0 or below absolute zero; some firmware has one at an idle temperature.
_LOWEST_TRIP = 40_000


class ThermalWatch:
    """Derives a state from trip points and from throttle counters, whichever is worse.

    A zone's trip points are where the kernel acts: above `active` a fan turns on (`fair`), above `passive` the
    processor is slowed down (`serious`), `hot` and `critical` come before the machine switches off (`critical`). A zone
    below its points, if one of them slows down or worse, is `nominal`.

    The throttle counters of Intel processors rise when the hardware slows itself down: `serious` if they have risen
    since the reading before, `nominal` if not. They need two readings.

    Without either there is no honest state: a temperature alone does not tell what a machine can bear.
    """

    def __init__(self, files: Files) -> None:
        """Read below a root."""
        self._files = files
        self._throttled: int | None = None

    def state(self) -> Reading[ThermalState]:
        """Return the state now."""
        found = [state for name in self._files.names(ZONES) if (state := self._zone(f"{ZONES}/{name}"))]
        sources = [f"{ZONES}: trip points"] if found else []
        before, self._throttled = self._throttled, self._throttles()
        if before is not None and self._throttled is not None:
            found.append("serious" if self._throttled > before else "nominal")
            sources.append("thermal_throttle counters")
        if found:
            return Reading(max(found, key=_SEVERITY.index), ", ".join(sources))
        if self._throttled is not None:
            return no_state("throttle counters need two readings")
        return no_state("no trip points of the processor and no throttle counters")

    def _zone(self, folder: str) -> ThermalState | None:
        if not _PROCESSOR_ZONE.search(self._files.text(f"{folder}/type") or ""):
            return None
        temperature = self._files.number(f"{folder}/temp")
        points = self._trip_points(folder)
        if temperature is None or not any(state != "fair" for state, _ in points):
            return None
        return max((state for state, trip in points if temperature >= trip), key=_SEVERITY.index, default="nominal")

    def _trip_points(self, folder: str) -> list[tuple[ThermalState, int]]:
        points = []
        for name in self._files.names(folder):
            if name.startswith("trip_point_") and name.endswith("_type"):
                state = _TRIPPED.get(self._files.text(f"{folder}/{name}") or "")
                trip = self._files.number(f"{folder}/{name.removesuffix('_type')}_temp")
                if state and trip is not None and trip >= _LOWEST_TRIP:
                    points.append((state, trip))
        return points

    def _throttles(self) -> int | None:
        """Return the sum of all counters; None if there are none."""
        folders = [f"{PROCESSORS}/{name}/thermal_throttle" for name in self._files.names(PROCESSORS)]
        counts = [
            self._files.number(f"{folder}/{kind}_throttle_count") for folder in folders for kind in ("core", "package")
        ]
        known = [count for count in counts if count is not None]
        return sum(known) if known else None
