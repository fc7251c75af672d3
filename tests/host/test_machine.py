"""What does not change about a machine, and the short text that names its kind."""

from __future__ import annotations

import getpass
import os
import platform
import socket
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_specdecode.host import machine as module
from otel_specdecode.host.machine import PROFILE_VARIABLE, linux_machine, mac_machine, this_machine
from tests.host.captures import FakeMac, captured, spoiled
from tests.host.machines import GIB, KIB, MEMINFO, build

CPUINFO = """processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R) Processor @ 2.10GHz
serial\t\t: 000000001234abcd

processor\t: 1
vendor_id\t: GenuineIntel
model name\t: Another
"""
XEON = {
    "proc/meminfo": MEMINFO,
    "proc/cpuinfo": CPUINFO,
    "etc/os-release": 'NAME="Debian GNU/Linux"\nVERSION_ID="12"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
    "sys/class/dmi/id/product_name": "PowerEdge R650\n",
    "sys/class/dmi/id/product_serial": "SERIAL-1\n",
    "sys/devices/system/cpu/cpu0/topology/core_id": "0\n",
    "sys/devices/system/cpu/cpu0/topology/physical_package_id": "0\n",
    "sys/devices/system/cpu/cpu1/topology/core_id": "0\n",
    "sys/devices/system/cpu/cpu1/topology/physical_package_id": "0\n",
}


def test_an_apple_silicon_mac() -> None:
    machine = mac_machine(FakeMac("sysctl/m2-max"), None, architecture="arm64", environ={})
    assert asdict(machine) == {
        "device_model": "Mac14,6",
        "chip": "Apple M2 Max",
        "architecture": "arm64",
        "physical_cores": 12,
        "logical_cores": 12,
        "performance_cores": 8,
        "efficiency_cores": 4,
        "memory_total": 64 * GIB,
        "os_name": "macOS",
        "os_version": "26.6.2",
        "os_build": "25G83",
        "profile": "macos-apple-m2-max-64g",
    }


def test_an_intel_mac_has_one_kind_of_cores() -> None:
    machine = mac_machine(FakeMac("sysctl/intel"), None, architecture="x86_64", environ={})
    assert (machine.physical_cores, machine.logical_cores) == (8, 16)
    assert (machine.performance_cores, machine.efficiency_cores) == (None, None)
    assert machine.profile == "macos-intel-core-i9-9980hk-32g"


def test_a_linux_machine(tmp_path: Path) -> None:
    machine = linux_machine(build(tmp_path, XEON), architecture="x86_64", kernel_release="6.1.0-9-amd64", environ={})
    assert asdict(machine) == {
        "device_model": "PowerEdge R650",
        "chip": "Intel(R) Xeon(R) Processor @ 2.10GHz",
        "architecture": "x86_64",
        "physical_cores": 1,
        "logical_cores": 2,
        "performance_cores": None,
        "efficiency_cores": None,
        "memory_total": 16303428 * KIB,
        "os_name": "Debian GNU/Linux",
        "os_version": "12",
        "os_build": "6.1.0-9-amd64",
        "profile": "linux-x86-64-2c-16g",
    }


def test_a_machine_that_tells_nothing(tmp_path: Path) -> None:
    mac = mac_machine(FakeMac(), None, architecture="arm64", environ={})
    assert (mac.chip, mac.memory_total, mac.profile) == (None, None, "macos")
    linux = linux_machine(str(tmp_path), architecture="aarch64", environ={})
    assert (linux.device_model, linux.chip, linux.os_name, linux.profile) == (None, None, "Linux", "linux-aarch64")


@pytest.mark.parametrize(
    ("files", "model"),
    [
        ({"sys/class/dmi/id/product_name": "To Be Filled By O.E.M.\n"}, None),
        ({"sys/class/dmi/id/product_name": "Default string\n"}, None),
        ({"proc/device-tree/model": "Raspberry Pi 5 Model B Rev 1.0\0"}, "Raspberry Pi 5 Model B Rev 1.0"),
        ({"sys/class/dmi/id/product_name": "\n"}, None),
        ({"sys/class/dmi/id/product_name": "x" * 100}, "x" * 64),
    ],
)
def test_the_model_of_a_linux_machine(tmp_path: Path, files: dict[str, str], model: str | None) -> None:
    assert linux_machine(build(tmp_path, files), environ={}).device_model == model


@pytest.mark.parametrize("value", ["lab-bench-3", "Mac Studio, left", "ü", "x" * 64])
def test_a_profile_that_is_given_is_taken_as_it_is(value: str) -> None:
    machine = mac_machine(FakeMac("sysctl/m2-max"), None, environ={PROFILE_VARIABLE: f" {value} "})
    assert machine.profile == value


@pytest.mark.parametrize("value", ["", "   ", "x" * 65, "two\nlines", "bell\x07", "zero\u200bwidth"])
def test_a_profile_that_is_too_long_or_cannot_be_printed_is_not_taken(value: str) -> None:
    machine = mac_machine(FakeMac("sysctl/m2-max"), None, environ={PROFILE_VARIABLE: value})
    assert machine.profile == "macos-apple-m2-max-64g"


@given(st.data())
def test_a_profile_is_always_short_lower_case_and_free_of_blanks(data: st.DataObject) -> None:
    text = data.draw(spoiled(captured("sysctl/intel")))
    profile = mac_machine(FakeMac(texts={"sysctl": text}), None, environ={}).profile
    assert profile.startswith("macos")
    assert len(profile) <= 64
    assert profile == profile.lower()
    assert profile.isascii()
    assert not set(profile) & set(" \t\n/()@")
    assert "--" not in profile


def test_this_machine_is_read_as_others_read_it() -> None:
    machine = this_machine()
    assert machine.memory_total == pytest.approx(psutil.virtual_memory().total, rel=0.01)
    assert machine.logical_cores == os.cpu_count()
    assert machine.physical_cores in {psutil.cpu_count(logical=False), None}
    assert machine.architecture == platform.machine()
    assert this_machine() is machine


def test_no_name_of_a_person_or_a_host_and_no_serial_number_is_told(tmp_path: Path) -> None:
    told = " ".join(map(str, asdict(this_machine()).values())).lower().split()
    assert socket.gethostname().lower() not in told
    assert getpass.getuser().lower() not in told
    told = str(linux_machine(build(tmp_path, XEON), environ={})).split()
    assert not [word for word in told if "SERIAL" in word or "1234abcd" in word]


def test_a_system_that_nobody_knows_still_has_a_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PROFILE_VARIABLE, raising=False)
    monkeypatch.setattr(module.platform, "system", lambda: "Plan 9")
    monkeypatch.setattr(module.psutil, "virtual_memory", lambda: 1 / 0)
    module.this_machine.cache_clear()
    machine = module.this_machine()
    module.this_machine.cache_clear()
    assert machine.memory_total is None
    assert machine.profile.startswith("plan-9-")


def test_a_machine_that_cannot_be_read_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "linux_machine", lambda: 1 / 0)
    monkeypatch.setattr(module, "mac_machine", lambda: 1 / 0)
    module.this_machine.cache_clear()
    machine = module.this_machine()
    module.this_machine.cache_clear()
    assert machine.device_model is None
    assert machine.profile
