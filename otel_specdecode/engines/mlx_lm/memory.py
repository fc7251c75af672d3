"""What MLX's allocator holds."""

from __future__ import annotations

import sys
from typing import Any

from otel_specdecode.generation.observer import AllocatorMemory


def allocator_memory() -> AllocatorMemory | None:
    """Return the memory of MLX's allocator; None where MLX is not in use. Resets and computes nothing."""
    core: Any = sys.modules.get("mlx.core")
    try:
        return AllocatorMemory(
            active=int(core.get_active_memory()),
            cache=int(core.get_cache_memory()),
            peak=int(core.get_peak_memory()),
        )
    except AttributeError:  # not imported, or not yet to the end
        return None
