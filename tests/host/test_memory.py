"""Resident memory of this process."""

from __future__ import annotations

import psutil
import pytest

from otel_specdecode.host import memory


def test_readings_are_in_bytes() -> None:
    """The current size is psutil's, and the lifetime peak is not below it by more than rounding."""
    assert memory.resident_bytes() == pytest.approx(psutil.Process().memory_info().rss, rel=0.1)
    peak = memory.peak_resident_bytes()
    assert peak is not None
    assert 10_000_000 < peak < 1_000_000_000_000
    assert peak >= 0.9 * memory.resident_bytes()


@pytest.mark.parametrize(("platform", "factor"), [("linux", 1024), ("darwin", 1)])
def test_units_of_the_system(platform: str, factor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """getrusage reports kibibytes on Linux, bytes on macOS."""
    resource = pytest.importorskip("resource", reason="no getrusage on this system")
    monkeypatch.setattr(memory.sys, "platform", platform)
    monkeypatch.setattr(resource, "getrusage", lambda _: type("Usage", (), {"ru_maxrss": 5_000}))
    assert memory.peak_resident_bytes() == 5_000 * factor


def test_no_peak_where_the_system_keeps_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows keeps no such mark in getrusage: None, never an invented number."""
    monkeypatch.setattr(memory.sys, "platform", "win32")
    assert memory.peak_resident_bytes() is None
