"""Records a value for every token without paying for every token.

One SDK record costs 10 to 20 us, and an autoregressive run has a value a token. Up to a rate every value is recorded;
above it, a stretch of values is sorted and every n-th is taken, beginning at a place that moves from stretch to
stretch. Every rank is as likely as any other, so that quantiles and means stay right, and nothing is invented:
what is recorded was measured. The number of values is then not the number of passes, which counters tell exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

_GOLDEN = 0.6180339887498949
"""Steps by the golden ratio fill the unit interval evenly, whatever their number (Weyl)."""


class Thinner:
    """Chooses which values of a stream are recorded."""

    __slots__ = ("_credit", "_per_second", "_phase")

    def __init__(self, per_second: float) -> None:
        """Record at most this many values a second of stream time."""
        self._per_second = per_second
        self._credit = 0.5
        self._phase = 0.5

    def choose(self, values: Sequence[int], seconds: float) -> Sequence[int]:
        """Return the values to record of those that came in a time.

        Args:
            values: Measured values, in any order.
            seconds: Stream time they took.
        """
        if not values:
            return values
        self._credit += self._per_second * seconds
        count = min(int(self._credit), len(values))
        if count == len(values):
            self._credit = min(self._credit - count, 1.0)
            return values
        self._credit -= count
        self._phase = (self._phase + _GOLDEN) % 1.0
        ranked, step = sorted(values), len(values) / count if count else 0.0
        return [ranked[int((place + self._phase) * step)] for place in range(count)]
