"""The machine and the process as metric points, observed when metrics are collected."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from opentelemetry.metrics import CallbackOptions, Observation

from otel_specdecode.generation.observer import AllocatorMemory
from otel_specdecode.host.host import Host, this_host
from otel_specdecode.host.state import STATES, HostState, unknown_host
from otel_specdecode.telemetry.names import Attr, Enum, Metric, Metrics

Observe = Callable[[], Iterable[Observation]]
Observer = Callable[[CallbackOptions], Iterable[Observation]]
ReadsAllocator = Callable[[], AllocatorMemory | None]

BATTERY = "battery"
"""`hw.id` of the battery. Its own number would tell one machine from another."""

UNWATCHED = unknown_host("no engine is instrumented")

_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


HOST_METRICS = "OTEL_SPECDECODE_HOST_METRICS"
"""Environment variable: `false` for no metrics of machine and process; another library may have them already."""


class Watch:
    """Whether anybody instruments an engine here: only then is the machine read.

    Attributes:
        host: The machine and the process.
    """

    def __init__(self, host: Host = this_host) -> None:
        """Start with nobody.

        Args:
            host: What is watched.
        """
        self.host = host
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
        self.host.watcher.start()

    def end(self) -> None:
        """Stop reading when the last one ends."""
        with self._lock:
            self._watchers -= 1
            last = self._watchers == 0
        if last:
            self.host.watcher.stop(timeout=0.0)  # it ends by itself; a command of its may still run

    def state(self) -> HostState:
        """Return the state of the machine as last read. Never waits; does not begin to read where nobody watches."""
        return self.host.watcher.current() if self.goes_on else UNWATCHED

    def read_allocator(self, provider: str, read: ReadsAllocator) -> None:
        """Observe the memory of an engine's allocator under the engine's provider name."""
        self._allocators[provider] = read

    def allocators(self) -> list[tuple[str, AllocatorMemory]]:
        """Return what the engines' allocators hold now, those of engines in use."""
        read = [(provider, read()) for provider, read in list(self._allocators.items())]
        return [(provider, memory) for provider, memory in read if memory is not None]


watch = Watch()
"""The watch of this process."""


def host_observers(watch: Watch) -> dict[Metric, Observer]:
    """Return what observes each metric of a machine and a process, nothing while nobody watches."""
    host = watch.host

    def lifetime_peak() -> int | None:
        """Return the mark of the kernel, which comes a little late, or what there is now where that is more."""
        return max((each for each in (host.lifetime().resident, host.memory().resident) if each), default=None)

    observers: dict[Metric, Observe] = {
        **_states(watch),
        Metrics.SPECDECODE_HOST_SWAP_EPISODES: lambda: _swap_episodes(watch),
        Metrics.SPECDECODE_HOST_MEMORY_AVAILABLE: lambda: _known(host.watcher.current().memory_available.value),
        Metrics.SPECDECODE_HOST_MEMORY_LIMIT: lambda: _known(host.watcher.current().memory_limit.value),
        Metrics.SYSTEM_MEMORY_LIMIT: lambda: _known(host.machine().memory_total),
        Metrics.SYSTEM_PAGING_USAGE: lambda: _known(
            host.watcher.current().swap_used.value, {Attr.SYSTEM_PAGING_STATE: Enum.SYSTEM_PAGING_STATE[0]}
        ),
        Metrics.SYSTEM_PAGING_OPERATIONS: lambda: _paging(host.watcher.current()),
        Metrics.HW_BATTERY_CHARGE: lambda: _known(host.watcher.current().battery_charge.value, {Attr.HW_ID: BATTERY}),
        Metrics.PROCESS_MEMORY_USAGE: lambda: _known(host.memory().resident),
        Metrics.SPECDECODE_PROCESS_FOOTPRINT: lambda: _known(host.memory().footprint),
        Metrics.SPECDECODE_PROCESS_PEAK_RSS_LIFETIME: lambda: _known(lifetime_peak()),
        Metrics.SPECDECODE_ENGINE_MEMORY_USAGE: lambda: _allocator_usage(watch),
        Metrics.SPECDECODE_ENGINE_MEMORY_PEAK: lambda: _allocator_peak(watch),
    }
    return {metric: _while_watched(watch, observe) for metric, observe in observers.items()}


