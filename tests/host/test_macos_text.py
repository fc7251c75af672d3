"""What macOS's commands write: every captured output has its documented value, and a spoiled one no wrong one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_specdecode.host import macos_text as text
from otel_specdecode.host.state import STATES, Reading, no_number, no_state
from tests.host.captures import all_captured, captured, spoiled

GIB = 1024**3


@pytest.mark.parametrize(
    ("name", "mode", "said"),
    [
        ("pmset-g/powermode-high", "high", "pmset -g: powermode"),
        ("pmset-g/both-keys-low", "low", "pmset -g: powermode"),
        ("pmset-g/lowpowermode-off", "automatic", "pmset -g: lowpowermode"),
        ("pmset-g/no-key", "unknown", "pmset -g: neither powermode nor lowpowermode"),
    ],
)
def test_the_power_mode_in_use(name: str, mode: str, said: str) -> None:
    reading = text.power_mode_in_use(captured(name))
    assert (reading.value, reading.source or reading.why_unknown) == (mode, said)


@pytest.mark.parametrize(
    ("name", "source", "mode"),
    [
        ("pmset-custom/battery-low-mains-high", "battery", "low"),
        ("pmset-custom/battery-low-mains-high", "ac", "high"),
        ("pmset-custom/lowpowermode-on-battery", "battery", "low"),
        ("pmset-custom/lowpowermode-on-battery", "ac", "automatic"),
        ("pmset-custom/low-and-high-keys", "battery", "low"),
        ("pmset-custom/low-and-high-keys", "ac", "high"),
        ("pmset-custom/desktop-with-ups", "ac", "automatic"),
        ("pmset-custom/desktop-with-ups", "battery", "unknown"),
        ("pmset-custom/battery-low-mains-high", "unknown", "unknown"),
    ],
)
def test_the_power_mode_of_a_source(name: str, source: Any, mode: str) -> None:
    assert text.power_mode_of(captured(name), source).value == mode


@pytest.mark.parametrize(
    ("lines", "mode", "why"),
    [
        (" powermode 0\n lowpowermode 1", "automatic", ""),
        (" powermode 3\n lowpowermode 1", "unknown", "pmset -g: a powermode that is not known"),
        (" powermode off", "unknown", "pmset -g: a powermode that is not known"),
        (" powermode 1\n powermode 2", "unknown", "pmset -g contradicts itself"),
        (" powermode 1\n powermode 1", "low", ""),
        (" lowpowermode 1\n highpowermode 1", "unknown", "pmset -g: values that are not known"),
        (" lowpowermode 2", "unknown", "pmset -g: values that are not known"),
        (" highpowermode 0", "unknown", "pmset -g: values that are not known"),
        (" highpowermode 1", "high", ""),
        (" lowpowermode", "unknown", "pmset -g: neither powermode nor lowpowermode"),
        ("", "unknown", "pmset -g: neither powermode nor lowpowermode"),
    ],
)
def test_a_power_mode_is_never_guessed(lines: str, mode: str, why: str) -> None:
    """The newer key counts where both are there; a value that nobody knows is no reason to look at the older one."""
    reading = text.power_mode_in_use(lines)
    assert (reading.value, reading.why_unknown) == (mode, why)


@pytest.mark.parametrize(
    ("name", "source", "charge"),
    [
        ("pmset-batt/mains-not-charging", "ac", 0.80),
        ("pmset-batt/mains-charging", "ac", 0.33),
        ("pmset-batt/mains-charged", "ac", 1.00),
        ("pmset-batt/battery", "battery", 0.87),
        ("pmset-batt/desktop", "ac", None),
        ("pmset-batt/ups", "battery", None),
    ],
)
def test_power_source_and_charge(name: str, source: str, charge: float | None) -> None:
    """A UPS that is drawn from is a battery, but its charge is not the Mac's."""
    assert text.power_source(captured(name)).value == source
    assert text.battery_charge(captured(name)).value == charge


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "pmset -g batt names no power source"),
        ("Es wird Strom von 'Netzstrom' bezogen", "pmset -g batt names no power source"),
        ("Now drawing from 'Something New'", "pmset -g batt names a source that is not known"),
        ("Now drawing from 'AC Power'\nNow drawing from 'Battery Power'", "pmset -g batt contradicts itself"),
    ],
)
def test_a_power_source_is_never_guessed(line: str, why: str) -> None:
    assert text.power_source(line) == no_state(why)


