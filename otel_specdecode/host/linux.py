"""The state of a Linux machine. Only files of /proc and /sys are read, no command is run."""

from __future__ import annotations

import os

from otel_specdecode.host import linux_memory as memory
from otel_specdecode.host import linux_power as power
from otel_specdecode.host.linux_files import Files
from otel_specdecode.host.linux_thermal import ThermalWatch
from otel_specdecode.host.state import HostState, guarded, no_number, no_state


class LinuxReader:
    """Reads the state of a Linux machine."""

    def __init__(self, root: str = "/", *, page_size: int | None = None, files: Files | None = None) -> None:
        """Read below a root.

        Args:
            root: The folder that has /proc and /sys; another one than / is for tests and replays.
            page_size: Bytes of a page; by default those of this system.
            files: What reads below the root, such as one that keeps what it read; by default plain files.
        """
        self._files = Files(root) if files is None else files
        self._page_size = os.sysconf("SC_PAGE_SIZE") if page_size is None else page_size
        self._heat = ThermalWatch(self._files)

    def read(self) -> HostState:
        """Return the state now. Never raises."""
        files = self._files
        rows = memory.meminfo(files)
        folders = memory.cgroup_folders(files)
        cgroups = memory.limiting_cgroups(files, folders, rows.get("MemTotal"))
        available = guarded(lambda: memory.memory_available(rows, cgroups), no_number)
        limit = guarded(lambda: memory.memory_limit(rows, cgroups), no_number)
        return HostState(
            power_mode=guarded(lambda: power.power_mode(files), no_state),
            power_source=guarded(lambda: power.power_source(files), no_state),
            battery_charge=guarded(lambda: power.battery_charge(files), no_number),
            thermal_state=guarded(self._heat.state, no_state),
            memory_pressure=guarded(lambda: memory.memory_pressure(files, folders, available, limit), no_state),
            swap_used=guarded(lambda: memory.swap_used(rows), no_number),
            swapped_in=guarded(lambda: memory.swapped(files, "pswpin", self._page_size), no_number),
            swapped_out=guarded(lambda: memory.swapped(files, "pswpout", self._page_size), no_number),
            memory_available=available,
            memory_limit=limit,
        )
