"""What the tests of both engines read from a span, and do to a stream."""

from __future__ import annotations

import faulthandler
import gc
import threading
from collections.abc import Callable
from typing import Any

import opentelemetry.sdk.metrics._internal.aggregation as sdk_aggregation
import pytest
from opentelemetry.sdk.trace import ReadableSpan

from otel_specdecode.telemetry.names import Attr
from otel_specdecode.testing.capture import Telemetry


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """A span's attributes."""
    return dict(span.attributes or {})


def counts(span: ReadableSpan) -> tuple[int, int, int]:
    """Accepted, rejected and unverified tokens."""
    found = attributes(span)
    return (
        found[Attr.SPECDECODE_DRAFT_ACCEPTED_TOKENS],
        found[Attr.SPECDECODE_DRAFT_REJECTED_TOKENS],
        found[Attr.SPECDECODE_DRAFT_UNVERIFIED_TOKENS],
    )


def collect_inside_the_sdk(stream: Callable[[], Any], telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin a stream, lose it in a cycle, and have the collector find it while the SDK holds its own lock."""
    histogram = telemetry.meter_provider.get_meter("service").create_histogram("own")
    original = sdk_aggregation.bisect_left
    cell: dict[str, Any] = {"stream": stream()}
    next(cell["stream"])
    cell["self"] = cell
    telemetry.spans()
    locked = []

    def collecting(*args: Any) -> int:
        if threading.current_thread() is threading.main_thread() and not locked:
            locked.append(True)
            gc.collect()
        return original(*args)

    monkeypatch.setattr(sdk_aggregation, "bisect_left", collecting)
    del cell
    faulthandler.dump_traceback_later(60, exit=True)  # a deadlock here would hang the test run
    try:
        histogram.record(1.0)
    finally:
        faulthandler.cancel_dump_traceback_later()
    assert locked
