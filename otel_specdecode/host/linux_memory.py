"""Memory of a Linux machine, and of the cgroup that this process is limited to."""

from __future__ import annotations

import re
from dataclasses import dataclass

from otel_specdecode.host.linux_files import Files, whole_number
from otel_specdecode.host.state import MemoryPressure, Reading, no_number, no_state
from otel_specdecode.thresholds import thresholds

PRESSURE = "/proc/pressure/memory"
_KIB = 1024
_UNLIMITED = 1 << 60
_STALLED = re.compile(r"^(some|full) avg10=([0-9]{1,3}(?:\.[0-9]{1,4})?) ", re.MULTILINE)
_SEVERITY: tuple[MemoryPressure, ...] = ("normal", "warn", "critical")


def meminfo(files: Files) -> dict[str, int]:
    """Return the rows of /proc/meminfo in bytes."""
    found = {}
    for words in files.rows("/proc/meminfo"):
        value = whole_number(words[1]) if len(words) == 3 and words[2] == "kB" else None
        if value is not None and value >= 0:
            found[words[0].removesuffix(":")] = value * _KIB
    return found


def swap_used(rows: dict[str, int]) -> Reading[int | None]:
    """Return the bytes of swap used, of the whole machine."""
    total, free = rows.get("SwapTotal"), rows.get("SwapFree")
    if total is None or free is None or free > total:
        return no_number("/proc/meminfo does not tell of swap")
    return Reading(total - free, "/proc/meminfo: SwapTotal - SwapFree")


def swapped(files: Files, row: str, page_size: int) -> Reading[int | None]:
    """Return the bytes swapped since the system started, of the whole machine.

    Args:
        files: Where to read.
        row: `pswpin` or `pswpout`.
        page_size: Bytes.
    """
    for words in files.rows("/proc/vmstat"):
        pages = whole_number(words[1]) if len(words) == 2 and words[0] == row else None
        if pages is not None and pages >= 0:
            return Reading(pages * page_size, f"/proc/vmstat: {row}")
    return no_number(f"/proc/vmstat has no {row}")


@dataclass(frozen=True, slots=True)
class CgroupMemory:
    """The memory of one cgroup that limits this process, in bytes.

    Attributes:
        limit: What it may use.
        used: What it uses, without file pages that nobody needs at the moment.
        source: The file that has the limit. Not its folder, which can name a user or a container.
    """

    limit: int
    used: int | None
    source: str


def cgroup_folders(files: Files) -> list[str]:
    """Return the folders of this process's memory cgroup and its parents, up to where the hierarchy is mounted."""
    paths = {}
    for line in (files.text("/proc/self/cgroup") or "").splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        paths.update(dict.fromkeys(controllers.split(","), path))
    for words in files.rows("/proc/self/mountinfo"):
        if "-" not in words[6:] or len(words) < 10:
            continue
        kind, options = words[words.index("-", 6) + 1], words[-1].split(",")
        if kind == "cgroup" and "memory" in options and "memory" in paths:
            return _with_parents(paths["memory"], mounted_root=words[3], mount=words[4])
    for words in files.rows("/proc/self/mountinfo"):
        if "-" in words[6:-1] and words[words.index("-", 6) + 1] == "cgroup2" and "" in paths:
            return _with_parents(paths[""], mounted_root=words[3], mount=words[4])
    return []


def _with_parents(path: str, mounted_root: str, mount: str) -> list[str]:
    """Return the folders from a cgroup up to the mount. In a container the mount often is the process's own cgroup."""
    root = mounted_root.rstrip("/")
    inside = path.removeprefix(root) if path == root or path.startswith(f"{root}/") else ""
    parts = [part for part in inside.split("/") if part and part != ".."]
    return [f"{mount}/{'/'.join(parts[:depth])}".rstrip("/") for depth in range(len(parts), -1, -1)]


def limiting_cgroups(files: Files, folders: list[str], machine: int | None) -> list[CgroupMemory]:
    """Return those cgroups that have a limit below the memory of the machine, in bytes."""
    found = []
    for folder in folders:
        for limit_name, used_name, idle_row in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            limit = files.number(f"{folder}/{limit_name}")
            if limit is None or not 0 < limit < (machine or _UNLIMITED):
                continue
            used = files.number(f"{folder}/{used_name}")
            rows = {words[0]: whole_number(words[-1]) for words in files.rows(f"{folder}/memory.stat")}
            free = rows.get(idle_row) or 0
            found.append(CgroupMemory(limit, None if used is None else max(used - free, 0), f"cgroup {limit_name}"))
    return found


def memory_limit(rows: dict[str, int], cgroups: list[CgroupMemory]) -> Reading[int | None]:
    """Return the memory of the machine, or the lowest cgroup limit below it."""
    if cgroups:
        lowest = min(cgroups, key=lambda cgroup: cgroup.limit)
        return Reading(lowest.limit, lowest.source)
    total = rows.get("MemTotal")
    return Reading(total, "/proc/meminfo: MemTotal") if total else no_number("/proc/meminfo has no MemTotal")


def memory_available(rows: dict[str, int], cgroups: list[CgroupMemory]) -> Reading[int | None]:
    """Return what the kernel says is available, or what a cgroup has left, if that is less."""
    left = [
        Reading(max(cgroup.limit - cgroup.used, 0), f"what is left below {cgroup.source}")
        for cgroup in cgroups
        if cgroup.used is not None
    ]
    available = rows.get("MemAvailable")
    if available is not None:
        left.append(Reading(available, "/proc/meminfo: MemAvailable"))
    if not left:
        return no_number("/proc/meminfo has no MemAvailable")
    return min(left, key=lambda reading: reading.value)


def memory_pressure(
    files: Files, folders: list[str], available: Reading[int | None], limit: Reading[int | None]
) -> Reading[MemoryPressure]:
    """Return how much tasks wait for memory, of the machine or of this process's cgroup, whichever is worse.

    Pressure stall information is the share of the last 10 s: `warn` if some task waited for more of it than a
    threshold, `critical` if all tasks waited at once. Where the kernel has none, the share of memory that is still
    available stands in: a weaker sign, for low memory that nobody waits for does no harm.
    """
    paths = {PRESSURE: PRESSURE} | {f"{folder}/memory.pressure": "cgroup memory.pressure" for folder in folders[:1]}
    found = [(state, source) for path, source in paths.items() if (state := _stalled(files.text(path) or ""))]
    if found:
        state, source = max(found, key=lambda pair: _SEVERITY.index(pair[0]))
        return Reading(state, source)
    if not available.value or not limit.value:
        return no_state("no pressure stall information, and what is available is not known")
    return Reading(_short(available.value / limit.value), "share of memory available")


def _stalled(text: str) -> MemoryPressure | None:
    bounds = thresholds()["host"]
    shares = {kind: float(share) for kind, share in _STALLED.findall(text)}
    if "some" not in shares:
        return None
    if shares.get("full", 0.0) > bounds["all_stalled_critical"]:
        return "critical"
    return "warn" if shares["some"] > bounds["some_stalled_warn"] else "normal"


def _short(share: float) -> MemoryPressure:
    bounds = thresholds()["host"]
    if share < bounds["available_critical"]:
        return "critical"
    return "warn" if share < bounds["available_warn"] else "normal"
