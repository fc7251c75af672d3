"""Power of a Linux machine: mode, source and charge."""

from __future__ import annotations

from otel_specdecode.host.linux_files import Files
from otel_specdecode.host.state import PowerMode, PowerSource, Reading, no_number, no_state

SUPPLIES = "/sys/class/power_supply"
PROFILE = "/sys/firmware/acpi/platform_profile"
CPU_FREQUENCY = "/sys/devices/system/cpu/cpu0/cpufreq"
DMI = "/sys/class/dmi/id"

# Enclosures that stand at a socket, desktops and servers, of the list in DMTF DSP0134 (SMBIOS), system enclosure types.
_AT_A_SOCKET = frozenset({3, 4, 5, 6, 7, 13, 15, 17, 23, 24, 25, 28, 29, 35, 36})

# `cool` and `quiet` give up speed for heat and noise; `balanced-performance` is still a balance.
_PROFILES: dict[str, PowerMode] = {
    "low-power": "low",
    "cool": "low",
    "quiet": "low",
    "balanced": "automatic",
    "balanced-performance": "automatic",
    "performance": "high",
}
_PREFERENCES: dict[str, PowerMode] = {
    "power": "low",
    "balance_power": "automatic",
    "default": "automatic",
    "balance_performance": "automatic",
    "performance": "high",
}
# The governor `powersave` holds the lowest frequency, except where the processor itself chooses: there the preference
# is read first, and a governor says nothing.
_GOVERNORS: dict[str, PowerMode] = {
    "powersave": "low",
    "ondemand": "automatic",
    "conservative": "automatic",
    "schedutil": "automatic",
    "performance": "high",
}


def power_mode(files: Files) -> Reading[PowerMode]:
    """Return the platform profile; without one, what the first processor's frequency is governed by."""
    tables = (
        (PROFILE, _PROFILES),
        (f"{CPU_FREQUENCY}/energy_performance_preference", _PREFERENCES),
        (f"{CPU_FREQUENCY}/scaling_governor", _GOVERNORS),
    )
    for path, modes in tables:
        chosen = files.text(path)
        if chosen is not None:
            mode = modes.get(chosen)
            return Reading(mode, path) if mode else no_state(f"{path} has a value that is not known")
    return no_state("no platform profile and no frequency governor")


def _supplies(files: Files) -> list[tuple[str, str]]:
    """Return folder and type of the supplies of the machine; those of a mouse or a headset are marked `Device`."""
    folders = [f"{SUPPLIES}/{name}" for name in files.names(SUPPLIES)]
    return [(folder, files.text(f"{folder}/type") or "") for folder in folders if _own(files, folder)]


def _own(files: Files, folder: str) -> bool:
    return files.text(f"{folder}/scope") != "Device"


def power_source(files: Files) -> Reading[PowerSource]:
    """Return mains if one of them is on, battery if one discharges or all mains are off.

    A machine that lists no supply at all draws from mains if it says that its enclosure is a desktop's or a server's.
    """
    supplies = _supplies(files)
    batteries = [folder for folder, kind in supplies if kind == "Battery"]
    mains = [files.text(f"{folder}/online") for folder, kind in supplies if kind in {"Mains", "USB"}]
    # USB ports read 2 where the charger's limit is fixed.
    if any(online in {"1", "2"} for online in mains):
        return Reading("ac", f"{SUPPLIES}: online")
    statuses = [files.text(f"{folder}/status") for folder in batteries]
    if "Discharging" in statuses or (batteries and "0" in mains):
        return Reading("battery", f"{SUPPLIES}: {'status' if 'Discharging' in statuses else 'online'}")
    if statuses and all(status in {"Charging", "Full", "Not charging"} for status in statuses):
        return Reading("ac", f"{SUPPLIES}: status")
    if supplies:
        return no_state(f"{SUPPLIES} does not tell")
    if files.number(f"{DMI}/chassis_type") in _AT_A_SOCKET and not _virtual(files):
        return Reading("ac", f"{DMI}/chassis_type")
    return no_state(f"{SUPPLIES} lists no supply of the machine, and {DMI} no desktop or server")


def _virtual(files: Files) -> bool:
    """Return whether this is a guest: Hyper-V tells one that it is a desktop, on a laptop too."""
    return "virtual" in (files.text(f"{DMI}/product_name") or "").lower()


def battery_charge(files: Files) -> Reading[float | None]:
    """Return the charge of the machine's batteries, 0 to 1: their mean if there are several."""
    charges = [files.number(f"{folder}/capacity") for folder, kind in _supplies(files) if kind == "Battery"]
    if not charges:
        return no_number(f"{SUPPLIES} lists no battery")
    known = [charge for charge in charges if charge is not None and 0 <= charge <= 100]
    if len(known) < len(charges):
        return no_number(f"{SUPPLIES}: a capacity that is no percentage")
    return Reading(sum(known) / len(known) / 100, f"{SUPPLIES}: capacity")
