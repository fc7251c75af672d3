"""The package, Python, the system and the machine."""

from __future__ import annotations

import platform
from dataclasses import asdict

from otel_specdecode.doctor.checks import Check
from otel_specdecode.doctor.texts import one_line
from otel_specdecode.host.machine import Machine
from otel_specdecode.version import __version__

_GIB = 1024**3


def machine_checks(machine: Machine) -> list[Check]:
    """Return what runs this program and on what."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    system = " ".join(part for part in (machine.os_name, machine.os_version) if part)
    build = f" (build {machine.os_build})" if machine.os_build else ""
    facts = asdict(machine)
    return [
        Check("package", "otel-specdecode", "ok", __version__, facts={"version": __version__}),
        Check("python", "Python", "ok", python, facts={"version": platform.python_version()}),
        Check("system", "system", "ok", f"{system}{build}", facts=_some(facts, "os_name", "os_version", "os_build")),
        Check("machine", "machine", "ok", _told(machine), facts=facts),
        Check(
            "machine.profile", "machine profile", "ok", one_line(machine.profile), facts={"profile": machine.profile}
        ),
    ]


def _told(machine: Machine) -> str:
    cores = ""
    if machine.physical_cores or machine.logical_cores:
        cores = f"{machine.physical_cores or machine.logical_cores} cores"
    if machine.performance_cores and machine.efficiency_cores:
        cores += f" ({machine.performance_cores} fast, {machine.efficiency_cores} economical)"
    memory = f"{machine.memory_total / _GIB:.1f} GiB" if machine.memory_total else ""
    parts = (machine.device_model, machine.chip, machine.architecture, cores, memory)
    return one_line(", ".join(part for part in parts if part))


def _some(facts: dict[str, object], *names: str) -> dict[str, object]:
    return {name: facts[name] for name in names}
