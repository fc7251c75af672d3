"""Records a value for every token without paying for every token.

One SDK record costs 10 to 30 us, and an autoregressive run has a value a token. Up to a pace every value is recorded.
Above it one in n is, of every stretch and by rank: the stretch is sorted, and every n-th value taken from a place that
moves from stretch to stretch. A slow value is then as likely to be recorded as a fast one, so that quantiles and means
stay right, and nothing is invented: what is recorded was measured. The number of values is then not the number of
passes, which counters tell exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

_GOLDEN = 0.6180339887498949
"""Steps by the golden ratio fill the unit interval evenly, whatever their number (Weyl)."""

_HALF_LIFE_SECONDS = 60.0

_MOST = 1 << 20


class Thinner:
    """Chooses which values of a series are recorded.

    The step n is a power of two that follows the pace of the series over about a minute of stream time, and changes
    only where it is off by more than a factor of two: a step that followed each stretch would keep a greater share of
    slow phases than of fast ones. The first stretch has one value at least: the series is there from the first request
    on, however fast that is.
    """

    __slots__ = ("_any", "_per_second", "_phase", "_seconds", "_step", "_values")

    def __init__(self, per_second: float) -> None:
        """Record at most about this many values a second of stream time."""
        self._per_second = per_second
        self._phase = 0.5
        self._step = 1
        self._any = False
        self._values = 0.0
        self._seconds = 0.0

    def choose(self, values: Sequence[int], seconds: float) -> Sequence[int]:
        """Return the values to record of those that came in a time.

        Args:
            values: Measured values, in any order.
            seconds: Stream time they took.
        """
        if not values:
            return values
        self._follow(len(values), seconds)
        first, self._any = not self._any, True
        if self._step == 1:
            return values
        self._phase = (self._phase + _GOLDEN) % 1.0
        ordered = sorted(values)
        chosen = ordered[int(self._phase * self._step) :: self._step]
        return [ordered[len(ordered) // 2]] if first and not chosen else chosen

    def _follow(self, values: int, seconds: float) -> None:
        kept = 0.5 ** (seconds / _HALF_LIFE_SECONDS)
        self._values = self._values * kept + values
        self._seconds = self._seconds * kept + seconds
        if not self._seconds:
            return
        wanted = self._values / (self._seconds * self._per_second)
        if not self._step / 4 <= wanted <= self._step:
            self._step = 1 << math.ceil(math.log2(min(max(wanted, 1.0), _MOST)))
