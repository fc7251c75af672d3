"""The machine and the process as metric points, observed when metrics are collected."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

from opentelemetry.metrics import CallbackOptions, Observation

from otel_specdecode.generation.observer import AllocatorMemory
from otel_specdecode.host.machine import this_machine
from otel_specdecode.host.process_memory import lifetime_peaks, process_memory
from otel_specdecode.host.state import STATES, HostState, unknown_host
from otel_specdecode.host.watcher import host_watcher
from otel_specdecode.telemetry.names import Attr, Enum, Metric, Metrics

Observer = Callable[[CallbackOptions], Iterable[Observation]]
ReadsAllocator = Callable[[], AllocatorMemory | None]

BATTERY = "battery"
"""`hw.id` of the battery. Its own number would tell one machine from another."""

UNWATCHED = unknown_host("no engine is instrumented")

_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


HOST_METRICS = "OTEL_SPECDECODE_HOST_METRICS"
"""Environment variable: `false` for no metrics of machine and process; another library may have them already."""


class Watch:
    """Whether anybody instruments an engine here: only then is the machine read."""

    def __init__(self) -> None:
        """Start with nobody."""
        self._lock = threading.Lock()
        self._watchers = 0
        self._allocators: dict[str, ReadsAllocator] = {}

    @property
    def goes_on(self) -> bool:
        """Whether anybody watches."""
        return self._watchers > 0

    def begin(self) -> None:
        """Begin to read the machine, on a thread of its own."""
        with self._lock:
            self._watchers += 1
        host_watcher.start()

    def end(self) -> None:
        """Stop reading when the last one ends."""
        with self._lock:
            self._watchers -= 1
            last = self._watchers == 0
        if last:
            host_watcher.stop(timeout=0.0)  # it ends by itself; a command of its may still run

    def state(self) -> HostState:
        """Return the state of the machine as last read. Never waits; does not begin to read where nobody watches."""
        return host_watcher.current() if self.goes_on else UNWATCHED

    def read_allocator(self, provider: str, read: ReadsAllocator) -> None:
        """Observe the memory of an engine's allocator under the engine's provider name."""
        self._allocators[provider] = read

    def allocators(self) -> list[tuple[str, AllocatorMemory]]:
        """Return what the engines' allocators hold now, those of engines in use."""
        read = [(provider, read()) for provider, read in list(self._allocators.items())]
        return [(provider, memory) for provider, memory in read if memory is not None]


watch = Watch()
"""The watch of this process."""


def _while_watched(observe: Callable[[], Iterable[Observation]]) -> Observer:
    """Return a callback that observes nothing while nobody watches: instruments cannot be taken back."""

    def callback(_: CallbackOptions) -> Iterable[Observation]:
        return observe() if watch.goes_on and _wanted() else ()

    return callback


def _wanted() -> bool:
    return os.environ.get(HOST_METRICS, "").strip().lower() != "false"


def _status(name: str, attribute: str) -> Observer:
    def observe() -> Iterable[Observation]:
        value = getattr(host_watcher.current(), name).value
        return [Observation(int(value == member), {attribute: member}) for member in STATES[name]]

    return _while_watched(observe)


def _time(name: str, attribute: str) -> Observer:
    def observe() -> Iterable[Observation]:
        seconds = host_watcher.totals().seconds[name]
        return [Observation(spent, {attribute: member}) for member, spent in seconds.items()]

    return _while_watched(observe)


def _reading(name: str, **labels: str) -> Observer:
    def observe() -> Iterable[Observation]:
        return _known(getattr(host_watcher.current(), name).value, labels)

    return _while_watched(observe)


def _process(read: Callable[[], int | None]) -> Observer:
    return _while_watched(lambda: _known(read()))


def _known(value: float | None, labels: Mapping[str, str] | None = None) -> Sequence[Observation]:
    return [] if value is None else [Observation(value, labels)]


def _lifetime_peak() -> int | None:
    """Return the mark of the kernel, which comes a little late, or what there is now where that is more."""
    return max((value for value in (lifetime_peaks().resident, process_memory().resident) if value), default=None)


