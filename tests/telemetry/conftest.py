"""Telemetry in memory, fed by fake generations."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from otel_specdecode.testing.capture import Telemetry


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    """Providers that keep what they get in memory."""
    made = Telemetry()
    yield made
    made.shutdown()
