"""Memory of a Linux machine and of the cgroups that limit a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_specdecode.host import linux_memory as memory
from otel_specdecode.host.linux import LinuxReader
from otel_specdecode.host.linux_files import Files
from tests.host.machines import GIB, IN_A_CONTAINER, KIB, LAPTOP, MEMINFO, MIB, build

V1_MOUNT = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
V2_MOUNT = "30 23 0:26 {root} /sys/fs/cgroup rw,nosuid shared:4 master:1 - cgroup2 cgroup2 rw,nsdelegate\n"
UNLIMITED = "9223372036854771712"


def v2(folder: str, limit: str, current: int, inactive: int = 0) -> dict[str, str]:
    """The files of a cgroup of version 2."""
    base = f"sys/fs/cgroup{folder}"
    return {
        f"{base}/memory.max": f"{limit}\n",
        f"{base}/memory.current": f"{current}\n",
        f"{base}/memory.stat": f"anon 1\nfile 2\ninactive_file {inactive}\n",
    }


def v1(folder: str, limit: str, usage: int, inactive: int = 0) -> dict[str, str]:
    """The files of a cgroup of version 1."""
    base = f"sys/fs/cgroup/memory{folder}"
    return {
        f"{base}/memory.limit_in_bytes": f"{limit}\n",
        f"{base}/memory.usage_in_bytes": f"{usage}\n",
        f"{base}/memory.stat": f"inactive_file 1\ntotal_inactive_file {inactive}\n",
    }


@pytest.mark.parametrize(
    ("cgroups", "mountinfo", "folders"),
    [
        ("0::/\n", V2_MOUNT.format(root="/"), ["/sys/fs/cgroup"]),
        ("0::/a/b\n", V2_MOUNT.format(root="/"), ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup"]),
        ("0::/docker/x\n", V2_MOUNT.format(root="/docker/x"), ["/sys/fs/cgroup"]),
        ("0::/docker/x/y\n", V2_MOUNT.format(root="/docker/x"), ["/sys/fs/cgroup/y", "/sys/fs/cgroup"]),
        ("0::/docker/xy\n", V2_MOUNT.format(root="/docker/x"), ["/sys/fs/cgroup"]),
        ("0::/../../other\n", V2_MOUNT.format(root="/"), ["/sys/fs/cgroup/other", "/sys/fs/cgroup"]),
        ("4:memory:/job\n0::/\n", V1_MOUNT, ["/sys/fs/cgroup/memory/job", "/sys/fs/cgroup/memory"]),
        (
            "5:cpu,memory:/job\n",
            V1_MOUNT.replace("rw,memory", "rw,cpu,memory") + V2_MOUNT.format(root="/"),
            ["/sys/fs/cgroup/memory/job", "/sys/fs/cgroup/memory"],
        ),
        ("0::/job\n", "", []),
        ("", V2_MOUNT.format(root="/"), []),
        ("0::/job\n", "30 23 0:26 / /sys/fs/cgroup\n", []),
        ("0::/job\n", "30 23 0:26 / /sys/fs/cgroup rw -\n", []),
    ],
)
def test_the_cgroups_that_can_limit_this_process(
    tmp_path: Path, cgroups: str, mountinfo: str, folders: list[str]
) -> None:
    """From the process's own up to where the hierarchy is mounted, which in a container is the container's."""
    root = build(tmp_path, {"proc/self/cgroup": cgroups, "proc/self/mountinfo": mountinfo})
    assert memory.cgroup_folders(Files(root)) == folders


@pytest.mark.parametrize(
    ("cgroups", "limit", "available", "source"),
    [
        ([v2("/batch/job", "max", GIB)], 16303428 * KIB, 8151714 * KIB, "/proc/meminfo: MemTotal"),
        ([v2("/batch/job", str(4 * GIB), GIB)], 4 * GIB, 3 * GIB, "cgroup memory.max"),
        ([v2("/batch/job", str(4 * GIB), GIB, 512 * MIB)], 4 * GIB, 3584 * MIB, "cgroup memory.max"),
        ([v2("/batch/job", str(4 * GIB), 5 * GIB)], 4 * GIB, 0, "cgroup memory.max"),
        ([v2("/batch/job", "max", 0), v2("/batch", str(2 * GIB), GIB)], 2 * GIB, GIB, "cgroup memory.max"),
        ([v2("/batch/job", str(4 * GIB), 0), v2("/batch", str(6 * GIB), 5 * GIB)], 4 * GIB, GIB, "cgroup memory.max"),
        ([v2("/batch/job", str(12 * GIB), 0)], 12 * GIB, 8151714 * KIB, "cgroup memory.max"),
        ([v2("/batch/job", str(999 * GIB), 0)], 16303428 * KIB, 8151714 * KIB, "/proc/meminfo: MemTotal"),
    ],
)
def test_limit_and_what_is_left_under_cgroups_of_version_2(
    tmp_path: Path, cgroups: list[dict[str, str]], limit: int, available: int, source: str
) -> None:
    """The lowest limit, the least that is left, and file pages that nobody needs do not count as used."""
    state = LinuxReader(build(tmp_path, LAPTOP, IN_A_CONTAINER, *cgroups)).read()
    assert (state.memory_limit.value, state.memory_limit.source) == (limit, source)
    assert state.memory_available.value == available


@pytest.mark.parametrize(
    ("cgroups", "limit", "available"),
    [
        ([v1("/job", UNLIMITED, GIB), v1("", UNLIMITED, GIB)], 16303428 * KIB, 8151714 * KIB),
        ([v1("/job", str(2 * GIB), GIB, 256 * MIB)], 2 * GIB, 1280 * MIB),
        ([v1("/job", UNLIMITED, 0), v1("", str(3 * GIB), GIB)], 3 * GIB, 2 * GIB),
    ],
)
def test_limit_and_what_is_left_under_cgroups_of_version_1(
    tmp_path: Path, cgroups: list[dict[str, str]], limit: int, available: int
) -> None:
    own = {"proc/self/cgroup": "4:memory:/job\n", "proc/self/mountinfo": V1_MOUNT}
    state = LinuxReader(build(tmp_path, LAPTOP, own, *cgroups)).read()
    assert state.memory_limit.value == limit
    assert state.memory_available.value == available


def test_no_limit_is_taken_for_one_where_the_memory_of_the_machine_is_not_known(tmp_path: Path) -> None:
    own = {"proc/self/cgroup": "4:memory:/job\n", "proc/self/mountinfo": V1_MOUNT}
    state = LinuxReader(build(tmp_path, own, v1("/job", UNLIMITED, GIB))).read()
    assert state.memory_limit.value is None


@pytest.mark.parametrize(
    ("some", "full", "state"),
    [
        ("0.00", "0.00", "normal"),
        ("10.00", "5.00", "normal"),
        ("10.01", "0.00", "warn"),
        ("99.00", "5.00", "warn"),
        ("5.50", "5.01", "critical"),
        ("100.00", "100.00", "critical"),
    ],
)
def test_pressure_is_the_share_of_time_that_tasks_wait_for_memory(
    tmp_path: Path, some: str, full: str, state: str
) -> None:
    text = f"some avg10={some} avg60=0.00 avg300=0.00 total=1\nfull avg10={full} avg60=0.00 avg300=0.00 total=1\n"
    assert LinuxReader(build(tmp_path, {"proc/pressure/memory": text})).read().memory_pressure.value == state


def test_the_pressure_of_the_own_cgroup_counts_if_it_is_worse(tmp_path: Path) -> None:
    stalled = "some avg10=60.00 avg60=0.00 avg300=0.00 total=1\nfull avg10=50.00 avg60=0.00 avg300=0.00 total=1\n"
    own = {"sys/fs/cgroup/batch/job/memory.pressure": stalled}
    reading = LinuxReader(build(tmp_path, LAPTOP, IN_A_CONTAINER, own)).read().memory_pressure
    assert (reading.value, reading.source) == ("critical", "cgroup memory.pressure")


@pytest.mark.parametrize(
    ("available", "state"), [(1_000_000, "normal"), (100_000, "normal"), (99_999, "warn"), (49_999, "critical")]
)
def test_without_pressure_information_the_share_that_is_available_stands_in(
    tmp_path: Path, available: int, state: str
) -> None:
    text = f"MemTotal: 1000000 kB\nMemAvailable: {available} kB\n"
    reading = LinuxReader(build(tmp_path, {"proc/meminfo": text})).read().memory_pressure
    assert (reading.value, reading.source) == (state, "share of memory available")


@pytest.mark.parametrize(
    ("text", "used"),
    [
        (MEMINFO, 1048574 * KIB),
        ("SwapTotal: 0 kB\nSwapFree: 0 kB\n", 0),
        ("SwapTotal: 5 kB\n", None),
        ("SwapTotal: 5 kB\nSwapFree: 6 kB\n", None),
        ("SwapTotal: 5\nSwapFree: 4\n", None),
        ("", None),
    ],
)
def test_swap_used(tmp_path: Path, text: str, used: int | None) -> None:
    assert memory.swap_used(memory.meminfo(Files(build(tmp_path, {"proc/meminfo": text})))).value == used


@pytest.mark.parametrize(
    ("text", "swapped"),
    [
        ("pswpout 3\n", 3 * 16384),
        ("pgpgout 3\n", None),
        ("pswpout\n", None),
        ("pswpout -3\n", None),
        ("pswpout x\n", None),
    ],
)
def test_swapped_out_is_no_page_out(tmp_path: Path, text: str, swapped: int | None) -> None:
    assert memory.swapped(Files(build(tmp_path, {"proc/vmstat": text})), "pswpout", 16384).value == swapped
