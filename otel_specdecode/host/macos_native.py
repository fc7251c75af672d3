"""Asks the kernel of macOS directly. Every function returns None where it cannot tell, other systems included.

None of these needs root. Each call leaves nothing behind, so a fork needs no care.
"""

from __future__ import annotations

import ctypes
import os
import struct
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from functools import cache
from typing import Any, NamedTuple

LIBRARY = "/usr/lib/libSystem.B.dylib"
THERMAL_PRESSURE = b"com.apple.system.thermalpressurelevel"

# struct rusage_info_v4: 16 bytes of uuid, then words of 8 bytes. The kernel may write more than this version has.
_RUSAGE_INFO_V4 = 4
_RUSAGE_ROOM = 512
_RESIDENT_SIZE, _PHYS_FOOTPRINT, _LIFETIME_MAX_PHYS_FOOTPRINT = (16 + 8 * word for word in (6, 7, 28))


class Footprint(NamedTuple):
    """Memory of a process on macOS, in bytes.

    Attributes:
        resident: Resident set size.
        current: Physical footprint, "Memory" in Activity Monitor: with compressed pages and Metal buffers.
        lifetime_max: The highest footprint since the process began.
    """

    resident: int
    current: int
    lifetime_max: int


@cache
def system_library() -> Any:
    """Return the system library with the functions used here declared; None elsewhere than on macOS."""
    try:
        return declared(ctypes.CDLL(LIBRARY))
    except (AttributeError, OSError):
        return None


@cache
def held_library() -> Any:
    """Return the same, called without letting go of the interpreter's lock: for what takes a microsecond.

    The thread that makes tokens would have to wait for that lock again.
    """
    try:
        return declared(ctypes.PyDLL(LIBRARY))
    except (AttributeError, OSError):
        return None


def declared(library: Any) -> Any:
    """Set the types of the functions used here on a library, and return it.

    Raises:
        AttributeError: The library lacks one of them.
    """
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "sysctlbyname": (c_int, [c_char_p, c_void_p, POINTER(c_size_t), c_void_p, c_size_t]),
        "proc_pid_rusage": (c_int, [c_int, c_int, c_void_p]),
        "notify_register_check": (c_uint32, [c_char_p, POINTER(c_int)]),
        "notify_get_state": (c_uint32, [c_int, POINTER(c_uint64)]),
        "notify_cancel": (c_uint32, [c_int]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def _sysctl(name: str, room: int) -> bytes | None:
    library = system_library()
    if library is None:
        return None
    buffer, size = ctypes.create_string_buffer(room), c_size_t(room)
    if library.sysctlbyname(name.encode(), buffer, byref(size), None, 0) != 0:
        return None
    return buffer.raw[: size.value]


def sysctl_number(name: str) -> int | None:
    """Return a sysctl value that is an integer of 4 or 8 bytes."""
    value = _sysctl(name, 8)
    return int.from_bytes(value, "little", signed=True) if value is not None and len(value) in {4, 8} else None


def sysctl_text(name: str) -> str | None:
    """Return a sysctl value that is a text of at most 255 bytes."""
    value = _sysctl(name, 256)
    return None if value is None else value.partition(b"\0")[0].decode("utf-8", "replace")


def swap_used() -> int | None:
    """Return the bytes of swap used: struct xsw_usage begins with total, available and used."""
    value = _sysctl("vm.swapusage", 64)
    return int(struct.unpack_from("<Q", value, 16)[0]) if value is not None and len(value) >= 24 else None


def thermal_pressure_level() -> int | None:
    """Return the thermal pressure level, 0 to 4, that the system publishes to everyone.

    A level that was never published reads 0.
    """
    library = system_library()
    if library is None:
        return None
    token, level = c_int(0), c_uint64(0)
    if library.notify_register_check(THERMAL_PRESSURE, byref(token)) != 0:
        return None
    try:
        return int(level.value) if library.notify_get_state(token, byref(level)) == 0 else None
    finally:
        library.notify_cancel(token)


def footprint() -> Footprint | None:
    """Return the memory of this process."""
    library = held_library()
    if library is None:
        return None
    buffer = ctypes.create_string_buffer(_RUSAGE_ROOM)
    if library.proc_pid_rusage(os.getpid(), _RUSAGE_INFO_V4, buffer) != 0:
        return None
    words = (_RESIDENT_SIZE, _PHYS_FOOTPRINT, _LIFETIME_MAX_PHYS_FOOTPRINT)
    return Footprint(*(struct.unpack_from("<Q", buffer, offset)[0] for offset in words))
