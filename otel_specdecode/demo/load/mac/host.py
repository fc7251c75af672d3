"""The Mac as a host: its commands answered out of the story, read by the readers of a real one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from otel_specdecode.demo.load.mac.states import Moment, Story
from otel_specdecode.generation.observer import AllocatorMemory
from otel_specdecode.host.commands import Output
from otel_specdecode.host.host import Host
from otel_specdecode.host.machine import PROFILE_VARIABLE, Machine, mac_machine
from otel_specdecode.host.macos import MacReader
from otel_specdecode.host.process_memory import LifetimePeaks, ProcessMemory
from otel_specdecode.host.sampler import PeakSampler
from otel_specdecode.host.watcher import Watcher
from otel_specdecode.thresholds import thresholds

PROFILE = "synthetic-mac-m1-16g"

_MOST_READINGS = 50
"""Readings of a whole story: in a short one they come faster than on a machine."""


class Replay:
    """Answers as the Mac would, at the time since it was begun.

    Attributes:
        story: What it goes through.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Spread the story over a time that begins now.

        Args:
            seconds: How long it takes.
            clock: Seconds, monotonic.
        """
        self.story = Story(seconds)
        self._clock = clock
        self._began = clock()
        self._highest = ProcessMemory(0, 0)
        self._peak = 0
        self._every = min(float(thresholds()["host"]["read_every"]) / 5, seconds / _MOST_READINGS)

    def __call__(self, *command: str) -> Output:
        """Return what a command writes now."""
        text = self.moment().output(command)
        return Output("", "nobody captured it") if text is None else Output(text)

    def moment(self) -> Moment:
        """Return the Mac now."""
        return self.story.at(self._clock() - self._began)

    def memory(self) -> ProcessMemory:
        """Return the memory of the process now."""
        moment, highest = self.moment(), self._highest
        now = ProcessMemory(moment.bytes_of("resident"), moment.bytes_of("footprint"))
        self._highest = ProcessMemory(
            max(now.resident or 0, highest.resident or 0), max(now.footprint or 0, highest.footprint or 0)
        )
        return now

    def lifetime(self) -> LifetimePeaks:
        """Return the high-water marks."""
        self.memory()
        return LifetimePeaks(*self._highest)

    def allocator(self) -> AllocatorMemory:
        """Return what MLX's allocator holds now."""
        active = self.moment().bytes_of("allocated")
        self._peak = max(self._peak, active)
        return AllocatorMemory(active, active // 20, self._peak)

    def machine(self) -> Machine:
        """Return what does not change about the Mac."""
        found = mac_machine(self, None, environ={PROFILE_VARIABLE: PROFILE})
        return replace(found, architecture="arm64")  # which no command tells

    def host(self) -> Host:
        """Return it as a host to watch."""
        machine = self.machine()
        return Host(
            watcher=Watcher(self._reader, every=self._every),
            machine=lambda: machine,
            memory=self.memory,
            lifetime=self.lifetime,
            sampler=PeakSampler(self.memory, self.lifetime, lambda: _Probe(self), period=0.25),
        )

    def _reader(self) -> MacReader:
        return MacReader(self, None, power_every=0.0)


class _Probe:
    def __init__(self, replay: Replay) -> None:
        self._replay = replay

    def read(self) -> ProcessMemory:
        return self._replay.memory()

    def close(self) -> None:
        """Nothing is held."""
