"""One cheap reading of this process's memory."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import NamedTuple

from otel_specdecode.host import macos_native
from otel_specdecode.host.memory import peak_resident_bytes, resident_bytes


class ProcessMemory(NamedTuple):
    """Memory of this process at one moment, in bytes; None where the system does not tell.

    Attributes:
        resident: Resident set size. On macOS without Metal buffers and compressed pages.
        footprint: Physical footprint, macOS only: with both.
    """

    resident: int | None
    footprint: int | None = None


class LifetimePeaks(NamedTuple):
    """The highest values since the process began, in bytes; None where the system keeps none."""

    resident: int | None
    footprint: int | None = None


def process_memory() -> ProcessMemory:
    """Return the memory now. Never raises."""
    try:
        return _READ.get(sys.platform, _by_psutil)()
    except Exception:
        return ProcessMemory(None)


def lifetime_peaks() -> LifetimePeaks:
    """Return the high-water marks. Never raises."""
    try:
        native = macos_native.footprint()
        return LifetimePeaks(peak_resident_bytes(), native.lifetime_max if native else None)
    except Exception:
        return LifetimePeaks(None)


def _by_psutil() -> ProcessMemory:
    return ProcessMemory(resident_bytes())


def _by_rusage() -> ProcessMemory:
    native = macos_native.footprint()
    return ProcessMemory(native.resident, native.current) if native else _by_psutil()


def _by_statm() -> ProcessMemory:
    try:
        descriptor = os.open(_STATM, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # a process can be out of descriptors for a while
        return _by_psutil()
    try:
        return ProcessMemory(_resident(descriptor))
    finally:
        os.close(descriptor)


def _resident(descriptor: int) -> int:
    """Return the second word of statm, which is in pages."""
    return int(os.pread(descriptor, 128, 0).split(b" ", 2)[1]) * _PAGE_SIZE


_STATM = "/proc/self/statm"
_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
_READ = {"linux": _by_statm, "darwin": _by_rusage}


class MemoryProbe:
    """Reads the memory again and again. On Linux it keeps statm open, which halves what a reading on a timer costs.

    The open file goes on showing the process that opened it: the child of a fork must close what it inherited.
    """

    def __init__(self) -> None:
        """Open what is to be read; where that fails, each reading opens it."""
        self._descriptor: int | None = None
        if sys.platform == "linux":
            with suppress(OSError):
                self._descriptor = os.open(_STATM, os.O_RDONLY | os.O_CLOEXEC)

    def read(self) -> ProcessMemory:
        """Return the memory now. Never raises."""
        if self._descriptor is None:
            return process_memory()
        try:
            return ProcessMemory(_resident(self._descriptor))
        except (IndexError, OSError, ValueError):
            # Somebody closed all descriptors, and the number may mean another file by now. It is not ours to close.
            self._descriptor = None
            return process_memory()

    def close(self) -> None:
        """Close what was opened. Readings go on, each by itself."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with suppress(OSError):
                os.close(descriptor)