@pytest.mark.parametrize(
    "line",
    [
        " -InternalBattery-0 (id=1)\t180%; charging; present: true",
        " -InternalBattery-0 (id=1)\t80%; charging; present: false",
        " -InternalBattery-0 (id=1)\t(no estimate)",
        " -Back-UPS ES 700 (id=1)\t87%; discharging",
    ],
)
def test_a_charge_that_cannot_be_is_unknown(line: str) -> None:
    assert text.battery_charge(f"Now drawing from 'AC Power'\n{line}\n").value is None


@pytest.mark.parametrize(
    ("name", "state"),
    [("notifyutil/nominal", "nominal"), ("notifyutil/moderate", "fair"), ("notifyutil/heavy", "serious")],
)
def test_the_thermal_pressure_that_is_notified(name: str, state: str) -> None:
    assert text.thermal_notified(captured(name)).value == state


@pytest.mark.parametrize(
    ("level", "state"),
    [(0, "nominal"), (1, "fair"), (2, "serious"), (3, "critical"), (4, "critical"), (5, "unknown"), (20, "unknown")],
)
def test_the_levels_of_thermal_pressure(level: int, state: str) -> None:
    """iOS counts in tens; such a number is no level of a Mac."""
    assert text.thermal_of_level(level, "notify").value == state


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("pmset-therm/apple-silicon", "unknown"),
        ("pmset-therm/intel-nominal", "nominal"),
        ("pmset-therm/intel-limited", "fair"),
        ("pmset-therm/intel-throttled", "serious"),
    ],
)
def test_the_heat_that_pmset_recorded(name: str, state: str) -> None:
    """Apple silicon records nothing even when it is slowed down, so nothing recorded is not `nominal`."""
    assert text.thermal_recorded(captured(name)).value == state


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ("2026-08-20 13:11:08 +0700 Thermal Warning Level = 5", "serious"),
        ("Thermal Warning Level = 0", "nominal"),
        ("Thermal Warning Level = 10", "critical"),
        ("Thermal Warning Level = 110", "critical"),
        ("thermal warning level: 100", "serious"),
        ("Thermal Warning Level = 1", "unknown"),
        ("Thermal Warning Level = 255", "unknown"),
        ("Thermal Warning Level = 0\n\tCPU_Speed_Limit \t= 40", "serious"),
        ("\tCPU_Speed_Limit \t= 40\n\tCPU_Speed_Limit \t= 100", "nominal"),
        ("Error: No thermal warning level with error code 0xe00002bc", "unknown"),
        ("", "unknown"),
    ],
)
def test_warning_levels_and_speed_limits(line: str, state: str) -> None:
    """The worse of both counts, and of several records the last."""
    assert text.thermal_recorded(line).value == state


@pytest.mark.parametrize(
    ("name", "level", "swap", "memory"),
    [
        ("sysctl/m2-max", "normal", round(512.25 * 1024**2), 64 * GIB),
        ("sysctl/m1-short-of-memory", "warn", round(5674.56 * 1024**2), 16 * GIB),
        ("sysctl/intel", "normal", 0, 32 * GIB),
    ],
)
def test_values_of_sysctl(name: str, level: str, swap: int, memory: int) -> None:
    values = text.sysctl_values(captured(name))
    assert text.pressure_of_level(int(values["kern.memorystatus_vm_pressure_level"]), "sysctl").value == level
    assert text.swap_used(values["vm.swapusage"]) == Reading(swap, "sysctl vm.swapusage")
    assert int(values["hw.memsize"]) == memory


@pytest.mark.parametrize(
    ("level", "state"), [(1, "normal"), (2, "warn"), (4, "critical"), (3, "unknown"), (0, "unknown")]
)
def test_the_levels_of_memory_pressure(level: int, state: str) -> None:
    assert text.pressure_of_level(level, "sysctl").value == state


