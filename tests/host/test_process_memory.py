"""One reading of this process's memory, by each way to take it."""

from __future__ import annotations

import os
import sys

import psutil
import pytest

from otel_specdecode.host import macos_native
from otel_specdecode.host import process_memory as module
from otel_specdecode.host.process_memory import (
    LifetimePeaks,
    MemoryProbe,
    ProcessMemory,
    lifetime_peaks,
    process_memory,
)

MIB = 1024**2
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads the /proc of Linux")


def descriptors() -> list[str]:
    """The descriptors of this process."""
    return sorted(os.listdir("/proc/self/fd"))


def test_a_reading_is_the_resident_size_that_others_see() -> None:
    assert process_memory().resident == pytest.approx(psutil.Process().memory_info().rss, abs=16 * MIB)


def test_the_lifetime_mark_is_not_below_a_reading() -> None:
    mark = lifetime_peaks().resident
    assert mark is not None
    assert mark >= 0.9 * (process_memory().resident or 0)


@pytest.fixture
def macos(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process on macOS."""
    monkeypatch.setattr(module.sys, "platform", "darwin")
    monkeypatch.setattr(macos_native, "footprint", lambda: macos_native.Footprint(11, 22, 33))


def test_on_macos_one_call_tells_resident_size_and_footprint(macos: None) -> None:
    assert process_memory() == ProcessMemory(11, 22)
    assert lifetime_peaks().footprint == 33
    probe = MemoryProbe()
    assert probe.read() == ProcessMemory(11, 22)
    probe.close()


def test_on_macos_without_its_library_the_resident_size_remains(macos: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(macos_native, "footprint", lambda: None)
    monkeypatch.setattr(module, "resident_bytes", lambda: 7)
    monkeypatch.setattr(module, "peak_resident_bytes", lambda: 9)
    assert process_memory() == ProcessMemory(7, None)
    assert lifetime_peaks() == LifetimePeaks(9, None)


def test_on_another_system_psutil_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.sys, "platform", "win32")
    monkeypatch.setattr(module, "resident_bytes", lambda: 7)
    assert process_memory() == ProcessMemory(7, None)


def test_what_cannot_be_read_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.sys, "platform", "win32")
    monkeypatch.setattr(module, "resident_bytes", lambda: 1 / 0)
    monkeypatch.setattr(module, "peak_resident_bytes", lambda: 1 / 0)
    assert process_memory() == ProcessMemory(None, None)
    assert lifetime_peaks() == LifetimePeaks(None, None)


@on_linux
def test_a_reading_leaves_no_descriptor_open() -> None:
    before = descriptors()
    process_memory()
    assert descriptors() == before


@on_linux
def test_a_probe_holds_one_descriptor_until_it_is_closed() -> None:
    before = descriptors()
    probe = MemoryProbe()
    assert len(descriptors()) == len(before) + 1
    assert probe.read().resident == pytest.approx(psutil.Process().memory_info().rss, abs=16 * MIB)
    probe.close()
    probe.close()
    assert descriptors() == before
    assert probe.read().resident


@on_linux
def test_a_descriptor_that_has_come_to_mean_another_file_is_neither_believed_nor_closed() -> None:
    """As in a program that closes all descriptors when it becomes a daemon."""
    probe = MemoryProbe()
    number = probe._descriptor
    assert number is not None
    os.close(number)
    read, write = os.pipe()
    others = {read, write} | {os.open("/proc/self/cmdline", os.O_RDONLY)}
    assert number in others
    assert probe.read().resident == pytest.approx(psutil.Process().memory_info().rss, abs=16 * MIB)
    probe.close()
    for descriptor in others:
        os.close(descriptor)  # raises if the probe closed it


@on_linux
def test_a_process_that_is_out_of_descriptors_is_still_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(module.os, "open", refuse)
    monkeypatch.setattr(module, "resident_bytes", lambda: 7)
    assert MemoryProbe().read() == ProcessMemory(7)
