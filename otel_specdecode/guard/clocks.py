"""Where the guard's time comes from."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Clocks:
    """Where time comes from.

    Attributes:
        steady: Seconds.
        wall: Time of day, ns since the epoch.
    """

    steady: Clock = time.monotonic
    wall: Callable[[], int] = time.time_ns


class Steady:
    """Seconds that never go back: where a clock does, they go on from where they were. Not for several threads."""

    def __init__(self, clock: Clock) -> None:
        """Begin with what a clock says."""
        self._clock = clock
        self._read = clock()
        self._ahead = 0.0
        self.last = self._read

    def now(self) -> float:
        """Return the time."""
        read = self._clock()
        if read < self._read:
            self._ahead += self._read - read
        self._read = read
        self.last = read + self._ahead
        return self.last

    def at(self, read: float) -> float:
        """Return the time at which the clock said something, the last one at most."""
        return min(read + self._ahead, self.last)
