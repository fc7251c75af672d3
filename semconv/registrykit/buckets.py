"""Bucket bounds from a short description: fine steps where rules read quantiles, coarse ones outside."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

_ROUNDING_MARGIN = 0.998
"""Leaves room for the rounding of both ends of a step, so that it stays at most ``growth`` wide."""


def _rounded(bound: float) -> float:
    """The bound with four significant digits."""
    return float(f"{bound:.4g}")


def fine_steps(low: float, high: float, growth: float, hold: Sequence[float]) -> tuple[float, ...]:
    """Bounds from ``low`` to ``high`` that grow by at most the factor ``growth`` and contain every bound of ``hold``.

    Between two held bounds the steps are equal in ratio.
    """
    if not (0 < low < high and growth > 1):
        raise ValueError(f"no fine steps from {low} to {high} by {growth}")
    anchors = sorted({low, *hold, high})
    bounds = [low]
    for left, right in pairwise(anchors):
        steps = math.ceil(math.log(right / left) / math.log(growth * _ROUNDING_MARGIN))
        bounds += [_rounded(left * (right / left) ** (step / steps)) for step in range(1, steps)] + [right]
    return tuple(bounds)


def bounds_of(description: Mapping[str, Any]) -> tuple[float, ...]:
    """The ascending bounds that an entry of ``buckets.yaml`` describes."""
    bounds = {float(bound) for bound in description.get("list", ())}
    fine = description.get("fine")
    if fine:
        steps = fine_steps(float(fine["from"]), float(fine["to"]), float(fine["growth"]), fine.get("hold", ()))
        inside = [bound for bound in bounds if steps[0] <= bound <= steps[-1]]
        if inside:
            raise ValueError(f"listed bounds {inside} lie inside the fine range")
        bounds |= set(steps)
    return tuple(sorted(bounds))
