"""For tests of programs that use this library: in-memory capture, fake generations, and a conformance checker."""

from otel_specdecode.testing.capture import Point, Telemetry, capture
from otel_specdecode.testing.fake import FakeClock, FakeRound, Script, accepted_rounds, fake_request, fake_stream

__all__ = [
    "FakeClock",
    "FakeRound",
    "Point",
    "Script",
    "Telemetry",
    "accepted_rounds",
    "capture",
    "fake_request",
    "fake_stream",
]
