"""A Mac that is not there: captured texts through the real parsers, and what goes out under its name."""

from __future__ import annotations

import threading
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs the [demo] extra")

from otel_specdecode.demo.load.mac.host import PROFILE, Replay
from otel_specdecode.demo.load.mac.node import HOST, SERVICE, Node
from otel_specdecode.demo.load.mac.states import MIB, Story
from otel_specdecode.host import macos
from otel_specdecode.host.macos import MacReader
from otel_specdecode.host.process_memory import ProcessMemory
from otel_specdecode.host.state import STATES
from otel_specdecode.telemetry.listener import recorder
from otel_specdecode.telemetry.names import Attr, Metrics
from otel_specdecode.thresholds import thresholds
from tests.demo.load.received import names, series, values
from tests.otlp_receiver import Received, otlp_receiver

TEN_MINUTES = 600.0
GIB = 1024**3


class Clock:
    """Seconds, moved by hand."""

    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def read(at: float) -> dict[str, Any]:
    """What the real reader makes of the Mac so many seconds after the beginning of ten minutes."""
    clock = Clock()
    replay = Replay(TEN_MINUTES, clock)
    clock.now += at
    readings = MacReader(replay, None).read().readings()
    assert {name: each.why_unknown for name, each in readings.items() if not each.known} == {}
    return {name: each.value for name, each in readings.items()}


def test_each_state_is_what_its_name_says() -> None:
    states = {window.name: read((window.start + window.end) / 2) for window in Story(TEN_MINUTES).windows}
    shown = ("power_mode", "power_source", "thermal_state", "memory_pressure")
    assert {name: tuple(state[each] for each in shown) for name, state in states.items()} == {
        "normal": ("automatic", "ac", "nominal", "normal"),
        "low power": ("low", "battery", "nominal", "normal"),
        "hot": ("high", "ac", "serious", "normal"),
        "critical memory pressure": ("automatic", "ac", "fair", "critical"),
        "recovered": ("automatic", "ac", "nominal", "normal"),
    }


def test_the_states_fill_the_time_without_a_gap() -> None:
    windows = Story(TEN_MINUTES).windows
    assert windows[0].start == 0
    assert windows[-1].end == pytest.approx(TEN_MINUTES)
    assert [window.start for window in windows[1:]] == [window.end for window in windows[:-1]]


def test_every_alert_of_a_machine_has_what_it_waits_for() -> None:
    """In ten minutes, which is the default."""
    story, bounds = Story(TEN_MINUTES), thresholds()
    spans = {window.name: window.end - window.start for window in story.windows}
    assert spans["low power"] > bounds["states"]["low_power"]
    assert spans["hot"] > bounds["states"]["throttled"]
    assert spans["critical memory pressure"] > bounds["states"]["memory_pressure_critical"]
    begins, ends = (next(getattr(w, end) for w in story.windows if "critical" in w.name) for end in ("start", "end"))
    assert read(ends - 1)["swap_used"] - read(begins)["swap_used"] > bounds["swap"]["growth"]
    footprint = story.at(ends - 1).bytes_of("footprint")
    assert footprint / (16 * GIB) > bounds["memory"]["share_of_physical"]
    assert story.at(begins - 1).bytes_of("footprint") / (16 * GIB) < bounds["memory"]["share_of_physical"]


def test_what_only_grows_on_a_mac_only_grows_here() -> None:
    found = [read(at) for at in range(0, 601, 20)]
    for total in ("swapped_in", "swapped_out"):
        amounts = [each[total] for each in found]
        assert amounts == sorted(amounts)
        assert amounts[0] < amounts[-1]


def test_before_the_beginning_and_after_the_end_it_stands_still() -> None:
    story = Story(TEN_MINUTES)
    assert (story.at(-5).state, story.at(5000).state) == ("normal", "recovered")
    assert story.at(5000).values == story.at(TEN_MINUTES).values


def test_no_command_but_the_captured_ones_is_answered() -> None:
    replay = Replay(TEN_MINUTES)
    answered = {command for command in macos.COMMANDS if replay(*command).text}
    assert set(macos.COMMANDS) - answered == {macos.PMSET_CUSTOM_COMMAND, macos.PMSET_THERMAL_COMMAND}
    assert replay("/bin/ls").failure


def test_the_machine_is_a_mac_and_its_profile_says_that_it_is_synthetic() -> None:
    machine = Replay(TEN_MINUTES).machine()
    assert (machine.chip, machine.architecture, machine.os_name) == ("Apple M1", "arm64", "macOS")
    assert machine.memory_total == 16 * GIB
    assert machine.profile == PROFILE
    assert "synthetic" in PROFILE


