"""Quantiles of the waits for tokens in bounded memory."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence

EXACT_WAITS = 4_096
"""Up to this many waits quantiles are exact (nearest rank); above, they come from logarithmic buckets."""

_GROWTH = math.log(1.01)
_MIDDLE = math.sqrt(1.01)


class Waits:
    """Waits from resume to yield, in ns.

    The first EXACT_WAITS are kept; more than that are folded into logarithmic buckets 1 % wide, so that a quantile
    is within 0.5 % and memory does not grow with the stream.
    """

    __slots__ = ("_buckets", "_count", "_exact")

    def __init__(self) -> None:
        """Start with no wait."""
        self._exact: array[int] | None = array("Q")
        self._buckets: dict[int, int] = {}
        self._count = 0

    def __len__(self) -> int:
        """Return the number of waits added."""
        return self._count

    def extend(self, waits: Sequence[int]) -> None:
        """Add waits in ns; negative ones count as 0."""
        self._count += len(waits)
        if self._exact is not None:
            self._exact.extend(wait if wait > 0 else 0 for wait in waits)
            if self._count <= EXACT_WAITS:
                return
            waits, self._exact = self._exact, None
        self._fold(waits)

    def quantile(self, share: float) -> float:
        """Return the wait in ns that this share (0 < share <= 1) of all waits does not exceed, by nearest rank.

        Raises:
            ValueError: If there is no wait, or share is outside (0, 1].
        """
        if not self._count or not 0 < share <= 1:
            raise ValueError("a quantile needs at least one wait and a share in (0, 1]")
        rank = math.ceil(share * self._count)
        if self._exact is not None:
            return float(sorted(self._exact)[rank - 1])
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= rank:
                return math.exp(bucket * _GROWTH) * _MIDDLE if bucket >= 0 else 0.0
        raise AssertionError("buckets hold fewer waits than were counted")

    def quantiles(self, shares: Iterable[float]) -> tuple[float, ...]:
        """Return quantile(share) for each share."""
        return tuple(self.quantile(share) for share in shares)

    def _fold(self, waits: Iterable[int]) -> None:
        buckets = self._buckets
        for wait in waits:
            bucket = int(math.log(wait) / _GROWTH) if wait > 0 else -1
            buckets[bucket] = buckets.get(bucket, 0) + 1
