"""A machine and a process on it, as the telemetry reads them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from otel_specdecode.host.machine import Machine, this_machine
from otel_specdecode.host.process_memory import LifetimePeaks, ProcessMemory, lifetime_peaks, process_memory
from otel_specdecode.host.sampler import PeakSampler, peak_sampler
from otel_specdecode.host.watcher import Watcher, host_watcher


@dataclass(frozen=True)
class Host:
    """What tells of a machine and of a process. A replay has these of another machine.

    Attributes:
        watcher: Keeps the state of the machine.
        machine: Returns what does not change about it.
        memory: Returns the memory of the process now.
        lifetime: Returns its high-water marks.
        sampler: Reads its memory while requests are open.
    """

    watcher: Watcher
    machine: Callable[[], Machine]
    memory: Callable[[], ProcessMemory]
    lifetime: Callable[[], LifetimePeaks]
    sampler: PeakSampler


this_host = Host(host_watcher, this_machine, process_memory, lifetime_peaks, peak_sampler)
"""This machine and this process."""
