"""From a generation to its span, metric points and events."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, Decision, Sampler, SamplingResult
from opentelemetry.trace import SpanKind

from otel_specdecode.generation import faults
from otel_specdecode.generation.observer import Content, Message, text_part
from otel_specdecode.generation.record import Ending
from otel_specdecode.generation.request import Request
from otel_specdecode.generation.running import Generation
from otel_specdecode.generation.stream import Outcome, watch
from otel_specdecode.telemetry.instruments import Instruments
from otel_specdecode.telemetry.names import Attr, Event, Metrics
from otel_specdecode.telemetry.recorder import Recorder
from otel_specdecode.testing.capture import Telemetry
from otel_specdecode.testing.checker import assert_conformant
from otel_specdecode.testing.fake import (
    MILLISECOND,
    WORKED_EXAMPLE,
    FakeClock,
    FakeRound,
    Script,
    accepted_rounds,
    fake_request,
    fake_stream,
)

ROOT = Path(__file__).parents[2]
WORKED = Script(rounds=accepted_rounds(WORKED_EXAMPLE, 4), finish_reason="stop")


def play(telemetry: Telemetry, script: Script, **options: Any) -> None:
    """Play a script to its end."""
    list(fake_stream(telemetry.listener(), script, FakeClock(), **options))


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """A span's attributes."""
    return dict(span.attributes or {})


def test_the_worked_example_as_a_span(telemetry: Telemetry) -> None:
    """8 rounds, 18 accepted, 3.25; 7 rollbacks in 304 ms of decode; 26 tokens, 3 after each 38 ms."""
    play(telemetry, WORKED)
    found = attributes(telemetry.span())
    expected = {
        Attr.SPECDECODE_VERIFY_PASSES: 8,
        Attr.SPECDECODE_DRAFT_ACCEPTED_TOKENS: 18,
        Attr.SPECDECODE_DRAFT_REJECTED_TOKENS: 14,
        Attr.SPECDECODE_DRAFT_PROPOSED_TOKENS: 32,
        Attr.SPECDECODE_ACCEPTANCE_LENGTH: 3.25,
        Attr.SPECDECODE_ACCEPT_RATE: 0.5625,
        Attr.SPECDECODE_ROLLBACKS: 7,
        Attr.SPECDECODE_ROLLBACKS_PER_MINUTE: pytest.approx(7 / 0.304 * 60),
        Attr.SPECDECODE_DECODE_DURATION: pytest.approx(0.304),
        Attr.SPECDECODE_PREFILL_DURATION: pytest.approx(0.120),
        Attr.SPECDECODE_DECODE_TOKENS_PER_SECOND: pytest.approx(23 / (7 * 0.038)),
        Attr.GEN_AI_USAGE_OUTPUT_TOKENS: 26,
        Attr.GEN_AI_RESPONSE_FINISH_REASONS: ("stop",),
    }
    assert {key: found[key] for key in expected} == expected


def test_the_worked_example_as_metric_points(telemetry: Telemetry) -> None:
    """The same numbers as sums, the round durations as eight values of 38 ms."""
    play(telemetry, WORKED)
    assert telemetry.total("specdecode.draft.tokens", draft_outcome="accepted") == 18
    assert telemetry.total("specdecode.draft.tokens") == 32
    assert telemetry.total("specdecode.verify.passes") == 8
    assert telemetry.total("specdecode.verify.passes", round_outcome="all_accepted") == 1
    assert telemetry.total("specdecode.verify.passes", round_outcome="rolled_back") == 6
    assert telemetry.total("specdecode.verify.passes", round_outcome="all_rejected") == 1
    assert telemetry.total("specdecode.rollbacks") == 7
    (rounds,) = telemetry.points(Metrics.SPECDECODE_ROUND_DURATION.name)
    assert (rounds.value, rounds.total) == (8, pytest.approx(8 * 0.038))
    (per_token,) = telemetry.points(Metrics.SPECDECODE_DECODE_TIME_PER_TOKEN.name)
    assert per_token.total == pytest.approx(7 * 0.038 / 23)


@pytest.mark.parametrize(
    "script",
    [
        WORKED,
        Script(tokens=12, finish_reason="length"),
        Script(tokens=1),
        Script(tokens=0),
        Script(rounds=accepted_rounds([0] * 25, 4)),
        Script(rounds=(FakeRound(0, 1), FakeRound(4, 5)), tokens=1),
        Script(rounds=(FakeRound(0, 1),) * 3, tokens=1),
        Script(tokens=3, failure=MemoryError("secret")),
        Script(rounds=accepted_rounds([2], 4), failure=ValueError("secret")),
    ],
    ids=["worked", "AR", "one token", "none", "all rejected", "mixed", "nothing proposed", "AR error", "error"],
)
def test_what_is_emitted_conforms(script: Script, telemetry: Telemetry) -> None:
    """Every kind of run, spans and metrics and events, holds against the registry."""
    with contextlib.suppress(MemoryError, ValueError):
        play(telemetry, script)
    spans = telemetry.spans()
    assert_conformant(spans=spans, metrics=telemetry.metrics_data(), logs=telemetry.logs())
    assert "secret" not in spans[0].to_json()


