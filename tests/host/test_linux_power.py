"""Power of a Linux machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_specdecode.host.linux_files import Files
from otel_specdecode.host.linux_power import battery_charge, power_mode, power_source
from tests.host.machines import build

PROFILE = "sys/firmware/acpi/platform_profile"
FREQUENCY = "sys/devices/system/cpu/cpu0/cpufreq"
SUPPLIES = "sys/class/power_supply"


def supply(name: str, **facts: str) -> dict[str, str]:
    """The files of one power supply."""
    return {f"{SUPPLIES}/{name}/{fact}": f"{value}\n" for fact, value in facts.items()}


@pytest.mark.parametrize(
    ("profile", "mode"),
    [
        ("low-power", "low"),
        ("quiet", "low"),
        ("cool", "low"),
        ("balanced", "automatic"),
        ("balanced-performance", "automatic"),
        ("performance", "high"),
        ("custom", "unknown"),
        ("", "unknown"),
    ],
)
def test_the_platform_profile(tmp_path: Path, profile: str, mode: str) -> None:
    assert power_mode(Files(build(tmp_path, {PROFILE: f"{profile}\n"}))).value == mode


@pytest.mark.parametrize(
    ("governor", "preference", "mode"),
    [
        ("powersave", "power", "low"),
        ("powersave", "balance_performance", "automatic"),
        ("powersave", "performance", "high"),
        ("powersave", None, "low"),
        ("schedutil", None, "automatic"),
        ("performance", None, "high"),
        ("userspace", None, "unknown"),
    ],
)
def test_the_frequency_governor(tmp_path: Path, governor: str, preference: str | None, mode: str) -> None:
    """Where the processor chooses by a preference, the governor `powersave` is the ordinary one and means nothing."""
    files = {f"{FREQUENCY}/scaling_governor": governor}
    if preference:
        files[f"{FREQUENCY}/energy_performance_preference"] = preference
    assert power_mode(Files(build(tmp_path, files))).value == mode


def test_the_platform_profile_comes_before_the_governor(tmp_path: Path) -> None:
    files = {PROFILE: "low-power", f"{FREQUENCY}/scaling_governor": "performance"}
    assert power_mode(Files(build(tmp_path, files))).value == "low"


@pytest.mark.parametrize(
    ("supplies", "source"),
    [
        ([supply("AC", type="Mains", online="1")], "ac"),
        ([supply("AC", type="Mains", online="0"), supply("BAT0", type="Battery", status="Discharging")], "battery"),
        ([supply("AC", type="Mains", online="1"), supply("BAT0", type="Battery", status="Discharging")], "ac"),
        ([supply("ADP1", type="USB", online="1"), supply("BAT0", type="Battery", status="Charging")], "ac"),
        ([supply("BAT0", type="Battery", status="Full")], "ac"),
        ([supply("BAT0", type="Battery", status="Unknown")], "unknown"),
        ([supply("AC", type="Mains", online="0"), supply("BAT0", type="Battery", status="Unknown")], "battery"),
        ([supply("AC", type="Mains", online="0")], "unknown"),
        ([supply("mouse", type="Battery", scope="Device", status="Discharging")], "unknown"),
        ([], "unknown"),
    ],
)
def test_the_power_source(tmp_path: Path, supplies: list[dict[str, str]], source: str) -> None:
    """A battery that discharges beside mains, because they are weak, is not what runs the machine."""
    assert power_source(Files(build(tmp_path, *supplies))).value == source


@pytest.mark.parametrize(
    ("chassis", "product", "source"),
    [
        ("3", "OptiPlex 7090", "ac"),
        ("23", "PowerEdge R650", "ac"),
        ("35", None, "ac"),
        ("10", "ThinkPad T14", "unknown"),  # a notebook whose battery is out
        ("1", "KVM", "unknown"),
        ("3", "Virtual Machine", "unknown"),
        ("desktop", "OptiPlex 7090", "unknown"),
        (None, "OptiPlex 7090", "unknown"),
    ],
)
def test_a_machine_without_any_supply_draws_from_mains_if_its_enclosure_stands_at_a_socket(
    tmp_path: Path, chassis: str | None, product: str | None, source: str
) -> None:
    told = {"chassis_type": chassis, "product_name": product}
    files = {f"sys/class/dmi/id/{name}": text for name, text in told.items() if text is not None}
    mouse = supply("mouse", type="Battery", scope="Device", status="Discharging")
    assert power_source(Files(build(tmp_path, files, mouse))).value == source


def test_a_battery_is_believed_before_an_enclosure(tmp_path: Path) -> None:
    battery = supply("BAT0", type="Battery", status="Discharging")
    assert power_source(Files(build(tmp_path, {"sys/class/dmi/id/chassis_type": "3"}, battery))).value == "battery"


@pytest.mark.parametrize(
    ("capacities", "charge"),
    [(["50"], 0.5), (["40", "80"], 0.6), (["101"], None), (["50", "full"], None), ([], None), (["0"], 0.0)],
)
def test_the_charge_of_the_batteries(tmp_path: Path, capacities: list[str], charge: float | None) -> None:
    batteries = [supply(f"BAT{i}", type="Battery", capacity=capacity) for i, capacity in enumerate(capacities)]
    assert battery_charge(Files(build(tmp_path, *batteries))).value == (
        None if charge is None else pytest.approx(charge)
    )
