"""A whole report, of what each part is handed."""

from __future__ import annotations

import pytest

from otel_specdecode.doctor import gather as gathering
from otel_specdecode.doctor.gather import gather
from otel_specdecode.doctor.pair import Question
from otel_specdecode.host.state import HostState, unknown_host


class CountingReader:
    """Knows nothing, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def read(self) -> HostState:
        self.asked += 1
        return unknown_host("nobody looked")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> CountingReader:
    """No engine, endpoint or port is asked; the host is the reader that is returned."""
    reader = CountingReader()
    monkeypatch.setattr(gathering, "reader_for", lambda: reader)
    for name in ("engine_checks", "neighbour_checks"):
        monkeypatch.setattr(gathering, name, list)
    for name in ("telemetry_checks", "pair_checks"):
        monkeypatch.setattr(gathering, name, lambda _: [])
    return reader


def test_the_host_is_read_once_as_counters_need_seconds_between_two_readings(quick: CountingReader) -> None:
    gather()
    assert quick.asked == 1


def test_the_sections_come_in_the_order_in_which_they_are_shown() -> None:
    names = ["machine", "engines", "host", "telemetry", "neighbours"]
    assert [section.id for section in gather().sections] == names
    assert [section.id for section in gather(Question("x")).sections] == [*names, "pair"]


def test_a_part_that_cannot_be_gathered_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> list[object]:
        raise RuntimeError("/home/planted")

    monkeypatch.setattr(gathering, "engine_checks", broken)
    sections = {section.id: section.checks for section in gather().sections}
    assert [check.id for check in sections["engines"]] == ["engines.failed"]
    assert "planted" not in str(sections["engines"])
    assert len(sections["host"]) > 5