def test_a_request_that_fails_has_no_latency_that_others_could_be_judged_by(telemetry: Telemetry) -> None:
    with pytest.raises(MemoryError):
        play(telemetry, Script(tokens=30, failure=MemoryError()))
    times = ("specdecode.decode.time_per_token", "gen_ai.server.time_to_first_token")
    assert [telemetry.points(name) for name in times] == [[], []]
    assert telemetry.points("specdecode.decode.duration")


def test_samplers_see_the_request(telemetry: Telemetry) -> None:
    """Operation, provider, model, mode, method and k are there when the sampler decides."""
    seen: list[dict[str, Any]] = []

    class Spy(Sampler):
        def should_sample(self, *args: Any, attributes: Any = None, **options: Any) -> SamplingResult:
            seen.append(dict(attributes or args[4] or {}))
            return SamplingResult(Decision.RECORD_AND_SAMPLE)

        def get_description(self) -> str:
            return "spy"

    spied = Telemetry(Spy())
    play(spied, WORKED)
    assert len(spied.spans()) == 1
    assert {
        Attr.GEN_AI_OPERATION_NAME: "text_completion",
        Attr.GEN_AI_PROVIDER_NAME: "mlx",
        Attr.GEN_AI_REQUEST_MODEL: "target",
        Attr.SPECDECODE_MODE: "speculative",
        Attr.SPECDECODE_METHOD: "draft_model",
        Attr.SPECDECODE_DRAFT_MAX_TOKENS: 4,
    }.items() <= seen[0].items()
    spied.shutdown()


def test_metrics_do_not_depend_on_sampling() -> None:
    """No span is kept, every point is."""
    unsampled = Telemetry(ALWAYS_OFF)
    play(unsampled, WORKED)
    assert unsampled.spans() == ()
    assert unsampled.total("specdecode.draft.tokens", draft_outcome="accepted") == 18
    assert unsampled.total("gen_ai.server.request.duration") == 1
    unsampled.shutdown()


def test_the_span_lasts_from_the_first_resume_to_the_last_token(telemetry: Telemetry) -> None:
    """A consumer that holds a complete stream for a minute does not lengthen it; one that holds a running one does."""
    for closes, lasts in ((False, 0.424), (True, 60.158)):
        telemetry.clear()
        clock = FakeClock()
        stream = fake_stream(telemetry.listener(), WORKED, clock)
        next(stream) if closes else [next(stream) for _ in range(26)]
        clock.advance(60_000 * MILLISECOND)
        stream.close()
        span = telemetry.span()
        assert span.start_time is not None
        assert span.end_time is not None
        assert (span.end_time - span.start_time) / 1e9 == pytest.approx(lasts)


def test_a_running_stream_shows_in_the_counters(telemetry: Telemetry) -> None:
    """About once a second closed rounds are counted and active is 1; no span yet."""
    clock = FakeClock()
    stream = fake_stream(telemetry.listener(), Script(rounds=accepted_rounds([3] * 200, 4)), clock)
    for _ in range(400):
        next(stream)
    assert telemetry.spans() == ()
    assert telemetry.total("specdecode.verify.passes") >= 70
    assert telemetry.total("specdecode.request.active") == 1
    stream.close()
    assert telemetry.total("specdecode.verify.passes") == 100
    assert telemetry.total("specdecode.request.active") == 0


def test_under_an_outer_client_span_only_client_metrics_are_skipped(telemetry: Telemetry) -> None:
    """Another instrumentation's GenAI client span already counts the request: no gen_ai.client.*, all else."""
    tracer = telemetry.tracer_provider.get_tracer("client")
    operation = {Attr.GEN_AI_OPERATION_NAME: "chat"}
    with tracer.start_as_current_span("chat gpt", kind=SpanKind.CLIENT, attributes=operation) as outer:
        play(telemetry, WORKED)
    inner = next(span for span in telemetry.spans() if span.name != "chat gpt")
    assert inner.parent is not None
    assert inner.parent.span_id == outer.get_span_context().span_id
    names = {point.metric for point in telemetry.points()}
    assert not any(name.startswith("gen_ai.client.") for name in names)
    assert Metrics.GEN_AI_SERVER_REQUEST_DURATION.name in names
    assert telemetry.total("specdecode.verify.passes") == 8


def test_under_the_official_util(telemetry: Telemetry) -> None:
    """The official GenAI util's invocation counts as an outer client span too, whatever lies between."""
    handler_module = pytest.importorskip("opentelemetry.util.genai.handler", reason="the official util is not there")
    handler = handler_module.TelemetryHandler(tracer_provider=telemetry.tracer_provider)
    if not hasattr(handler, "inference"):
        pytest.skip("opentelemetry-util-genai is older than its inference() factory")
    tracer = telemetry.tracer_provider.get_tracer("service")
    with handler.inference("openai", request_model="gpt"), tracer.start_as_current_span("between"):
        play(telemetry, WORKED)
    assert not any(point.metric.startswith("gen_ai.client.") for point in telemetry.points())


