"""What does not change about the machine. No host name, no user name, no serial number."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import psutil

from otel_specdecode.host import macos_native
from otel_specdecode.host.commands import Commands, Runner
from otel_specdecode.host.linux_files import Files
from otel_specdecode.host.linux_memory import meminfo
from otel_specdecode.host.macos import Kernel, Sysctl

PROFILE_VARIABLE = "OTEL_SPECDECODE_MACHINE_PROFILE"
LONGEST_PROFILE = 64

_GIB = 1024**3
# What boards report whose maker did not fill the field in.
_PLACEHOLDERS = re.compile(r"to be filled|default string|system product name|o\.e\.m|none|not specified", re.IGNORECASE)
_BRAND_NOISE = re.compile(r"\((?:r|tm)\)|\bcpu\b|@.*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine, as far as its system tells.

    Attributes:
        device_model: The maker's model identifier, as `Mac16,1`.
        chip: The processor's brand, as `Apple M3 Max`.
        architecture: As `arm64` or `x86_64`.
        physical_cores: Cores.
        logical_cores: Hardware threads.
        performance_cores: Fast cores where there are two kinds, on macOS.
        efficiency_cores: Economical cores where there are two kinds, on macOS.
        memory_total: Bytes, of the whole machine.
        os_name: As `macOS` or `Debian GNU/Linux`.
        os_version: As `15.5` or `12`.
        os_build: As `24F74`; on Linux the release of the kernel.
        profile: A short text that is the same for machines of the same kind, as `macos-apple-m3-max-128g`; or what
            OTEL_SPECDECODE_MACHINE_PROFILE says.
    """

    device_model: str | None
    chip: str | None
    architecture: str
    physical_cores: int | None
    logical_cores: int | None
    performance_cores: int | None
    efficiency_cores: int | None
    memory_total: int | None
    os_name: str
    os_version: str | None
    os_build: str | None
    profile: str


@cache
def this_machine() -> Machine:
    """Return the machine that this process runs on. Never raises; asked once."""
    try:
        if platform.system() == "Darwin":
            return mac_machine()
        if platform.system() == "Linux":
            return linux_machine()
    except Exception:
        return _other_machine()
    return _other_machine()


def mac_machine(
    run: Runner | None = None,
    kernel: Kernel | None = macos_native,
    *,
    architecture: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Machine:
    """Return what a Mac tells of itself.

    Args:
        run: Runs commands, or hands out captured output.
        kernel: What can be asked without a command; None to take everything from commands.
        architecture: The processor's; by default this one's.
        environ: Where a profile may be given.
    """
    sysctl = Sysctl(run or Commands(), kernel)
    chip, memory = _printable(sysctl.text("machdep.cpu.brand_string")), sysctl.number("hw.memsize")
    return Machine(
        device_model=_printable(sysctl.text("hw.model")),
        chip=chip,
        architecture=architecture or platform.machine(),
        physical_cores=sysctl.number("hw.physicalcpu"),
        logical_cores=sysctl.number("hw.logicalcpu"),
        performance_cores=sysctl.number("hw.perflevel0.physicalcpu"),
        efficiency_cores=sysctl.number("hw.perflevel1.physicalcpu"),
        memory_total=memory,
        os_name="macOS",
        os_version=_printable(sysctl.text("kern.osproductversion")),
        os_build=_printable(sysctl.text("kern.osversion")),
        profile=_profile(environ, "macos", _BRAND_NOISE.sub("", chip or ""), _gibibytes(memory)),
    )


def linux_machine(
    root: str = "/",
    *,
    architecture: str | None = None,
    kernel_release: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Machine:
    """Return what a Linux machine tells of itself.

    Args:
        root: The folder that has /proc, /sys and /etc.
        architecture: The processor's; by default this one's.
        kernel_release: The kernel's; by default this one's.
        environ: Where a profile may be given.
    """
    files = Files(root)
    names = _os_release(files)
    cpuinfo = [tuple(map(str.strip, line.split(":", 1))) for line in (files.text("/proc/cpuinfo") or "").splitlines()]
    facts = dict(pair for pair in reversed(cpuinfo) if len(pair) == 2)
    logical = sum(pair[0] == "processor" for pair in cpuinfo) or None
    memory = meminfo(files).get("MemTotal")
    machine = architecture or platform.machine()
    return Machine(
        device_model=_device_model(files),
        chip=_printable(facts.get("model name")),
        architecture=machine,
        physical_cores=_physical_cores(files),
        logical_cores=logical,
        performance_cores=None,
        efficiency_cores=None,
        memory_total=memory,
        os_name=_printable(names.get("NAME")) or "Linux",
        os_version=_printable(names.get("VERSION_ID")),
        os_build=_printable(kernel_release or platform.release()),
        profile=_profile(environ, "linux", machine, f"{logical}c" if logical else "", _gibibytes(memory)),
    )


def _other_machine() -> Machine:
    system, logical = platform.system() or sys.platform, os.cpu_count()
    memory = _total_memory()
    return Machine(
        device_model=None,
        chip=None,
        architecture=platform.machine(),
        physical_cores=None,
        logical_cores=logical,
        performance_cores=None,
        efficiency_cores=None,
        memory_total=memory,
        os_name=system,
        os_version=_printable(platform.release()),
        os_build=None,
        profile=_profile(os.environ, system, platform.machine(), f"{logical}c" if logical else "", _gibibytes(memory)),
    )


def _total_memory() -> int | None:
    try:
        return int(psutil.virtual_memory().total)
    except Exception:
        return None


def _os_release(files: Files) -> dict[str, str]:
    lines = (files.text("/etc/os-release") or "").splitlines()
    return {key: value.strip("\"'") for key, _, value in (line.partition("=") for line in lines)}


def _device_model(files: Files) -> str | None:
    for path in ("/sys/class/dmi/id/product_name", "/proc/device-tree/model"):
        model = _printable((files.text(path) or "").rstrip("\0"))
        if model and not _PLACEHOLDERS.search(model):
            return model
    return None


def _physical_cores(files: Files) -> int | None:
    """Count the cores by package and core number. Only one hardware thread of each is counted."""
    cores = set()
    folder = "/sys/devices/system/cpu"
    for name in files.names(folder):
        core = files.number(f"{folder}/{name}/topology/core_id")
        if core is not None:
            cores.add((files.number(f"{folder}/{name}/topology/physical_package_id"), core))
    return len(cores) or None


def _printable(text: str | None) -> str | None:
    """Return a text of at most 64 characters without control characters; None if nothing is left."""
    kept = "".join(character for character in text or "" if character.isprintable()).strip()
    return kept[:64].strip() or None


def _gibibytes(memory: int | None) -> str:
    """Return the memory in whole gibibytes, rounded up: a Linux kernel keeps some back before it counts."""
    return f"{-(-memory // _GIB)}g" if memory else ""


def _profile(environ: Mapping[str, str], *parts: str) -> str:
    """Join the parts that are known, in lower case and with single dashes, unless a valid profile is given."""
    given = environ.get(PROFILE_VARIABLE, "").strip()
    if given and len(given) <= LONGEST_PROFILE and given.isprintable():
        return given
    joined = re.sub(r"[^a-z0-9.]+", "-", "-".join(part for part in parts if part).lower())
    return joined.strip("-")[:LONGEST_PROFILE].strip("-")
