"""How streams end on the real engine: one span each, with the right status, finish reason and parent."""

from __future__ import annotations

import contextlib
import gc
import logging
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import mlx_lm
import pytest
from mlx_lm.models.cache import make_prompt_cache
from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.trace import SpanKind, StatusCode

from otel_specdecode.telemetry.names import Attr
from otel_specdecode.testing.capture import Telemetry
from otel_specdecode.tiny_pair import chat_tokens
from otel_specdecode.tiny_pair.cycle import pattern_of
from tests.edge_table import EDGES, Edge
from tests.engines.mlx_lm.conftest import Pair, load_cycle
from tests.engines.spans import attributes, collect_inside_the_sdk, counts

pytestmark = pytest.mark.mlx

K = 4


def stream(pair: Pair, limit: int = 40, k: int | None = None, prompt: list[int] | None = None, **options: Any) -> Any:
    """Stream from a pair, speculatively if k is given."""
    draft = {} if k is None else {"draft_model": pair.draft, "num_draft_tokens": k}
    return mlx_lm.stream_generate(pair.target, pair.tokenizer, prompt or [301], max_tokens=limit, **draft, **options)


def chat(pair: Pair) -> list[int]:
    """A chat prompt."""
    return chat_tokens(pair.tokenizer, "hello")


