"""Host states for tests that are not about reading them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from otel_specdecode.host.state import HostState, Reading, unknown_host


def host_state(**values: Any) -> HostState:
    """A state of which only these values are known."""
    return replace(unknown_host("not in this test"), **{name: Reading(value, "test") for name, value in values.items()})