@pytest.mark.parametrize(
    ("value", "used"),
    [
        ("total = 16.00G  used = 2.50G  free = 13.50G", round(2.5 * GIB)),
        ("total = 6144,00M  used = 5192,50M  free = 951,50M", None),
        ("total = 6144.00M", None),
        ("used = 5M2", None),
        ("", None),
    ],
)
def test_units_of_swap(value: str, used: int | None) -> None:
    assert text.swap_used(value).value == used


@pytest.mark.parametrize(
    ("name", "swapped_in", "swapped_out", "available"),
    [
        ("vm_stat/m1", 42055680 * 16384, 46304874 * 16384, (3588 + 1466 + 346811) * 16384),
        ("vm_stat/macos26", 1024615 * 16384, 3028624 * 16384, (4604 + 5899 + 398262) * 16384),
    ],
)
def test_rows_of_vm_stat(name: str, swapped_in: int, swapped_out: int, available: int) -> None:
    """Swapins, not Pageins: those count what is read from mapped files, as when a model is loaded."""
    rows = text.page_bytes(captured(name))
    assert text.page_total(rows, "Swapins").value == swapped_in
    assert text.page_total(rows, "Swapouts").value == swapped_out
    assert text.page_total(rows, "Pages free", "Pages speculative", "Pages inactive").value == available
    assert rows["Translation faults"] > 0


def test_without_the_size_of_a_page_nothing_is_known() -> None:
    rows = text.page_bytes(captured("vm_stat/m1").replace("page size of 16384", "Seitengrösse 16384"))
    assert text.page_total(rows, "Swapins") == no_number("vm_stat lacks a row or the size of a page")


def test_an_intel_mac_has_smaller_pages() -> None:
    rows = text.page_bytes(captured("vm_stat/m1").replace("16384", "4096"))
    assert rows["Swapins"] == 42055680 * 4096


def _swaps(written: str) -> list[Reading[Any]]:
    rows = text.page_bytes(written)
    return [text.page_total(rows, "Swapins"), text.page_total(rows, "Swapouts", "Pages free")]


def _sysctls(written: str) -> list[Reading[Any]]:
    return [text.swap_used(text.sysctl_values(written).get("vm.swapusage", ""))]


PARSERS: dict[str, list[tuple[str, Callable[[str], list[Reading[Any]]]]]] = {
    "pmset-g": [("power_mode", lambda written: [text.power_mode_in_use(written)])],
    "pmset-custom": [
        ("power_mode", lambda written: [text.power_mode_of(written, "ac"), text.power_mode_of(written, "battery")])
    ],
    "pmset-batt": [
        ("power_source", lambda written: [text.power_source(written)]),
        ("share", lambda written: [text.battery_charge(written)]),
    ],
    "pmset-therm": [("thermal_state", lambda written: [text.thermal_recorded(written)])],
    "notifyutil": [("thermal_state", lambda written: [text.thermal_notified(written)])],
    "sysctl": [("bytes", _sysctls)],
    "vm_stat": [("bytes", _swaps)],
}
SPOILED = [
    (kind, parse, name)
    for folder, parsers in PARSERS.items()
    for kind, parse in parsers
    for name in all_captured(folder)
]


@pytest.mark.parametrize(("kind", "parse", "name"), SPOILED, ids=[f"{kind} of {name}" for kind, _, name in SPOILED])
@given(data=st.data())
def test_a_spoiled_output_never_raises_and_never_yields_what_cannot_be(
    kind: str, parse: Callable[[str], list[Reading[Any]]], name: str, data: st.DataObject
) -> None:
    for reading in parse(data.draw(spoiled(captured(name)))):
        if kind in STATES:
            assert reading.value in STATES[kind]
        elif reading.value is not None:
            assert 0 <= reading.value <= (1 if kind == "share" else 10**30)


@given(st.text())
def test_any_text_at_all_is_survived(written: str) -> None:
    for parsers in PARSERS.values():
        for _, parse in parsers:
            parse(written)
    text.sysctl_values(written)
