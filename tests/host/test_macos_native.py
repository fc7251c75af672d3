"""Calls into macOS's library, on a library of our own that keeps to Apple's headers."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from types import SimpleNamespace
from typing import Any

import pytest

from otel_specdecode.host import macos_native as native

# <sys/resource.h>: the fields of struct rusage_info_v4 in their order.
RUSAGE_FIELDS = """
    user_time system_time pkg_idle_wkups interrupt_wkups pageins wired_size resident_size phys_footprint
    proc_start_abstime proc_exit_abstime child_user_time child_system_time child_pkg_idle_wkups child_interrupt_wkups
    child_pageins child_elapsed_abstime diskio_bytesread diskio_byteswritten cpu_time_qos_default
    cpu_time_qos_maintenance cpu_time_qos_background cpu_time_qos_utility cpu_time_qos_legacy
    cpu_time_qos_user_initiated cpu_time_qos_user_interactive billed_system_time serviced_system_time logical_writes
    lifetime_max_phys_footprint instructions cycles billed_energy serviced_energy interval_max_phys_footprint
    runnable_time
"""


class RusageInfoV4(ctypes.Structure):
    _fields_ = [("uuid", ctypes.c_uint8 * 16), *((name, c_uint64) for name in RUSAGE_FIELDS.split())]


class SwapUsage(ctypes.Structure):
    """<sys/sysctl.h>: struct xsw_usage."""

    _fields_ = [
        ("total", c_uint64),
        ("available", c_uint64),
        ("used", c_uint64),
        ("page_size", c_uint32),
        ("encrypted", c_int),
    ]


class FakeLibrary:
    """What libSystem does, as far as it is asked: values by name, a level, and a process's resources."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.level: int | None = 0
        self.registrations = 0
        self.rusage = RusageInfoV4(resident_size=11, phys_footprint=22, lifetime_max_phys_footprint=33)
        self.rusage_status = 0
        self.pids: list[tuple[int, int]] = []
        functions = {
            "sysctlbyname": (self._sysctl, c_int, [c_char_p, c_void_p, POINTER(c_size_t), c_void_p, c_size_t]),
            "proc_pid_rusage": (self._rusage, c_int, [c_int, c_int, c_void_p]),
            "notify_register_check": (self._register, c_uint32, [c_char_p, POINTER(c_int)]),
            "notify_get_state": (self._get_state, c_uint32, [c_int, POINTER(c_uint64)]),
            "notify_cancel": (self._cancel, c_uint32, [c_int]),
        }
        self.library: Any = SimpleNamespace(
            **{name: CFUNCTYPE(result, *types)(function) for name, (function, result, types) in functions.items()}
        )

    def _sysctl(self, name: bytes, old: int, size: Any, _new: int | None, _new_size: int) -> int:
        value = self.values.get(name)
        if value is None or len(value) > size[0]:
            return -1
        ctypes.memmove(old, value, len(value))
        size[0] = len(value)
        return 0

    def _rusage(self, pid: int, flavor: int, buffer: int) -> int:
        self.pids.append((pid, flavor))
        ctypes.memmove(buffer, ctypes.byref(self.rusage), ctypes.sizeof(self.rusage))
        return self.rusage_status

    def _register(self, name: bytes, token: Any) -> int:
        if name != b"com.apple.system.thermalpressurelevel":
            return 1
        self.registrations += 1
        token[0] = 7
        return 0

    def _get_state(self, token: int, state: Any) -> int:
        if token != 7 or self.level is None:
            return 2
        state[0] = self.level
        return 0

    def _cancel(self, token: int) -> int:
        self.registrations -= token == 7
        return 0


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeLibrary]:
    """A system library as macOS has it."""
    fake = FakeLibrary()
    library = native.declared(fake.library)
    monkeypatch.setattr(native, "system_library", lambda: library)
    monkeypatch.setattr(native, "held_library", lambda: library)
    yield fake
    assert fake.registrations == 0, "a token was not given back"


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ((4).to_bytes(4, "little"), 4),
        ((137438953472).to_bytes(8, "little"), 137438953472),
        ((-1).to_bytes(4, "little", signed=True), -1),
        (b"", None),
        (b"\1\0", None),
    ],
)
def test_a_number_by_name(system: FakeLibrary, value: bytes, number: int | None) -> None:
    system.values[b"hw.memsize"] = value
    assert native.sysctl_number("hw.memsize") == number


def test_a_name_that_there_is_not(system: FakeLibrary) -> None:
    assert native.sysctl_number("hw.nothing") is None
    assert native.sysctl_text("hw.nothing") is None
    assert native.swap_used() is None


def test_a_text_by_name(system: FakeLibrary) -> None:
    system.values[b"machdep.cpu.brand_string"] = b"Apple M3 Max\0"
    assert native.sysctl_text("machdep.cpu.brand_string") == "Apple M3 Max"


def test_a_text_that_is_longer_than_there_is_room_for(system: FakeLibrary) -> None:
    system.values[b"kern.version"] = b"x" * 300
    assert native.sysctl_text("kern.version") is None


def test_swap_used_is_the_third_number_of_its_structure(system: FakeLibrary) -> None:
    system.values[b"vm.swapusage"] = bytes(SwapUsage(total=1000, available=300, used=700, page_size=16384))
    assert native.swap_used() == 700


@pytest.mark.parametrize("level", [0, 1, 2, 3, 4])
def test_the_level_that_is_published(system: FakeLibrary, level: int) -> None:
    system.level = level
    assert native.thermal_pressure_level() == level


def test_a_level_that_cannot_be_had_leaves_no_registration_behind(system: FakeLibrary) -> None:
    system.level = None
    assert native.thermal_pressure_level() is None


def test_the_footprint_of_this_process(system: FakeLibrary) -> None:
    assert native.footprint() == native.Footprint(resident=11, current=22, lifetime_max=33)
    assert system.pids == [(os.getpid(), 4)]


def test_a_newer_kernel_that_writes_more_does_no_harm() -> None:
    """Version 6 of the structure is 464 bytes."""
    assert ctypes.sizeof(RusageInfoV4) == 296
    assert native._RUSAGE_ROOM >= 464


def test_a_footprint_that_cannot_be_had(system: FakeLibrary) -> None:
    system.rusage_status = -1
    assert native.footprint() is None


def test_elsewhere_than_on_macos_every_answer_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "LIBRARY", "/no/such/library")
    native.system_library.cache_clear()
    assert native.system_library() is None
    assert native.sysctl_number("hw.memsize") is None
    assert native.sysctl_text("hw.model") is None
    assert native.swap_used() is None
    assert native.thermal_pressure_level() is None
    assert native.footprint() is None
    native.system_library.cache_clear()


def test_a_library_that_lacks_a_function_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native.ctypes, "CDLL", lambda _: SimpleNamespace(sysctlbyname=SimpleNamespace()))
    native.system_library.cache_clear()
    assert native.system_library() is None
    native.system_library.cache_clear()
