"""A reading says where it came from or why it is unknown, never both and never neither."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from otel_specdecode.host.state import STATES, Reading, guarded, no_number, no_state, unknown_host


@pytest.mark.parametrize(
    "contradiction",
    [
        {"value": "low"},
        {"value": 5, "why_unknown": "no file"},
        {"value": 5, "source": "file", "why_unknown": "no file"},
        {"value": None, "source": "file"},
        {"value": "unknown"},
        {"value": None},
    ],
)
def test_a_reading_that_contradicts_itself_cannot_be_made(contradiction: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a known value has a source"):
        Reading(**contradiction)


def test_zero_is_a_known_value() -> None:
    assert Reading(0, "file").known
    assert Reading(0.0, "file").known


def test_of_an_unknown_host_nothing_is_known_and_every_value_says_why() -> None:
    readings = unknown_host("not read yet").readings()
    assert len(readings) == 10
    assert {(reading.known, reading.why_unknown) for reading in readings.values()} == {(False, "not read yet")}
    assert {readings[name].value for name in STATES} == {"unknown"}
    assert {reading.value for name, reading in readings.items() if name not in STATES} == {None}


def test_every_enum_has_unknown_as_a_member() -> None:
    assert STATES == {
        "power_mode": ("low", "automatic", "high", "unknown"),
        "power_source": ("ac", "battery", "unknown"),
        "thermal_state": ("nominal", "fair", "serious", "critical", "unknown"),
        "memory_pressure": ("normal", "warn", "critical", "unknown"),
    }


def test_a_read_that_raises_is_unknown_and_its_message_is_not_told() -> None:
    def read() -> Reading[None]:
        raise ValueError("/home/someone")

    assert guarded(read, no_number) == no_number("reading it failed (ValueError)")


def test_readings_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        no_state("no file").value = "low"  # type: ignore[misc, assignment]
