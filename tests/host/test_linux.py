"""The state of a Linux machine, from folders that look like one and from this one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_specdecode.host.linux import LinuxReader
from otel_specdecode.host.linux_files import Files
from otel_specdecode.host.state import STATES
from tests.host.captures import spoiled
from tests.host.machines import GIB, IN_A_CONTAINER, KIB, LAPTOP, build

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads the /proc of Linux")


def test_the_state_of_a_laptop(tmp_path: Path) -> None:
    state = LinuxReader(build(tmp_path, LAPTOP), page_size=4096).read()
    assert {name: reading.value for name, reading in state.readings().items()} == {
        "power_mode": "automatic",
        "power_source": "ac",
        "battery_charge": 0.64,
        "thermal_state": "nominal",
        "memory_pressure": "normal",
        "swap_used": 1048574 * KIB,
        "swapped_in": 1000 * 4096,
        "swapped_out": 2500 * 4096,
        "memory_available": 8151714 * KIB,
        "memory_limit": 16303428 * KIB,
    }


def test_every_value_says_where_it_came_from(tmp_path: Path) -> None:
    state = LinuxReader(build(tmp_path, LAPTOP), page_size=4096).read()
    assert {name: reading.source for name, reading in state.readings().items()} == {
        "power_mode": "/sys/firmware/acpi/platform_profile",
        "power_source": "/sys/class/power_supply: online",
        "battery_charge": "/sys/class/power_supply: capacity",
        "thermal_state": "/sys/class/thermal: trip points",
        "memory_pressure": "/proc/pressure/memory",
        "swap_used": "/proc/meminfo: SwapTotal - SwapFree",
        "swapped_in": "/proc/vmstat: pswpin",
        "swapped_out": "/proc/vmstat: pswpout",
        "memory_available": "/proc/meminfo: MemAvailable",
        "memory_limit": "/proc/meminfo: MemTotal",
    }


def test_where_nothing_is_to_be_read_everything_is_unknown_with_a_reason(tmp_path: Path) -> None:
    readings = LinuxReader(str(tmp_path)).read().readings()
    assert not any(reading.known for reading in readings.values())
    assert all(reading.why_unknown for reading in readings.values())


def test_no_folder_below_the_root_of_a_replay_is_told(tmp_path: Path) -> None:
    """Sources and reasons may be shown and sent; a cgroup's path can name a user."""
    limited = IN_A_CONTAINER | {"sys/fs/cgroup/batch/job/memory.max": str(GIB)}
    readings = LinuxReader(build(tmp_path, LAPTOP, limited)).read().readings()
    told = " ".join(reading.source + reading.why_unknown for reading in readings.values())
    assert "cgroup memory.max" in told
    assert str(tmp_path) not in told
    assert "job" not in told


@on_linux
def test_this_machine_is_read_as_others_read_it() -> None:
    """Against psutil and against the files, parsed by hand here."""
    state = LinuxReader().read()
    virtual, swap = psutil.virtual_memory(), psutil.swap_memory()
    assert state.swap_used.value == pytest.approx(swap.used, abs=64 * 1024**2)
    assert state.memory_limit.value is not None
    assert state.memory_limit.value <= virtual.total
    assert state.memory_available.value is not None
    assert 0 < state.memory_available.value <= virtual.total
    if "cgroup" not in state.memory_available.source:
        assert state.memory_available.value == pytest.approx(virtual.available, rel=0.2)
    with open("/proc/vmstat", encoding="ascii") as file:
        pages = dict(line.split() for line in file)
    assert state.swapped_in.value == pytest.approx(int(pages["pswpin"]) * os.sysconf("SC_PAGESIZE"), abs=64 * 1024**2)
    assert state.swapped_out.value == pytest.approx(int(pages["pswpout"]) * os.sysconf("SC_PAGESIZE"), abs=64 * 1024**2)
    assert state.memory_pressure.value in {"normal", "warn", "critical"}


@on_linux
def test_a_file_of_proc_is_read_to_its_end() -> None:
    """One read of such a file gives about a page, however much is asked for."""
    read = Files().text("/proc/self/smaps") or ""
    assert len(read) > 8192
    assert read.endswith(read.splitlines()[-1])
    assert read.splitlines()[-1].startswith("VmFlags:")


@on_linux
def test_a_reading_leaves_no_descriptor_open() -> None:
    reader = LinuxReader()
    reader.read()
    before = sorted(os.listdir("/proc/self/fd"))
    reader.read()
    assert sorted(os.listdir("/proc/self/fd")) == before


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_machine_whose_files_are_all_spoiled_still_has_a_state(tmp_path: Path, data: st.DataObject) -> None:
    cgroup = {
        "sys/fs/cgroup/batch/job/memory.max": "1073741824\n",
        "sys/fs/cgroup/batch/job/memory.current": "536870912\n",
        "sys/fs/cgroup/batch/job/memory.stat": "anon 5\ninactive_file 4096\n",
    }
    files = LAPTOP | IN_A_CONTAINER | cgroup
    chosen = data.draw(st.lists(st.sampled_from(sorted(files)), min_size=1, max_size=4, unique=True))
    spoilt = {name: data.draw(spoiled(files[name]), label=name) for name in chosen}
    reader = LinuxReader(build(tmp_path, files, spoilt), page_size=4096)
    for state in (reader.read(), reader.read()):
        for name, reading in state.readings().items():
            if name in STATES:
                assert reading.value in STATES[name]
            else:
                assert reading.value is None or reading.value >= 0  # type: ignore[operator]
