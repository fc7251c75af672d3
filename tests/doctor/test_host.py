"""Readings of the host and of a process as checks."""

from __future__ import annotations

import pytest

from otel_specdecode.doctor.host import host_checks, memory_checks, shown_bytes
from otel_specdecode.doctor.machine import machine_checks
from otel_specdecode.host.machine import Machine
from otel_specdecode.host.macos import MacReader
from otel_specdecode.host.process_memory import LifetimePeaks, ProcessMemory
from otel_specdecode.host.state import unknown_host
from tests.host.captures import FakeMac

GIB = 1024**3
MAC = FakeMac(
    "pmset-g/powermode-high", "pmset-batt/mains-charging", "notifyutil/heavy", "sysctl/m2-max", "vm_stat/macos26"
)


def test_every_reading_of_a_mac_is_told_with_its_source() -> None:
    checks = {check.id: check for check in host_checks(MacReader(MAC, None).read(), "darwin")}
    assert checks["host.power_mode"].detail == "high  (pmset -g: powermode)"
    assert checks["host.battery_charge"].detail == "33%  (pmset -g batt)"
    assert checks["host.memory_limit"].detail == "64.00 GiB  (sysctl hw.memsize)"
    assert checks["host.memory_limit"].facts["value"] == 64 * GIB
    assert checks["host.thermal_state"].facts == {
        "value": "serious",
        "source": "notifyutil: thermalpressurelevel",
        "why_unknown": "",
    }


def test_what_is_unknown_says_why_and_is_no_fault() -> None:
    checks = host_checks(unknown_host("there is no reader for plan9"), "plan9")
    assert {check.status for check in checks} == {"unknown"}
    assert {check.detail for check in checks} == {"there is no reader for plan9"}


def test_on_a_mac_it_is_said_when_the_readings_were_last_verified_on_one() -> None:
    (check,) = [each for each in host_checks(unknown_host("no"), "darwin") if each.id == "host.macos_verified"]
    assert check.detail == "last verified on a Mac: never"
    assert "--capture" in check.fix
    assert not [each for each in host_checks(unknown_host("no"), "linux") if each.id == "host.macos_verified"]


@pytest.mark.parametrize(("system", "told"), [("linux", "only macOS keeps it"), ("darwin", "the system does not tell")])
def test_a_footprint_that_is_not_there_says_why(system: str, told: str) -> None:
    checks = {check.id: check for check in memory_checks(ProcessMemory(40 * 1024**2), LifetimePeaks(None), system)}
    assert checks["process.resident"].detail == "40.0 MiB"
    assert (checks["process.footprint"].status, checks["process.footprint"].detail) == ("unknown", told)
    assert checks["process.peak_resident"].detail == "the system does not tell"


def test_the_highest_value_is_never_below_the_one_of_now() -> None:
    checks = {each.id: each for each in memory_checks(ProcessMemory(50, 70), LifetimePeaks(40, 90), "darwin")}
    assert checks["process.peak_resident"].facts == {"value": 50}
    assert checks["process.peak_footprint"].facts == {"value": 90}


def test_a_machine_is_told_with_what_is_known_of_it() -> None:
    mac = Machine(
        "Mac16,1", "Apple M4", "arm64", 10, 10, 4, 6, 32 * GIB, "macOS", "26.1", "25B78", "macos-apple-m4-32g"
    )
    told = {check.id: check.detail for check in machine_checks(mac)}
    assert told["machine"] == "Mac16,1, Apple M4, arm64, 10 cores (4 fast, 6 economical), 32.0 GiB"
    assert told["system"] == "macOS 26.1 (build 25B78)"
    assert told["machine.profile"] == "macos-apple-m4-32g"
    bare = Machine(None, None, "riscv64", None, None, None, None, None, "Plan 9", None, None, "plan-9-riscv64")
    told = {check.id: check.detail for check in machine_checks(bare)}
    assert told["machine"] == "riscv64"
    assert told["system"] == "Plan 9"


def test_bytes_are_told_in_gib_or_below_one_in_mib() -> None:
    assert [shown_bytes(value) for value in (0, 1024**2 * 3 // 2, GIB, 23 * GIB // 2)] == [
        "0.0 MiB",
        "1.5 MiB",
        "1.00 GiB",
        "11.50 GiB",
    ]