@pytest.mark.parametrize("k", [None, K])
def test_eos_completes_a_stream(k: int | None, eos: Pair, telemetry: Telemetry) -> None:
    """EOS, inside an accepted draft too: stop, EOS counted, the rest of the draft unverified and no rollback."""
    responses = list(stream(eos, k=k, prompt=chat(eos)))
    span = telemetry.span()
    found = attributes(span)
    assert [response.finish_reason for response in responses] == [None, None, "stop"]
    assert span.status.status_code is StatusCode.UNSET
    assert found[Attr.GEN_AI_RESPONSE_FINISH_REASONS] == ("stop",)
    assert found[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == 3
    if k:
        assert counts(span) == (3, 0, 1)
        assert found[Attr.SPECDECODE_ROLLBACKS] == 0
        assert telemetry.total("specdecode.verify.passes", round_outcome="cut") == 1


@pytest.mark.parametrize("limit", range(1, 9))
def test_max_tokens_inside_a_draft(limit: int, tmp_path: Path, telemetry: Telemetry) -> None:
    """The draft is clipped to what is left: length, nothing unverified, whichever token is the last."""
    pair = load_cycle(tmp_path, agreement=1.0)
    list(stream(pair, limit=limit, k=3))
    span = telemetry.span()
    assert attributes(span)[Attr.GEN_AI_RESPONSE_FINISH_REASONS] == ("length",)
    own = limit // 4
    assert counts(span) == (limit - own, 0, 0)
    assert attributes(span)[Attr.SPECDECODE_VERIFY_PASSES] == -(-limit // 4)


@pytest.mark.parametrize("edge", [edge for edge in EDGES if edge.draft and edge.emitted], ids=lambda edge: edge.name)
def test_the_edge_table(edge: Edge, tmp_path: Path, telemetry: Telemetry) -> None:
    """A first round that goes as a row of the table says, stopped where the row is cut, counts as the row says."""
    k = len(edge.draft)
    right = edge.accepted if edge.finished else k
    pair = load_cycle(tmp_path, pattern=pattern_of([right, k], k))
    whole_draft = not edge.finished and len(edge.emitted) == k
    running = stream(pair, k=k, prompt=chat(pair), limit=k if whole_draft else 40)
    for _ in range(len(edge.emitted)):
        next(running)
    running.close()
    span = telemetry.span()
    assert counts(span) == (edge.accepted, edge.rejected, edge.unverified)
    assert telemetry.total("specdecode.verify.passes", round_outcome=edge.outcome) == 1
    assert attributes(span)[Attr.SPECDECODE_VERIFY_PASSES] == 1


def test_the_worked_example(tmp_path: Path, telemetry: Telemetry) -> None:
    """[2, 3, 1, 4, 2, 0, 3, 3] at k = 4 on the real engine: 8 rounds, 18 accepted, acceptance length 3.25."""
    pair = load_cycle(tmp_path, pattern=pattern_of([2, 3, 1, 4, 2, 0, 3, 3], 4))
    running = stream(pair, k=4, prompt=chat(pair))
    for _ in range(26):
        next(running)
    running.close()
    found = attributes(telemetry.span())
    assert found[Attr.SPECDECODE_VERIFY_PASSES] == 8
    assert found[Attr.SPECDECODE_DRAFT_ACCEPTED_TOKENS] == 18
    assert found[Attr.SPECDECODE_ACCEPTANCE_LENGTH] == 3.25
    assert found[Attr.SPECDECODE_ACCEPT_RATE] == 18 / 32
    by_position = [
        telemetry.total("specdecode.draft.accepted_by_position", draft_position=str(place)) for place in range(4)
    ]
    assert by_position == [7, 6, 4, 1]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # MLX's own, on another thread
@pytest.mark.parametrize("k", [None, K])
@pytest.mark.parametrize("how", ["close", "break", "collected", "other thread"])
def test_a_stream_dropped_early(how: str, k: int | None, cycle: Pair, telemetry: Telemetry) -> None:
    """close, break, garbage collection and a close on another thread: one span, UNSET, finish reason closed."""
    running = stream(cycle, k=k)
    for _ in range(3):
        next(running)
    if how == "close":
        running.close()
    elif how == "break":
        del running
    elif how == "collected":
        cell: dict[str, Any] = {"stream": running}
        cell["self"] = cell
        del running, cell
        gc.collect()
    else:
        closer = threading.Thread(target=running.close)
        closer.start()
        closer.join()
        gc.collect()
    span = telemetry.span()
    assert span.status.status_code is StatusCode.UNSET
    assert attributes(span)[Attr.GEN_AI_RESPONSE_FINISH_REASONS] == ("closed",)
    assert Attr.ERROR_TYPE not in attributes(span)
    assert attributes(span)[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == 3


def test_a_stream_dropped_after_its_final_response(cycle: Pair, telemetry: Telemetry) -> None:
    """A consumer that breaks on the finish reason, as most do, has a complete stream."""
    for response in stream(cycle, limit=5):
        if response.finish_reason:
            break
    assert attributes(telemetry.span())[Attr.GEN_AI_RESPONSE_FINISH_REASONS] == ("length",)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, MemoryError])
def test_an_error_inside_the_engine(error: type[BaseException], cycle: Pair, telemetry: Telemetry) -> None:
    """Whatever the engine raises, KeyboardInterrupt included: ERROR, error.type, finish reason error, no text of it."""
    calls = []

    def sampler(logprobs: Any) -> Any:
        calls.append(1)
        if len(calls) == 4:
            raise error("secret prompt")
        return logprobs.argmax(axis=-1)

    with pytest.raises(error, match="secret"):
        list(stream(cycle, sampler=sampler))
    span = telemetry.span()
    assert span.status.status_code is StatusCode.ERROR
    assert attributes(span)[Attr.ERROR_TYPE] == error.__name__
    assert attributes(span)[Attr.GEN_AI_RESPONSE_FINISH_REASONS] == ("error",)
    assert "secret" not in span.to_json()


def test_an_exception_thrown_in(cycle: Pair, telemetry: Telemetry) -> None:
    """throw() into a running stream: that exception to the caller, and an error span."""
    running = stream(cycle, k=K)
    next(running)
    with pytest.raises(TimeoutError):
        running.throw(TimeoutError())
    assert attributes(telemetry.span())[Attr.ERROR_TYPE] == "TimeoutError"


def test_a_target_pass_that_raises_leaves_its_draft_unverified(
    cycle: Pair, telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The round began when the pass was called: its tokens are proposed and unverified."""
    kind = type(cycle.target)
    original, verified = kind.__call__, []

    def failing(self: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if self is cycle.target:
            verified.append(1)
            if len(verified) == 3:
                raise RuntimeError("out of memory")
        return original(self, inputs, *args, **kwargs)

    monkeypatch.setattr(kind, "__call__", failing)
    emitted = []
    with pytest.raises(RuntimeError):
        emitted.extend(stream(cycle, k=K))
    span = telemetry.span()
    found = attributes(span)
    assert found[Attr.SPECDECODE_VERIFY_PASSES] == 3
    assert found[Attr.SPECDECODE_DRAFT_PROPOSED_TOKENS] == 3 * K
    assert counts(span)[2] >= K


def test_a_stream_never_iterated_leaves_nothing(cycle: Pair, telemetry: Telemetry) -> None:
    """No span, nothing counted, nothing active."""
    running = stream(cycle)
    del running
    assert telemetry.spans() == ()
    assert telemetry.points("specdecode.request.started") == []


def layers_held(pair: Pair, k: int | None, consumed: int, ending: str) -> int:
    """Run a stream on a cache of its own, drop it, and count the cache's layers that only a collection would free."""
    cache = make_prompt_cache(pair.target) + make_prompt_cache(pair.draft)
    alive = [weakref.ref(layer) for layer in cache]

    failing: list[bool] = []

    def sampler(logprobs: Any) -> Any:
        if failing:
            raise MemoryError
        return logprobs.argmax(axis=-1)

    own = cache if k else cache[: len(pair.target.layers)]
    running = stream(pair, limit=6, k=k, prompt_cache=own, sampler=sampler)
    for _ in range(consumed):
        next(running)
    if ending == "engine fails":
        failing.append(True)
        with contextlib.suppress(MemoryError):
            list(running)
    elif ending == "thrown into" and consumed:
        with contextlib.suppress(TimeoutError):
            running.throw(TimeoutError())
    del running, cache, own
    return sum(layer() is not None for layer in alive)


@pytest.mark.parametrize("ending", ["dropped", "engine fails", "thrown into"])
@pytest.mark.parametrize("consumed", [0, 3, 6])
@pytest.mark.parametrize("k", [None, K])
def test_nothing_is_held_after_the_end(
    ending: str, consumed: int, k: int | None, cycle: Pair, telemetry: Telemetry
) -> None:
    """KV caches, which can be gigabytes, are freed as soon as those of a bare stream (on Python 3.10 that is late)."""
    gc.collect()
    gc.disable()
    try:
        with suppress_instrumentation():
            bare = layers_held(cycle, k, consumed, ending)
        watched = layers_held(cycle, k, consumed, ending)
        telemetry.spans()
    finally:
        gc.enable()
    assert watched <= bare
    assert bare == 0 or sys.version_info < (3, 11)


def test_the_parent_is_the_one_of_the_call(cycle: Pair, telemetry: Telemetry) -> None:
    """The parent is the span that was current at the call, wherever the stream is consumed; nothing is attached."""
    tracer = telemetry.tracer_provider.get_tracer("service")
    with tracer.start_as_current_span("call") as call:
        running = stream(cycle, limit=3)
    with tracer.start_as_current_span("consume") as consume:
        for _ in running:
            inner = tracer.start_span("between tokens")
            inner.end()
    spans = {span.name: span for span in telemetry.spans()}
    generation = spans["text_completion target"]
    assert generation.kind is SpanKind.INTERNAL
    assert generation.parent is not None
    assert generation.parent.span_id == call.get_span_context().span_id
    between = spans["between tokens"].parent
    assert between is not None
    assert between.span_id == consume.get_span_context().span_id


def test_no_ending_makes_log_noise(cycle: Pair, telemetry: Telemetry, caplog: pytest.LogCaptureFixture) -> None:
    """Interleaved streams, closed in another order than they began, log nothing: nothing was attached."""
    with caplog.at_level(logging.WARNING):
        running = [stream(cycle, k=k) for k in (None, K, None, 2)]
        for each in running:
            next(each)
        for each in (running[2], running[0], running[3], running[1]):
            next(each)
            each.close()
        assert len(telemetry.spans()) == 4
    assert caplog.records == []


def test_collection_in_the_middle_of_an_sdk_call(
    cycle: Pair, telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream found by the collector while the SDK holds its own lock ends without a deadlock."""
    collect_inside_the_sdk(lambda: stream(cycle), telemetry, monkeypatch)
    assert attributes(telemetry.span())[Attr.GEN_AI_RESPONSE_FINISH_REASONS] == ("closed",)
