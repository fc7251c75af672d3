"""The machine and the process as metric points."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.metrics import CallbackOptions

from otel_specdecode.generation.observer import AllocatorMemory
from otel_specdecode.host.host import this_host
from otel_specdecode.host.machine import this_machine
from otel_specdecode.host.process_memory import LifetimePeaks, ProcessMemory
from otel_specdecode.host.state import STATES, HostState, unknown_host
from otel_specdecode.host.watcher import Totals, Watcher
from otel_specdecode.telemetry.host_metrics import UNWATCHED, Watch, host_observers
from otel_specdecode.telemetry.listener import Listener
from otel_specdecode.telemetry.names import Attr, Metric, Metrics
from otel_specdecode.testing.capture import Telemetry
from otel_specdecode.testing.checker import assert_conformant
from tests.host.states import host_state

PAGE = os.sysconf("SC_PAGE_SIZE")
HOT = host_state(
    power_mode="low",
    power_source="battery",
    battery_charge=0.33,
    thermal_state="serious",
    memory_pressure="warn",
    swap_used=512,
    swapped_in=3 * PAGE,
    swapped_out=5 * PAGE + 1,
    memory_available=2_000,
    memory_limit=8_000,
)
SECONDS = {name: {member: float(place) for place, member in enumerate(members)} for name, members in STATES.items()}


class FakeWatcher(Watcher):
    """A watcher whose state is set by hand; it notes what it is told."""

    def __init__(self, state: HostState) -> None:
        super().__init__()
        self.state = state
        self.told: list[str] = []

    def start(self) -> None:
        self.told.append("start")

    def stop(self, timeout: float = 5.0) -> bool:
        assert timeout == 0, "uninstrument() must not wait for a command"
        self.told.append("stop")
        return True

    def current(self) -> HostState:
        return self.state

    def totals(self) -> Totals:
        return Totals(SECONDS, 2, 7)


class Machine:
    """A machine and a process whose readings are set by hand."""

    def __init__(self) -> None:
        self.watcher = FakeWatcher(HOT)
        self.memory = ProcessMemory(70, 90)
        self.lifetime = LifetimePeaks(100, 120)
        self.watch = Watch(
            replace(this_host, watcher=self.watcher, memory=lambda: self.memory, lifetime=lambda: self.lifetime)
        )
        self._observers = host_observers(self.watch)

    def observed(self, metric: Metric) -> list[tuple[float, dict[str, Any]]]:
        """The values of a metric with their labels."""
        made = self._observers[metric](CallbackOptions())
        return [(each.value, dict(each.attributes or {})) for each in made]

    def all_observed(self) -> dict[str, list[tuple[float, dict[str, Any]]]]:
        """The values of all metrics, by name."""
        return {metric.name: self.observed(metric) for metric in self._observers}


@pytest.fixture
def machine() -> Machine:
    """A hot machine that nobody watches yet."""
    return Machine()


def test_of_every_state_one_is_1_and_all_others_are_0(machine: Machine) -> None:
    machine.watch.begin()
    assert machine.observed(Metrics.SPECDECODE_HOST_THERMAL_STATE_STATUS) == [
        (int(member == "serious"), {Attr.SPECDECODE_HOST_THERMAL_STATE: member})
        for member in ("nominal", "fair", "serious", "critical", "unknown")
    ]
    machine.watcher.state = unknown_host("nothing to read")
    assert [value for value, labels in machine.observed(Metrics.SPECDECODE_HOST_POWER_MODE_STATUS) if value] == [1]


def test_seconds_in_state_come_from_the_totals(machine: Machine) -> None:
    machine.watch.begin()
    assert machine.observed(Metrics.SPECDECODE_HOST_POWER_SOURCE_TIME) == [
        (0.0, {Attr.SPECDECODE_HOST_POWER_SOURCE: "ac"}),
        (1.0, {Attr.SPECDECODE_HOST_POWER_SOURCE: "battery"}),
        (2.0, {Attr.SPECDECODE_HOST_POWER_SOURCE: "unknown"}),
    ]


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (Metrics.SYSTEM_PAGING_USAGE, [(512, {Attr.SYSTEM_PAGING_STATE: "used"})]),
        (
            Metrics.SYSTEM_PAGING_OPERATIONS,
            [(3, {Attr.SYSTEM_PAGING_DIRECTION: "in"}), (5, {Attr.SYSTEM_PAGING_DIRECTION: "out"})],
        ),
        (Metrics.SPECDECODE_HOST_MEMORY_LIMIT, [(8_000, {})]),
        (Metrics.SYSTEM_MEMORY_LIMIT, [(this_machine().memory_total, {})]),
        (Metrics.SPECDECODE_HOST_MEMORY_AVAILABLE, [(2_000, {})]),
        (Metrics.HW_BATTERY_CHARGE, [(0.33, {Attr.HW_ID: "battery"})]),
        (Metrics.SPECDECODE_HOST_SWAP_EPISODES, [(2, {})]),
        (Metrics.PROCESS_MEMORY_USAGE, [(70, {})]),
        (Metrics.SPECDECODE_PROCESS_FOOTPRINT, [(90, {})]),
        (Metrics.SPECDECODE_PROCESS_PEAK_RSS_LIFETIME, [(100, {})]),
    ],
    ids=lambda value: value.name if isinstance(value, Metric) else "",
)
def test_each_number_under_its_name(
    machine: Machine, metric: Metric, expected: list[tuple[float, dict[str, str]]]
) -> None:
    machine.watch.begin()
    assert machine.observed(metric) == expected


def test_what_cannot_be_read_is_no_point_and_never_a_0(machine: Machine) -> None:
    machine.watch.begin()
    machine.watcher.state = unknown_host("nothing to read")
    machine.memory, machine.lifetime = ProcessMemory(None), LifetimePeaks(None, None)
    states = (".status", ".time", Metrics.SYSTEM_MEMORY_LIMIT.name)
    numbers = {name: values for name, values in machine.all_observed().items() if not name.endswith(states)}
    assert numbers == {name: [] for name in numbers} != {}


def test_while_nobody_watches_nothing_is_read_and_no_point_made(machine: Machine) -> None:
    assert not any(machine.all_observed().values())
    assert machine.watch.state() is UNWATCHED
    assert machine.watcher.told == []


def test_another_library_can_have_them_instead(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SPECDECODE_HOST_METRICS", "false")
    machine.watch.begin()
    assert not any(machine.all_observed().values())
    assert machine.watch.state() is HOT


def test_a_lifetime_mark_that_lags_behind_is_not_below_what_there_is(machine: Machine) -> None:
    machine.memory = ProcessMemory(101)
    machine.watch.begin()
    assert machine.observed(Metrics.SPECDECODE_PROCESS_PEAK_RSS_LIFETIME) == [(101, {})]


def test_the_machine_is_read_from_the_first_watcher_to_the_last(machine: Machine) -> None:
    machine.watch.begin()
    machine.watch.begin()
    machine.watch.end()
    assert machine.watch.state() is HOT
    assert machine.watcher.told == ["start", "start"]
    machine.watch.end()
    assert machine.watcher.told == ["start", "start", "stop"]
    assert machine.observed(Metrics.PROCESS_MEMORY_USAGE) == []


def test_the_allocator_of_an_engine_in_use(machine: Machine) -> None:
    machine.watch.begin()
    machine.watch.read_allocator("mlx", lambda: AllocatorMemory(active=5, cache=2, peak=9))
    machine.watch.read_allocator("another", lambda: None)
    assert machine.observed(Metrics.SPECDECODE_ENGINE_MEMORY_USAGE) == [
        (5, {Attr.GEN_AI_PROVIDER_NAME: "mlx", Attr.SPECDECODE_ENGINE_MEMORY_STATE: "active"}),
        (2, {Attr.GEN_AI_PROVIDER_NAME: "mlx", Attr.SPECDECODE_ENGINE_MEMORY_STATE: "cache"}),
    ]
    assert machine.observed(Metrics.SPECDECODE_ENGINE_MEMORY_PEAK) == [(9, {Attr.GEN_AI_PROVIDER_NAME: "mlx"})]


# On this machine


def value(telemetry: Telemetry, metric: Metric) -> float:
    """The one value of a metric."""
    (point,) = telemetry.points(metric.name)
    return point.value


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_real_process_and_machine(telemetry: Telemetry) -> None:
    """Against /proc, read here by other code."""
    telemetry.listener().admit()
    with open("/proc/self/status", encoding="ascii") as file:
        status = {key: rest.split() for key, _, rest in (line.partition(":") for line in file)}
    assert value(telemetry, Metrics.PROCESS_MEMORY_USAGE) == pytest.approx(int(status["VmRSS"][0]) * 1024, rel=0.05)
    peak = value(telemetry, Metrics.SPECDECODE_PROCESS_PEAK_RSS_LIFETIME)
    assert peak == pytest.approx(int(status["VmHWM"][0]) * 1024, rel=0.05)
    assert telemetry.points(Metrics.SPECDECODE_PROCESS_FOOTPRINT.name) == []


def test_machine_metrics_are_there_before_the_first_request_and_conform(telemetry: Telemetry) -> None:
    telemetry.listener().admit()
    names = {point.metric for point in telemetry.points()}
    assert {Metrics.PROCESS_MEMORY_USAGE.name, Metrics.SPECDECODE_HOST_THERMAL_STATE_TIME.name} <= names
    assert_conformant(metrics=telemetry.metrics_data())


def test_after_the_last_listener_is_closed_no_thread_reads_the_machine() -> None:
    watcher = Watcher()
    watch, made = Watch(replace(this_host, watcher=watcher)), Telemetry()
    providers = made.tracer_provider, made.meter_provider, made.logger_provider
    listeners = [Listener(*providers, watch=watch), Listener(*providers, watch=watch)]
    assert watcher._thread is None
    assert all(listener.admit() for listener in listeners)
    assert watcher._thread is not None
    listeners[0].close()
    assert watcher._thread is not None
    listeners[1].close()
    listeners[1].close()
    assert watcher._thread is None
    assert not [point for point in made.points() if point.metric.startswith("specdecode.host.")]
    assert listeners[0].admit() is None
    assert watcher._thread is None
    made.shutdown()
