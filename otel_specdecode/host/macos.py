"""The state of a Mac."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from otel_specdecode.host import macos_native
from otel_specdecode.host import macos_text as text
from otel_specdecode.host.commands import Commands, Output, Runner
from otel_specdecode.host.state import (
    HostState,
    MemoryPressure,
    PowerMode,
    PowerSource,
    Reading,
    T,
    ThermalState,
    guarded,
    no_number,
    no_state,
)
from otel_specdecode.thresholds import thresholds

SYSCTL = "/usr/sbin/sysctl"
# One run for everything that the state and the machine are made of. Names that a Mac lacks are skipped.
SYSCTL_COMMAND = (
    SYSCTL,
    "kern.memorystatus_vm_pressure_level",
    "vm.swapusage",
    "kern.hv_vmm_present",
    "hw.memsize",
    "hw.model",
    "machdep.cpu.brand_string",
    "hw.physicalcpu",
    "hw.logicalcpu",
    "hw.perflevel0.physicalcpu",
    "hw.perflevel1.physicalcpu",
    "kern.osproductversion",
    "kern.osversion",
)
PMSET_COMMAND = ("/usr/bin/pmset", "-g")
PMSET_BATTERY_COMMAND = ("/usr/bin/pmset", "-g", "batt")
PMSET_CUSTOM_COMMAND = ("/usr/bin/pmset", "-g", "custom")
PMSET_THERMAL_COMMAND = ("/usr/bin/pmset", "-g", "therm")
NOTIFY_COMMAND = ("/usr/bin/notifyutil", "-g", macos_native.THERMAL_PRESSURE.decode())
VM_STAT_COMMAND = ("/usr/bin/vm_stat",)

COMMANDS: tuple[tuple[str, ...], ...] = (
    SYSCTL_COMMAND,
    PMSET_COMMAND,
    PMSET_BATTERY_COMMAND,
    PMSET_CUSTOM_COMMAND,
    PMSET_THERMAL_COMMAND,
    NOTIFY_COMMAND,
    VM_STAT_COMMAND,
)
"""Every command a reading may take: what has to be captured to replay one elsewhere."""


class Kernel(Protocol):
    """What can be asked in this process, without a command; None where it cannot tell."""

    def sysctl_number(self, name: str) -> int | None:
        """Return a sysctl value that is an integer."""
        ...

    def sysctl_text(self, name: str) -> str | None:
        """Return a sysctl value that is a text."""
        ...

    def swap_used(self) -> int | None:
        """Return the bytes of swap used."""
        ...

    def thermal_pressure_level(self) -> int | None:
        """Return the published thermal pressure level."""
        ...


class Sysctl:
    """Values of sysctl at one moment: asked in this process, or, where that cannot be, from one run of the command.

    Attributes:
        kernel: What is asked; None where nothing answers.
    """

    def __init__(self, run: Runner, kernel: Kernel | None) -> None:
        """Ask this kernel if it answers at all, else run the command."""
        self.kernel = kernel if kernel and kernel.sysctl_number("hw.memsize") else None
        self._values = {} if self.kernel else text.sysctl_values(run(*SYSCTL_COMMAND).text)

    def number(self, name: str) -> int | None:
        """Return a value that is an integer."""
        if self.kernel:
            return self.kernel.sysctl_number(name)
        written = self._values.get(name, "")
        return int(written) if written.isascii() and written.isdigit() and len(written) <= 20 else None

    def text(self, name: str) -> str | None:
        """Return a value that is a text."""
        return self.kernel.sysctl_text(name) if self.kernel else self._values.get(name)

    def swap_used(self) -> Reading[int | None]:
        """Return the bytes of swap used."""
        if not self.kernel:
            return text.swap_used(self._values.get("vm.swapusage", ""))
        used = self.kernel.swap_used()
        return no_number("no sysctl vm.swapusage") if used is None else Reading(used, "sysctl vm.swapusage")

    def thermal_pressure_level(self) -> int | None:
        """Return the published thermal pressure level."""
        return self.kernel.thermal_pressure_level() if self.kernel else None


class MacReader:
    """Reads the state of a Mac. Power is read less often than the rest: it takes two commands."""

    def __init__(
        self,
        run: Runner | None = None,
        kernel: Kernel | None = macos_native,
        *,
        power_every: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read by commands of this system and by its kernel.

        Args:
            run: Runs commands, or hands out captured output.
            kernel: What can be asked without a command; None to take everything from commands.
            power_every: Seconds between two readings of power; by default those of thresholds.toml.
            clock: Seconds, monotonic.
        """
        self._run = run or Commands()
        self._kernel = kernel
        self._power_every = float(thresholds()["host"]["power_every"]) if power_every is None else power_every
        self._clock = clock
        self._power: tuple[Reading[PowerMode], Reading[PowerSource], Reading[float | None]] | None = None
        self._power_at = 0.0

    def read(self) -> HostState:
        """Return the state now. Never raises."""
        sysctl = Sysctl(self._run, self._kernel)
        mode, source, charge = self._power_now()
        pages = self._run(*VM_STAT_COMMAND)
        return HostState(
            power_mode=mode,
            power_source=source,
            battery_charge=charge,
            thermal_state=guarded(lambda: self._thermal_state(sysctl), no_state),
            memory_pressure=guarded(lambda: _memory_pressure(sysctl), no_state),
            swap_used=guarded(sysctl.swap_used, no_number),
            swapped_in=_page_total(pages, "Swapins"),
            swapped_out=_page_total(pages, "Swapouts"),
            memory_available=_page_total(pages, "Pages free", "Pages speculative", "Pages inactive"),
            memory_limit=guarded(lambda: _memory_limit(sysctl), no_number),
        )

    def _power_now(self) -> tuple[Reading[PowerMode], Reading[PowerSource], Reading[float | None]]:
        now = self._clock()
        if self._power is None or now - self._power_at >= self._power_every:
            battery = self._run(*PMSET_BATTERY_COMMAND)
            source = guarded(lambda: _explained(text.power_source, battery), no_state)
            charge = guarded(lambda: _explained(text.battery_charge, battery), no_number)
            mode = guarded(lambda: self._power_mode(source.value), no_state)
            self._power, self._power_at = (mode, source, charge), now
        return self._power

    def _power_mode(self, source: PowerSource) -> Reading[PowerMode]:
        in_use = _explained(text.power_mode_in_use, self._run(*PMSET_COMMAND))
        if in_use.known or source == "unknown":
            return in_use
        custom = text.power_mode_of(self._run(*PMSET_CUSTOM_COMMAND).text, source)
        return custom if custom.known else in_use

    def _thermal_state(self, sysctl: Sysctl) -> Reading[ThermalState]:
        if sysctl.number("kern.hv_vmm_present") == 1:
            return no_state("a virtual machine is told no thermal pressure")
        level = sysctl.thermal_pressure_level()
        if level is not None:
            return text.thermal_of_level(level, "notify: thermalpressurelevel")
        notified = _explained(text.thermal_notified, self._run(*NOTIFY_COMMAND))
        if notified.known:
            return notified
        recorded = _explained(text.thermal_recorded, self._run(*PMSET_THERMAL_COMMAND))
        return recorded if recorded.known else no_state(f"{notified.why_unknown}; {recorded.why_unknown}")


def _explained(parse: Callable[[str], Reading[T]], output: Output) -> Reading[T]:
    """Parse an output; if it has no value because the command failed, say that instead."""
    reading = parse(output.text)
    return reading if reading.known or not output.failure else replace(reading, why_unknown=output.failure)


def _page_total(output: Output, *names: str) -> Reading[int | None]:
    def parse(written: str) -> Reading[int | None]:
        return text.page_total(text.page_bytes(written), *names)

    return guarded(lambda: _explained(parse, output), no_number)


def _memory_pressure(sysctl: Sysctl) -> Reading[MemoryPressure]:
    name = "kern.memorystatus_vm_pressure_level"
    level = sysctl.number(name)
    return no_state(f"no sysctl {name}") if level is None else text.pressure_of_level(level, f"sysctl {name}")


def _memory_limit(sysctl: Sysctl) -> Reading[int | None]:
    size = sysctl.number("hw.memsize")
    return Reading(size, "sysctl hw.memsize") if size else no_number("no sysctl hw.memsize")