def _while_watched(watch: Watch, observe: Observe) -> Observer:
    """Return a callback that observes nothing while nobody watches: instruments cannot be taken back."""

    def callback(_: CallbackOptions) -> Iterable[Observation]:
        return observe() if watch.goes_on and _wanted() else ()

    return callback


def _wanted() -> bool:
    return os.environ.get(HOST_METRICS, "").strip().lower() != "false"


def _states(watch: Watch) -> dict[Metric, Observe]:
    """Return what observes every state: which one it is now, and the seconds in each so far."""
    found: dict[Metric, Observe] = {}
    for name, status, time, attribute in _STATE_METRICS:
        found[status] = partial(_status, watch, name, attribute)
        found[time] = partial(_time, watch, name, attribute)
    return found


def _status(watch: Watch, name: str, attribute: str) -> Iterable[Observation]:
    value = getattr(watch.host.watcher.current(), name).value
    return [Observation(int(value == member), {attribute: member}) for member in STATES[name]]


def _time(watch: Watch, name: str, attribute: str) -> Iterable[Observation]:
    seconds = watch.host.watcher.totals().seconds[name]
    return [Observation(spent, {attribute: member}) for member, spent in seconds.items()]


def _known(value: float | None, labels: Mapping[str, str] | None = None) -> Sequence[Observation]:
    return [] if value is None else [Observation(value, labels)]


def _paging(state: HostState) -> Iterable[Observation]:
    moved = zip(Enum.SYSTEM_PAGING_DIRECTION, (state.swapped_in.value, state.swapped_out.value), strict=True)
    return [
        Observation(amount // _PAGE_SIZE, {Attr.SYSTEM_PAGING_DIRECTION: direction})
        for direction, amount in moved
        if amount is not None
    ]


def _swap_episodes(watch: Watch) -> Iterable[Observation]:
    known = watch.host.watcher.current().swapped_out.known
    return _known(watch.host.watcher.totals().swap_episodes if known else None)


def _allocator_usage(watch: Watch) -> Iterable[Observation]:
    return [
        Observation(amount, {Attr.GEN_AI_PROVIDER_NAME: provider, Attr.SPECDECODE_ENGINE_MEMORY_STATE: state})
        for provider, memory in watch.allocators()
        for state, amount in zip(Enum.SPECDECODE_ENGINE_MEMORY_STATE, (memory.active, memory.cache), strict=True)
    ]


def _allocator_peak(watch: Watch) -> Iterable[Observation]:
    return [Observation(memory.peak, {Attr.GEN_AI_PROVIDER_NAME: provider}) for provider, memory in watch.allocators()]


_STATE_METRICS = (
    (
        "power_mode",
        Metrics.SPECDECODE_HOST_POWER_MODE_STATUS,
        Metrics.SPECDECODE_HOST_POWER_MODE_TIME,
        Attr.SPECDECODE_HOST_POWER_MODE,
    ),
    (
        "power_source",
        Metrics.SPECDECODE_HOST_POWER_SOURCE_STATUS,
        Metrics.SPECDECODE_HOST_POWER_SOURCE_TIME,
        Attr.SPECDECODE_HOST_POWER_SOURCE,
    ),
    (
        "thermal_state",
        Metrics.SPECDECODE_HOST_THERMAL_STATE_STATUS,
        Metrics.SPECDECODE_HOST_THERMAL_STATE_TIME,
        Attr.SPECDECODE_HOST_THERMAL_STATE,
    ),
    (
        "memory_pressure",
        Metrics.SPECDECODE_HOST_MEMORY_PRESSURE_STATUS,
        Metrics.SPECDECODE_HOST_MEMORY_PRESSURE_TIME,
        Attr.SPECDECODE_HOST_MEMORY_PRESSURE,
    ),
)
"""Each state of a HostState: the metric of now, the metric of seconds, and what both are labelled with."""
