"""How long a machine was in each state, and how often it began to swap. Plain arithmetic over readings."""

from __future__ import annotations

from otel_specdecode.host.state import STATES, HostState

Seconds = dict[str, dict[str, float]]
"""Seconds by enum and member."""


class StateTimes:
    """Adds up the seconds in every state of every enum.

    A reading speaks for the time until the next one, but not for longer than a limit; the rest is `unknown`. So the
    seconds of one enum add up to the time since the first reading, and a sum taken between two readings is never higher
    than a later one.
    """

    def __init__(self, longest: float) -> None:
        """Let one reading speak for at most so many seconds."""
        self._longest = longest
        self._seconds: Seconds = {name: dict.fromkeys(members, 0.0) for name, members in STATES.items()}
        self._now: dict[str, str] = {}
        self._since = 0.0

    def observe(self, at: float, state: HostState) -> None:
        """Take a reading.

        Args:
            at: When it was taken, in seconds of a monotonic clock.
            state: The reading.
        """
        self._add(self._seconds, at)
        values = {name: getattr(state, name).value for name in STATES}
        self._now = {name: value if value in STATES[name] else "unknown" for name, value in values.items()}
        self._since = at

    def seconds(self, at: float) -> Seconds:
        """Return the seconds in each state up to a time, zeros included."""
        copied = {name: dict(members) for name, members in self._seconds.items()}
        self._add(copied, at)
        return copied

    def _add(self, seconds: Seconds, at: float) -> None:
        passed = max(at - self._since, 0.0)
        spoken_for = min(passed, self._longest)
        for name, member in self._now.items():
            seconds[name][member] += spoken_for
            seconds[name]["unknown"] += passed - spoken_for


class SwapEpisodes:
    """Counts how often the machine began to write to swap after a quiet time.

    The total at the first reading is only a start: what was swapped out before is not known. Swapping that goes on when
    the readings begin counts once, at its first growth seen.
    """

    def __init__(self, quiet: float) -> None:
        """Take so many seconds without a swap-out as the end of an episode."""
        self.count = 0
        self._quiet = quiet
        self._total: int | None = None
        self._last: float | None = None

    def observe(self, at: float, swapped_out: int | None) -> None:
        """Take a reading.

        Args:
            at: When it was taken, in seconds of a monotonic clock.
            swapped_out: Bytes swapped out since the system started; None where that is not known.
        """
        if swapped_out is None:
            return
        if self._total is not None and swapped_out > self._total:
            if self._last is None or at - self._last >= self._quiet:
                self.count += 1
            self._last = at
        self._total = swapped_out