def _paging() -> Iterable[Observation]:
    state = host_watcher.current()
    moved = zip(Enum.SYSTEM_PAGING_DIRECTION, (state.swapped_in.value, state.swapped_out.value), strict=True)
    return [
        Observation(amount // _PAGE_SIZE, {Attr.SYSTEM_PAGING_DIRECTION: direction})
        for direction, amount in moved
        if amount is not None
    ]


def _swap_episodes() -> Iterable[Observation]:
    known = host_watcher.current().swapped_out.known
    return _known(host_watcher.totals().swap_episodes if known else None)


def _allocator_usage() -> Iterable[Observation]:
    return [
        Observation(amount, {Attr.GEN_AI_PROVIDER_NAME: provider, Attr.SPECDECODE_ENGINE_MEMORY_STATE: state})
        for provider, memory in watch.allocators()
        for state, amount in zip(Enum.SPECDECODE_ENGINE_MEMORY_STATE, (memory.active, memory.cache), strict=True)
    ]


def _allocator_peak() -> Iterable[Observation]:
    return [Observation(memory.peak, {Attr.GEN_AI_PROVIDER_NAME: provider}) for provider, memory in watch.allocators()]


HOST_OBSERVERS: dict[Metric, Observer] = {
    Metrics.SPECDECODE_HOST_POWER_MODE_STATUS: _status("power_mode", Attr.SPECDECODE_HOST_POWER_MODE),
    Metrics.SPECDECODE_HOST_POWER_MODE_TIME: _time("power_mode", Attr.SPECDECODE_HOST_POWER_MODE),
    Metrics.SPECDECODE_HOST_POWER_SOURCE_STATUS: _status("power_source", Attr.SPECDECODE_HOST_POWER_SOURCE),
    Metrics.SPECDECODE_HOST_POWER_SOURCE_TIME: _time("power_source", Attr.SPECDECODE_HOST_POWER_SOURCE),
    Metrics.SPECDECODE_HOST_THERMAL_STATE_STATUS: _status("thermal_state", Attr.SPECDECODE_HOST_THERMAL_STATE),
    Metrics.SPECDECODE_HOST_THERMAL_STATE_TIME: _time("thermal_state", Attr.SPECDECODE_HOST_THERMAL_STATE),
    Metrics.SPECDECODE_HOST_MEMORY_PRESSURE_STATUS: _status("memory_pressure", Attr.SPECDECODE_HOST_MEMORY_PRESSURE),
    Metrics.SPECDECODE_HOST_MEMORY_PRESSURE_TIME: _time("memory_pressure", Attr.SPECDECODE_HOST_MEMORY_PRESSURE),
    Metrics.SPECDECODE_HOST_SWAP_EPISODES: _while_watched(_swap_episodes),
    Metrics.SPECDECODE_HOST_MEMORY_AVAILABLE: _reading("memory_available"),
    Metrics.SPECDECODE_HOST_MEMORY_LIMIT: _reading("memory_limit"),
    Metrics.SYSTEM_MEMORY_LIMIT: _process(lambda: this_machine().memory_total),
    Metrics.SYSTEM_PAGING_USAGE: _reading("swap_used", **{Attr.SYSTEM_PAGING_STATE: Enum.SYSTEM_PAGING_STATE[0]}),
    Metrics.SYSTEM_PAGING_OPERATIONS: _while_watched(_paging),
    Metrics.HW_BATTERY_CHARGE: _reading("battery_charge", **{Attr.HW_ID: BATTERY}),
    Metrics.PROCESS_MEMORY_USAGE: _process(lambda: process_memory().resident),
    Metrics.SPECDECODE_PROCESS_FOOTPRINT: _process(lambda: process_memory().footprint),
    Metrics.SPECDECODE_PROCESS_PEAK_RSS_LIFETIME: _process(_lifetime_peak),
    Metrics.SPECDECODE_ENGINE_MEMORY_USAGE: _while_watched(_allocator_usage),
    Metrics.SPECDECODE_ENGINE_MEMORY_PEAK: _while_watched(_allocator_peak),
}
"""What observes each metric of the machine and the process."""