@pytest.mark.parametrize(
    ("capture", "on_span", "as_event"),
    [
        (None, False, False),
        ("NO_CONTENT", False, False),
        ("nonsense", False, False),
        ("SPAN_ONLY", True, False),
        ("EVENT_ONLY", False, True),
        ("span_and_event", True, True),
    ],
)
def test_content_leaves_only_by_opt_in(
    capture: str | None, on_span: bool, as_event: bool, telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The four values of the GenAI variable; nothing by default and for anything else."""
    if capture is not None:
        monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", capture)
    ticket = telemetry.listener().admit()
    assert ticket is not None
    assert ticket.captures_content == (on_span or as_event)
    generation = Generation(ticket, lambda _: Request("text_completion", "mlx", "target"), FakeClock())
    if ticket.captures_content:
        generation.content = Content()
        generation.content.prompt = (Message("user", (text_part("What is a crab?"),)),)
        generation.content.completion += ["The ", "crab"]
    list(watch((number for number in [1]), generation, lambda _, item, exhausted: Outcome("stop", True, True)))
    span, logs = telemetry.span(), telemetry.logs()
    assert ("crab" in span.to_json()) == on_span
    assert len(logs) == as_event
    if on_span:
        (message,) = json.loads(attributes(span)[Attr.GEN_AI_OUTPUT_MESSAGES])
        assert message["parts"] == [{"type": "text", "content": "The crab"}]
    if as_event:
        assert logs[0].log_record.event_name == Event.GEN_AI_CLIENT_INFERENCE_OPERATION_DETAILS
        assert_conformant(logs=logs)


def test_contradictory_counts_are_dropped_not_published(telemetry: Telemetry, caplog: pytest.LogCaptureFixture) -> None:
    """An adapter that emits more than a round can hold: one warning, a span without numbers, nothing stays active."""
    faults._told.clear()
    script = Script(rounds=(FakeRound(2, 9, finished=False),))
    with caplog.at_level(logging.WARNING):
        play(telemetry, script)
        found = attributes(telemetry.span())
    assert Attr.SPECDECODE_VERIFY_PASSES not in found
    assert found[Attr.SPECDECODE_MODE] == "speculative"
    assert len(caplog.records) == 1
    assert telemetry.total("specdecode.request.active") == 0


def test_a_broken_or_blocking_processor_never_reaches_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    """on_end may raise or hang: the stream goes on at once, and later streams too."""
    release = threading.Event()

    class Hanging(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            release.wait(20)
            raise RuntimeError("exporter")

    telemetry = Telemetry()
    telemetry.tracer_provider.add_span_processor(Hanging())
    began = time.monotonic()
    for _ in range(3):
        play(telemetry, WORKED)
    assert time.monotonic() - began < 5
    release.set()
    assert len(telemetry.spans()) == 3
    assert telemetry.total("specdecode.request.active") == 0
    telemetry.shutdown()


def test_a_sampler_that_raises_never_reaches_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    """Starting the span may fail: the stream goes on unrecorded."""

    class Broken(Sampler):
        def should_sample(self, *args: Any, **options: Any) -> SamplingResult:
            raise RuntimeError("sampler")

        def get_description(self) -> str:
            return "broken"

    telemetry = Telemetry(Broken())
    play(telemetry, WORKED)
    assert telemetry.spans() == ()
    telemetry.shutdown()


@pytest.mark.parametrize("name", ["add", "record"])
def test_instruments_that_raise_do_not_lose_the_span(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fails on the recording thread, the span ends, once, and nothing stays active."""

    def raising(*_: object) -> None:
        raise RuntimeError("instrument")

    telemetry = Telemetry()
    play(telemetry, WORKED)
    telemetry.spans()
    monkeypatch.setattr(Instruments, name, raising)
    play(telemetry, WORKED)
    spans = telemetry.spans()
    assert len(spans) == 2
    assert all(span.end_time for span in spans)
    assert telemetry.total("specdecode.request.active") == 0
    telemetry.shutdown()


def test_a_stretch_that_was_dropped_publishes_no_wrong_number(
    telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the recording thread behind, a running stream's part is refused: the span ends without numbers."""
    monkeypatch.setattr(Recorder, "put_unless_full", lambda self, work: False)
    play(telemetry, Script(tokens=400, target_step=5 * MILLISECOND))
    found = attributes(telemetry.span())
    assert Attr.GEN_AI_USAGE_OUTPUT_TOKENS not in found
    assert telemetry.total("specdecode.request.active") == 0


def test_a_span_begins_at_the_first_resume_however_long_it_took_to_read_the_request(telemetry: Telemetry) -> None:
    clock, taken = FakeClock(), 300 * MILLISECOND

    def reads(_: Generation) -> Request:
        clock.advance(taken)
        return fake_request(WORKED)

    ticket = telemetry.listener().admit()
    assert ticket is not None
    generation, before = Generation(ticket, reads, clock), time.time_ns()
    began = generation.begin()
    after = time.time_ns()
    generation.end(Ending("closed", clock(), "closed"))
    span = telemetry.span()
    assert span.start_time is not None
    assert before <= span.start_time + taken <= after
    assert span.end_time == span.start_time + clock() - began
