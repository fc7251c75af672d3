"""Heat of a Linux machine: only what the kernel or the processor does about it makes a state."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_specdecode.host.linux_files import Files
from otel_specdecode.host.linux_thermal import ThermalWatch
from tests.host.machines import build


def zone(number: int, kind: str, temperature: str, *points: tuple[str, int]) -> dict[str, str]:
    """The files of one thermal zone."""
    folder = f"sys/class/thermal/thermal_zone{number}"
    files = {f"{folder}/type": f"{kind}\n", f"{folder}/temp": f"{temperature}\n"}
    for index, (point, trip) in enumerate(points):
        files[f"{folder}/trip_point_{index}_type"] = f"{point}\n"
        files[f"{folder}/trip_point_{index}_temp"] = f"{trip}\n"
    return files


def throttles(processor: int, core: int, package: int) -> dict[str, str]:
    """The throttle counters of one processor."""
    folder = f"sys/devices/system/cpu/cpu{processor}/thermal_throttle"
    return {f"{folder}/core_throttle_count": f"{core}\n", f"{folder}/package_throttle_count": f"{package}\n"}


POINTS = (("active", 60_000), ("passive", 85_000), ("hot", 95_000), ("critical", 100_000))


@pytest.mark.parametrize(
    ("temperature", "state"),
    [
        (45_000, "nominal"),
        (59_999, "nominal"),
        (60_000, "fair"),
        (85_000, "serious"),
        (95_000, "critical"),
        (110_000, "critical"),
        (-5_000, "nominal"),
    ],
)
def test_the_highest_trip_point_that_was_passed(tmp_path: Path, temperature: int, state: str) -> None:
    root = build(tmp_path, zone(0, "cpu-thermal", str(temperature), *POINTS))
    assert ThermalWatch(Files(root)).state().value == state


def test_the_hottest_of_several_zones_counts(tmp_path: Path) -> None:
    root = build(tmp_path, zone(0, "cpu0-thermal", "50000", *POINTS), zone(1, "gpu-thermal", "90000", *POINTS))
    assert ThermalWatch(Files(root)).state().value == "serious"


@pytest.mark.parametrize("kind", ["iwlwifi_1", "battery", "nvme", "skin-therm"])
def test_a_zone_of_something_else_says_nothing(tmp_path: Path, kind: str) -> None:
    root = build(tmp_path, zone(0, kind, "99000", *POINTS))
    assert ThermalWatch(Files(root)).state().why_unknown == "no trip points of the processor and no throttle counters"


@pytest.mark.parametrize(
    "points",
    [
        (),
        (("passive", -274_000),),
        (("passive", 0),),
        (("passive", 27_800),),
        (("active", 60_000),),
        (("fan", 60_000),),
    ],
    ids=["none", "switched off", "zero", "at an idle temperature", "only of a fan", "of a kind that is not known"],
)
def test_trip_points_that_say_nothing_about_speed(tmp_path: Path, points: tuple[tuple[str, int], ...]) -> None:
    """A temperature alone does not tell what a machine can bear."""
    root = build(tmp_path, zone(0, "x86_pkg_temp", "70000", *points))
    assert ThermalWatch(Files(root)).state().value == "unknown"


def test_a_temperature_that_cannot_be_read(tmp_path: Path) -> None:
    root = build(tmp_path, zone(0, "cpu-thermal", "nan", *POINTS))
    assert ThermalWatch(Files(root)).state().value == "unknown"


def test_throttle_counters_need_two_readings(tmp_path: Path) -> None:
    watch = ThermalWatch(Files(build(tmp_path, throttles(0, 5, 7), throttles(1, 0, 7))))
    assert watch.state().why_unknown == "throttle counters need two readings"
    assert watch.state().value == "nominal"
    build(tmp_path, throttles(1, 1, 7))
    assert watch.state().value == "serious"
    assert watch.state().value == "nominal"


def test_the_worse_of_trip_points_and_counters_counts(tmp_path: Path) -> None:
    watch = ThermalWatch(Files(build(tmp_path, zone(0, "acpitz", "50000", *POINTS), throttles(0, 0, 0))))
    assert watch.state().value == "nominal"
    build(tmp_path, throttles(0, 1, 0))
    reading = watch.state()
    assert (reading.value, reading.source) == (
        "serious",
        "/sys/class/thermal: trip points, thermal_throttle counters",
    )
