"""Folders that look like the /proc and /sys of some Linux machines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

KIB = 1024
MIB = 1024**2
GIB = 1024**3

MEMINFO = """MemTotal:       16303428 kB
MemFree:          412340 kB
MemAvailable:    8151714 kB
Buffers:           35040 kB
SwapTotal:       2097148 kB
SwapFree:        1048574 kB
HugePages_Total:       0
"""
VMSTAT = "nr_free_pages 103085\npgpgin 900000\npgpgout 800000\npswpin 1000\npswpout 2500\n"
CALM = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
LAPTOP = {
    "sys/class/power_supply/AC/type": "Mains\n",
    "sys/class/power_supply/AC/online": "1\n",
    "sys/class/power_supply/BAT0/type": "Battery\n",
    "sys/class/power_supply/BAT0/status": "Charging\n",
    "sys/class/power_supply/BAT0/capacity": "64\n",
    "sys/class/power_supply/hidpp_battery_0/type": "Battery\n",
    "sys/class/power_supply/hidpp_battery_0/scope": "Device\n",
    "sys/class/power_supply/hidpp_battery_0/status": "Discharging\n",
    "sys/class/power_supply/hidpp_battery_0/capacity": "5\n",
    "sys/firmware/acpi/platform_profile": "balanced\n",
    "sys/class/thermal/thermal_zone0/type": "x86_pkg_temp\n",
    "sys/class/thermal/thermal_zone0/temp": "54000\n",
    "sys/class/thermal/thermal_zone0/trip_point_0_type": "active\n",
    "sys/class/thermal/thermal_zone0/trip_point_0_temp": "60000\n",
    "sys/class/thermal/thermal_zone0/trip_point_1_type": "passive\n",
    "sys/class/thermal/thermal_zone0/trip_point_1_temp": "95000\n",
    "sys/class/thermal/thermal_zone0/trip_point_2_type": "critical\n",
    "sys/class/thermal/thermal_zone0/trip_point_2_temp": "105000\n",
    "proc/meminfo": MEMINFO,
    "proc/vmstat": VMSTAT,
    "proc/pressure/memory": CALM,
    "proc/self/cgroup": "0::/\n",
}
"""A laptop on mains, with a wireless mouse whose battery is nearly empty."""

IN_A_CONTAINER = {
    "proc/self/cgroup": "0::/batch/job\n",
    "proc/self/mountinfo": (
        "23 30 0:22 / /proc rw,nosuid - proc proc rw\n"
        "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
    ),
}


def build(root: Path, *files: Mapping[str, str]) -> str:
    """Write these files below a root, later ones over earlier ones, and return the root."""
    for path, text in {name: text for some in files for name, text in some.items()}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return str(root)
