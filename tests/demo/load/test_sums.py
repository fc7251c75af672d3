"""Sums of spans: by the labels that metric points of the same requests have."""

from __future__ import annotations

import pytest

pytest.importorskip("opentelemetry.sdk.trace", reason="needs the [demo] extra")

import contextlib

from opentelemetry.sdk.trace import ReadableSpan

from otel_specdecode.demo.load.sums import Sums, labels_of
from otel_specdecode.telemetry.labels import rule_labels
from otel_specdecode.telemetry.names import Attr
from otel_specdecode.telemetry.spans import start_attributes
from otel_specdecode.testing.capture import Telemetry
from otel_specdecode.testing.fake import (
    WORKED_EXAMPLE,
    FakeClock,
    Script,
    accepted_rounds,
    fake_request,
    fake_stream,
)

EXAMPLE = Script(accepted_rounds(WORKED_EXAMPLE, 4))


def spans(*scripts: Script) -> list[ReadableSpan]:
    telemetry = Telemetry()
    listener = telemetry.listener()
    for script in scripts:
        with contextlib.suppress(RuntimeError):
            list(fake_stream(listener, script, FakeClock()))
    found = list(telemetry.spans())
    telemetry.shutdown()
    return found


def test_the_worked_example_once_and_twice() -> None:
    sums = Sums()
    sums.add(spans(EXAMPLE))
    (group,) = sums.groups().values()
    assert group.requests == 1
    assert group.sums[Attr.SPECDECODE_VERIFY_PASSES] == 8
    assert group.sums[Attr.SPECDECODE_DRAFT_ACCEPTED_TOKENS] == 18
    assert group.sums[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == 26
    sums.add(spans(EXAMPLE))
    assert sums.total().sums[Attr.SPECDECODE_DRAFT_ACCEPTED_TOKENS] == 36


def test_modes_stand_apart_and_the_total_has_both() -> None:
    sums = Sums()
    sums.add(spans(EXAMPLE, Script(tokens=5)))
    modes = {dict(labels)[Attr.SPECDECODE_MODE]: group for labels, group in sums.groups().items()}
    assert modes["autoregressive"].sums[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == 5
    assert modes["autoregressive"].sums[Attr.SPECDECODE_ROLLBACKS] == 0
    assert sums.total().sums[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == 31


def test_endings_and_errors_are_counted_by_value() -> None:
    sums = Sums()
    sums.add(spans(EXAMPLE, Script(tokens=2, failure=RuntimeError())))
    counts = sums.total().counts
    assert counts[Attr.GEN_AI_RESPONSE_FINISH_REASONS] == {"stop": 1, "error": 1}
    assert counts[Attr.ERROR_TYPE] == {"RuntimeError": 1}


def test_the_labels_are_those_of_the_metric_points() -> None:
    for script in (EXAMPLE, Script(tokens=5)):
        request = fake_request(script)
        for tokens in (1_024, 1_025):
            attributes = {**start_attributes(request), Attr.GEN_AI_USAGE_INPUT_TOKENS: tokens}
            assert dict(labels_of(attributes)) == rule_labels(request, tokens)
