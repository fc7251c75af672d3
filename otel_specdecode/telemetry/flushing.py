"""Delivers what is recorded so far."""

from __future__ import annotations

import time

from otel_specdecode.telemetry.listener import last_bound, recorder
from otel_specdecode.telemetry.setup import flush_providers


def flush(timeout: float) -> bool:
    """Record everything so far, and have the providers export it: those recorded into last, else the global ones.

    Args:
        timeout: The longest wait, in seconds.

    Returns:
        Whether everything was recorded and handed to the exporters in time.
    """
    deadline = time.monotonic() + timeout
    recorded = recorder.drain(timeout)
    return flush_providers(max(deadline - time.monotonic(), 0.0), last_bound()) and recorded