def test_high_water_marks_do_not_fall() -> None:
    clock = Clock()
    replay = Replay(TEN_MINUTES, clock)
    clock.now += 479
    high = replay.memory()
    clock.now += 100
    assert replay.memory() == ProcessMemory(*(pytest.approx(size, abs=150 * MIB) for size in (2000 * MIB, 8700 * MIB)))
    assert replay.lifetime().footprint == high.footprint
    assert replay.allocator().peak >= replay.allocator().active > 0


@pytest.fixture(scope="module")
def received() -> Received:
    """All that a Mac of four seconds sent."""
    with otlp_receiver() as (url, received), pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        patch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
        patch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
        patch.setenv("OTEL_SERVICE_NAME", "of-the-real-one")
        patch.setenv("OTEL_RESOURCE_ATTRIBUTES", "host.name=of-the-real-one")
        node = Node(4.0, 1, url)
        hot = Metrics.SPECDECODE_HOST_THERMAL_STATE_TIME.name
        received.wait_for(lambda r: _seconds(r, hot, "serious") > 0.5)
        received.wait_for(lambda r: node.replay.moment().state == "recovered" and len(r.spans()) > 4)
        node.stop()
        recorder.drain(20)
        assert node.close()
        assert node.outlet.ended == node.outlet.sums.total().requests == len(received.spans())
        return received


def _seconds(received: Received, metric: str, state: str) -> float:
    return next((v for key, v in series(received, SERVICE, metric).items() if dict(key).get(_label(key)) == state), 0.0)


def _label(key: tuple[tuple[str, str], ...]) -> str:
    return key[0][0] if key else ""


def test_every_metric_of_machine_and_process_is_there(received: Received) -> None:
    wanted = {metric.name for metric in _host_metrics()}
    assert wanted - names(received, SERVICE) == set()
    assert Metrics.SPECDECODE_PROCESS_FOOTPRINT.name in wanted
    assert Metrics.HW_BATTERY_CHARGE.name in wanted


def _host_metrics() -> list[Any]:
    from otel_specdecode.telemetry.host_metrics import Watch, host_observers

    return list(host_observers(Watch()))


def test_every_state_of_the_story_was_counted_in_seconds(received: Received) -> None:
    for metric, members in (
        (Metrics.SPECDECODE_HOST_POWER_MODE_TIME, {"low", "automatic", "high"}),
        (Metrics.SPECDECODE_HOST_POWER_SOURCE_TIME, {"ac", "battery"}),
        (Metrics.SPECDECODE_HOST_THERMAL_STATE_TIME, {"nominal", "fair", "serious"}),
        (Metrics.SPECDECODE_HOST_MEMORY_PRESSURE_TIME, {"normal", "critical"}),
    ):
        found = series(received, SERVICE, metric.name)
        spent = {labels[0][1]: seconds for labels, seconds in found.items()}
        # A machine that is slow to read again leaves some seconds unknown.
        assert {member for member, seconds in spent.items() if seconds > 0.2} - {"unknown"} == members
        assert len(found) == len(next(members for name, members in STATES.items() if name in metric.name))


def test_the_readings_follow_the_states(received: Received) -> None:
    footprints = values(received, SERVICE, Metrics.SPECDECODE_PROCESS_FOOTPRINT.name)
    assert max(footprints) > 13 * GIB
    assert min(footprints) < 9 * GIB
    swap = values(received, SERVICE, Metrics.SYSTEM_PAGING_USAGE.name)
    assert max(swap) - min(swap) > thresholds()["swap"]["growth"]
    assert max(values(received, SERVICE, Metrics.SPECDECODE_HOST_SWAP_EPISODES.name)) == 1


def test_nobody_takes_it_for_this_machine(received: Received) -> None:
    for resource in received.resources().values():
        assert resource["service.name"] == SERVICE
        assert resource["host.name"] == HOST == "synthetic-mac"
        assert resource["os.type"] == "darwin"
        assert resource["specdecode.machine_profile"] == PROFILE
    for span in received.spans():
        assert span.attributes[Attr.GEN_AI_REQUEST_MODEL].startswith("synthetic-")
        assert span.attributes[Attr.SPECDECODE_MACHINE_PROFILE] == PROFILE


def test_its_requests_carry_its_readings(received: Received) -> None:
    spans = received.spans()
    assert {span.attributes[Attr.SPECDECODE_MODE] for span in spans} == {"autoregressive", "speculative"}
    assert {span.attributes[Attr.SPECDECODE_HOST_POWER_MODE] for span in spans} & {"low", "high"}
    assert all(span.attributes[Attr.SPECDECODE_PROCESS_PEAK_FOOTPRINT] > 8 * GIB for span in spans)


def test_nothing_of_it_goes_on(received: Received) -> None:
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("demo-load")]
