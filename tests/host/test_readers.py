"""The reader of each system."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from otel_specdecode.host import macos_native
from otel_specdecode.host.linux import LinuxReader
from otel_specdecode.host.macos import MacReader
from otel_specdecode.host.readers import UnknownReader, reader_for
from tests.host.captures import FakeMac
from tests.host.machines import LAPTOP, build


def test_each_system_has_its_reader() -> None:
    assert isinstance(reader_for("darwin"), MacReader)
    assert isinstance(reader_for("linux"), LinuxReader)
    assert isinstance(reader_for("win32"), UnknownReader)


def test_on_another_system_everything_is_unknown_and_says_so() -> None:
    readings = reader_for("freebsd15").read().readings()
    assert {reading.why_unknown for reading in readings.values()} == {"there is no reader for freebsd15"}


def test_a_linux_machine_is_read_below_a_root(tmp_path: Path) -> None:
    assert reader_for("linux", root=build(tmp_path, LAPTOP)).read().battery_charge.value == 0.64


def test_a_captured_mac_is_read_from_its_capture_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a Mac too: nothing of the machine that replays it gets in."""
    monkeypatch.setattr(macos_native, "sysctl_number", lambda _: 1)
    monkeypatch.setattr(macos_native, "thermal_pressure_level", lambda: 0)
    reader = reader_for("darwin", run=FakeMac("sysctl/m2-max", "notifyutil/heavy"))
    assert reader.read().thermal_state.value == "serious"
    assert reader.read().memory_limit.value == 68719476736


@pytest.mark.skipif(sys.platform not in {"linux", "darwin"}, reason="no reader for this system")
def test_this_machine_tells_its_memory() -> None:
    limit = reader_for().read().memory_limit.value
    assert limit is not None
    assert limit > 2**28
