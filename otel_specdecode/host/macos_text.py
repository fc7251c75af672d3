"""What pmset, notifyutil, sysctl and vm_stat of macOS write, made into readings. Pure functions of text.

None of them raises: text that was cut off, garbled or translated yields an unknown value with its reason.
"""

from __future__ import annotations

import re

from otel_specdecode.host.state import (
    MemoryPressure,
    PowerMode,
    PowerSource,
    Reading,
    ThermalState,
    no_number,
    no_state,
)

_MODES: dict[str, PowerMode] = {"0": "automatic", "1": "low", "2": "high"}
_SOURCES: dict[str, PowerSource] = {"AC Power": "ac", "Battery Power": "battery", "UPS Power": "battery"}
_SECTIONS: dict[PowerSource, str] = {"ac": "AC Power:", "battery": "Battery Power:"}
_PRESSURES: dict[int, MemoryPressure] = {1: "normal", 2: "warn", 4: "critical"}
# kOSThermalPressureLevel: nominal, moderate, heavy, trapping, sleeping.
_LEVELS: dict[int, ThermalState] = {0: "nominal", 1: "fair", 2: "serious", 3: "critical", 4: "critical"}
# kIOPMThermalLevel: normal, danger ("may cause system slowdown"), critical, warning, trap.
_WARNINGS: dict[int, ThermalState] = {0: "nominal", 5: "serious", 10: "critical", 100: "serious", 110: "critical"}
_SEVERITY: tuple[ThermalState, ...] = ("nominal", "fair", "serious", "critical")
_UNITS = {"K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}

_SETTING = re.compile(r"^\s*(lowpowermode|highpowermode|powermode)[ \t]+(\S+)\s*$", re.MULTILINE)
_DRAWING = re.compile(r"^Now drawing from '([^'\n]*)'", re.MULTILINE)
_BATTERY = re.compile(r"^\s*-InternalBattery-[0-9]+[^\n%]*?\b([0-9]{1,3})%(?![^\n]*present: false)", re.MULTILINE)
_SPEED = re.compile(r"^\s*CPU_Speed_Limit\s*=\s*([0-9]{1,3})\s*$", re.MULTILINE)
_WARNING = re.compile(r"^.*\bThermal Warning Level\s*[=:]\s*([0-9]{1,3})\s*$", re.MULTILINE | re.IGNORECASE)
_NOTIFIED = re.compile(r"^com\.apple\.system\.thermalpressurelevel\s+([0-9]{1,3})\s*$", re.MULTILINE)
_SWAP = re.compile(r"\bused = ([0-9]{1,9}(?:\.[0-9]{1,4})?)([KMGT])\b")
_NAMED = re.compile(r"^([a-z][A-Za-z0-9_.]*): (.+?)\s*$", re.MULTILINE)
_PAGE_SIZE = re.compile(r"\(page size of ([0-9]{4,6}) bytes\)")
_PAGES = re.compile(r"^\"?([A-Z][A-Za-z -]*?)\"?:\s+([0-9]{1,18})\.?\s*$", re.MULTILINE)


def power_mode_in_use(text: str) -> Reading[PowerMode]:
    """Return the power mode in `pmset -g`, which lists the settings of the source in use."""
    return _power_mode(text, "pmset -g")


def power_mode_of(text: str, source: PowerSource) -> Reading[PowerMode]:
    """Return the power mode in `pmset -g custom`, which has a section for each power source.

    Args:
        text: What pmset wrote.
        source: The source in use.
    """
    header = _SECTIONS.get(source)
    if header is None:
        return no_state("the power source in use is not known")
    section: list[str] = []
    inside = False
    for line in text.splitlines():
        if line[:1].strip():
            inside = line.strip() == header
        elif inside:
            section.append(line)
    return _power_mode("\n".join(section), f"pmset -g custom, {header[:-1]}")


def _power_mode(text: str, source: str) -> Reading[PowerMode]:
    """Read `powermode` (0 automatic, 1 low, 2 high), else the older `lowpowermode` and `highpowermode`."""
    values: dict[str, set[str]] = {}
    for key, value in _SETTING.findall(text):
        values.setdefault(key, set()).add(value)
    if any(len(found) > 1 for found in values.values()):
        return no_state(f"{source} contradicts itself")
    settings = {key: found.pop() for key, found in values.items()}
    if "powermode" in settings:
        mode = _MODES.get(settings["powermode"])
        return Reading(mode, f"{source}: powermode") if mode else no_state(f"{source}: a powermode that is not known")
    low, high = settings.get("lowpowermode"), settings.get("highpowermode", "0")
    older: dict[tuple[str | None, str], PowerMode] = {
        ("0", "0"): "automatic",
        ("1", "0"): "low",
        ("0", "1"): "high",
        (None, "1"): "high",
    }
    mode = older.get((low, high))
    if mode:
        return Reading(mode, f"{source}: {'highpowermode' if mode == 'high' else 'lowpowermode'}")
    return no_state(f"{source}: {'values that are not known' if settings else 'neither powermode nor lowpowermode'}")


def power_source(text: str) -> Reading[PowerSource]:
    """Return the power source in `pmset -g batt`. A UPS that is drawn from counts as a battery."""
    named = set(_DRAWING.findall(text))
    if len(named) != 1:
        return no_state("pmset -g batt names no power source" if not named else "pmset -g batt contradicts itself")
    source = _SOURCES.get(named.pop())
    return Reading(source, "pmset -g batt") if source else no_state("pmset -g batt names a source that is not known")


def battery_charge(text: str) -> Reading[float | None]:
    """Return the charge of the Mac's own battery in `pmset -g batt`, 0 to 1; a UPS's is not taken for it."""
    found = _BATTERY.search(text)
    if found is None:
        return no_number("pmset -g batt lists no battery")
    percent = int(found[1])
    return Reading(percent / 100, "pmset -g batt") if percent <= 100 else no_number("pmset -g batt: more than 100 %")


def thermal_of_level(level: int, source: str) -> Reading[ThermalState]:
    """Return what a thermal pressure level of macOS means.

    0 nominal; 1 moderate: `fair`; 2 heavy, from which on a Mac is slowed down: `serious`; 3 trapping and 4 sleeping:
    `critical`. `ProcessInfo.thermalState` is milder: it calls heavy "fair" and trapping "serious".
    """
    state = _LEVELS.get(level)
    return Reading(state, source) if state else no_state(f"{source}: a level that is not known")


def thermal_notified(text: str) -> Reading[ThermalState]:
    """Return the thermal state in `notifyutil -g com.apple.system.thermalpressurelevel`."""
    found = _NOTIFIED.search(text)
    if found is None:
        return no_state("notifyutil shows no thermal pressure level")
    return thermal_of_level(int(found[1]), "notifyutil: thermalpressurelevel")


def thermal_recorded(text: str) -> Reading[ThermalState]:
    """Return the thermal state in `pmset -g therm`: the worse of warning level and speed limit, as far as recorded.

    A processor that may run at more than half its speed is `fair`, below that `serious`. That nothing has been recorded
    means nothing: Apple silicon records nothing even while it is slowed down.
    """
    found: list[ThermalState] = []
    speeds, warnings = _SPEED.findall(text), _WARNING.findall(text)
    if speeds:
        speed = int(speeds[-1])
        found.append("nominal" if speed >= 100 else "fair" if speed > 50 else "serious")
    if warnings:
        warned = _WARNINGS.get(int(warnings[-1]))
        if warned is None:
            return no_state("pmset -g therm: a warning level that is not known")
        found.append(warned)
    if not found:
        return no_state("pmset -g therm has recorded nothing")
    return Reading(max(found, key=_SEVERITY.index), "pmset -g therm")


def sysctl_values(text: str) -> dict[str, str]:
    """Return the values in the output of `sysctl name...` by name."""
    return dict(_NAMED.findall(text))


def pressure_of_level(level: int, source: str) -> Reading[MemoryPressure]:
    """Return what kern.memorystatus_vm_pressure_level means: 1 normal, 2 warn, 4 critical; there is no 3."""
    pressure = _PRESSURES.get(level)
    return Reading(pressure, source) if pressure else no_state(f"{source}: a level that is not known")


def swap_used(value: str) -> Reading[int | None]:
    """Return the bytes of swap used in the value of vm.swapusage."""
    found = _SWAP.search(value)
    if found is None:
        return no_number("vm.swapusage could not be read")
    return Reading(round(float(found[1]) * _UNITS[found[2]]), "sysctl vm.swapusage")


def page_bytes(text: str) -> dict[str, int]:
    """Return the rows of `vm_stat` in bytes, by name; empty if it does not tell the size of a page."""
    size = _PAGE_SIZE.search(text)
    if size is None:
        return {}
    return {name: int(pages) * int(size[1]) for name, pages in _PAGES.findall(text)}


def page_total(rows: dict[str, int], *names: str) -> Reading[int | None]:
    """Return the sum of rows of `vm_stat`, unknown if one of them is missing."""
    if any(name not in rows for name in names):
        return no_number("vm_stat lacks a row or the size of a page")
    return Reading(sum(rows[name] for name in names), f"vm_stat: {', '.join(names)}")
