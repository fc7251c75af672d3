"""What Linux tells of this process and machine, read by other code than the library's. In bytes."""

from __future__ import annotations

import math
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from mmap import mmap
from pathlib import Path

MIB = 1024**2
COUNTERS = 4 * MIB
"""By how much the kernel's counters of one thing may differ: each processor adds up some pages before it tells."""


def resident() -> int:
    """Return the resident set size."""
    return _status("VmRSS")


def highest_resident() -> int:
    """Return the highest resident set size since the program began."""
    return _status("VmHWM")


def swap_used() -> int:
    """Return what is in swap, of all areas."""
    areas = Path("/proc/swaps").read_text(encoding="ascii").splitlines()[1:]
    return sum(int(area.split()[-2]) for area in areas) * 1024


def profile() -> str:
    """Return the text that tells machines of one kind from those of another."""
    total = next(line for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines() if "MemTotal" in line)
    gibibytes = math.ceil(int(total.split()[1]) / 1024**2)
    return f"linux-{platform.machine().replace('_', '-')}-{os.cpu_count()}c-{gibibytes}g"


def told_states() -> dict[str, bool]:
    """Return by state of the host whether this machine has anything that tells it."""
    processor = Path("/sys/devices/system/cpu/cpu0")
    modes = ("cpufreq/scaling_governor", "cpufreq/energy_performance_preference")
    return {
        "power_mode": Path("/sys/firmware/acpi/platform_profile").exists()
        or any((processor / m).exists() for m in modes),
        "power_source": any(Path("/sys/class/power_supply").glob("*")),
        "thermal_state": any(Path("/sys/class/thermal").glob("thermal_zone*"))
        or (processor / "thermal_throttle").exists(),
        "memory_pressure": True,
    }


def open_probes() -> list[str]:
    """Return what the descriptors of this process that read the size of a process point to."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:
            continue  # the listing's own
        if target.endswith("/statm"):
            found.append(target)
    return found


def threads(name: str) -> list[threading.Thread]:
    """Return the running threads of a name."""
    return [thread for thread in threading.enumerate() if thread.name == name]


@contextmanager
def taken(size: int) -> Iterator[None]:
    """Hold memory that is really there, page by page, and give it back to the system at once."""
    block = mmap(-1, size)
    try:
        block[::4096] = b"x" * len(range(0, size, 4096))
        yield
    finally:
        block.close()


def take_for_150_ms(size: int) -> None:
    """Take memory, hold it for 150 ms and give it back."""
    with taken(size):
        time.sleep(0.15)


def wait_for(condition: Callable[[], object], seconds: float = 10) -> None:
    """Return once a condition holds; fail if it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.005)


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        key, _, rest = line.partition(":")
        if key == name:
            return int(rest.split()[0]) * 1024
    raise LookupError(name)
