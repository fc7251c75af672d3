"""Calls that are made here and consumed there: other threads, event loops, contexts that were copied or suppressed."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import context as otel_context
from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.trace import SpanKind, StatusCode

from otel_specdecode.testing.capture import Telemetry
from tests.engines.llama_cpp.calling import ENTRIES, MESSAGES, PROMPT, TEXTS, K, call, ended, load, take
from tests.engines.llama_cpp.conftest import Pair

pytestmark = pytest.mark.llama_cpp


@pytest.fixture(params=[None, K], ids=["autoregressive", "speculative"])
def llama(request: pytest.FixtureRequest, cycle: Pair) -> Any:
    """The target, without a draft and with one."""
    return load(cycle, request.param)


# Contexts, threads, event loops


@pytest.mark.parametrize("entry", ENTRIES)
def test_the_parent_is_the_one_of_the_call(entry: str, llama: Any, telemetry: Telemetry) -> None:
    """The parent is the span that was current at the call, wherever the stream is consumed; nothing is attached."""
    tracer = telemetry.tracer_provider.get_tracer("service")
    with tracer.start_as_current_span("call") as call_span:
        stream = call(entry, llama)
    with tracer.start_as_current_span("consume") as consume:
        for _ in range(4):
            next(stream)
            tracer.start_span("between tokens").end()
        stream.close()
    spans = {span.name: span for span in telemetry.spans()}
    (generation,) = [span for name, span in spans.items() if name.endswith("cycle-target")]
    assert generation.kind is SpanKind.INTERNAL
    assert generation.parent is not None
    assert generation.parent.span_id == call_span.get_span_context().span_id
    between = spans["between tokens"].parent
    assert between is not None
    assert between.span_id == consume.get_span_context().span_id


def on_new_threads(stream: Iterator[Any]) -> Iterator[Any]:
    """Ask for each item on a thread of its own, in a copy of the caller's context."""
    end = object()
    while True:
        got: list[Any] = []
        context = contextvars.copy_context()

        def ask(got: list[Any] = got, context: contextvars.Context = context) -> None:
            got.append(context.run(next, stream, end))
            got.append(context.run(otel_context.get_current))

        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        item, attached = got
        assert attached == otel_context.get_current()
        if item is end:
            return
        yield item


@pytest.mark.parametrize("entry", TEXTS)
def test_each_chunk_on_another_thread(
    entry: str, llama: Any, telemetry: Telemetry, caplog: pytest.LogCaptureFixture
) -> None:
    """As web servers ask for them: one span with every token, the parent of the call, nothing left attached."""
    tracer = telemetry.tracer_provider.get_tracer("service")
    with caplog.at_level(logging.DEBUG):
        with tracer.start_as_current_span("request") as request:
            stream = call(entry, llama, 6)
        assert len(list(on_new_threads(stream))) >= 6
    generation = next(span for span in telemetry.spans() if span.name != "request")
    assert ended(generation) == (StatusCode.UNSET, "length", 6)
    assert generation.parent is not None
    assert generation.parent.span_id == request.get_span_context().span_id
    assert [record for record in caplog.records if record.name != "asyncio"] == []


@pytest.mark.parametrize("disconnect", [False, True])
@pytest.mark.parametrize("entry", TEXTS)
def test_starlettes_own_way_to_stream(
    entry: str, disconnect: bool, llama: Any, telemetry: Telemetry, caplog: pytest.LogCaptureFixture
) -> None:
    """`iterate_in_threadpool` on a real event loop, to the end or until the client goes away."""
    anyio = pytest.importorskip("anyio", reason="without what the [dev] extra brings")
    concurrency = pytest.importorskip("starlette.concurrency", reason="without what the [dev] extra brings")
    tracer = telemetry.tracer_provider.get_tracer("service")

    async def serve() -> None:
        with tracer.start_as_current_span("request"):
            stream = await concurrency.run_in_threadpool(call, entry, llama, 6)
            chunks = concurrency.iterate_in_threadpool(stream)
            del stream
            taken = 0
            async for _ in chunks:
                taken += 1
                if disconnect and taken == 3:
                    break
            await chunks.aclose()

    with caplog.at_level(logging.WARNING):
        anyio.run(serve)
        for thread in threading.enumerate():  # an idle worker holds its last call's iterator until it ends
            if thread.name.startswith("AnyIO"):
                thread.join()
    spans = {span.name: span for span in telemetry.spans()}
    (generation,) = [span for name, span in spans.items() if name != "request"]
    status, reason, tokens = ended(generation)
    taken = 3 if entry == "completion" else 2
    assert (status, reason, tokens) == (StatusCode.UNSET, *(("closed", taken) if disconnect else ("length", 6)))
    assert generation.parent is not None
    assert generation.parent.span_id == spans["request"].context.span_id
    assert caplog.records == []


@pytest.mark.parametrize("entry", TEXTS)
def test_a_call_in_asyncios_thread(entry: str, llama: Any, telemetry: Telemetry) -> None:
    """`asyncio.to_thread` copies the context: the span of the coroutine is the parent."""
    tracer = telemetry.tracer_provider.get_tracer("service")

    async def main() -> None:
        with tracer.start_as_current_span("coroutine"):
            await asyncio.to_thread(call, entry, llama, 5, stream=False)

    asyncio.run(main())
    spans = {span.name: span for span in telemetry.spans()}
    (generation,) = [span for name, span in spans.items() if name != "coroutine"]
    assert ended(generation)[1:] == ("length", 5)
    assert generation.parent is not None
    assert generation.parent.span_id == spans["coroutine"].context.span_id


@pytest.mark.parametrize("entry", ENTRIES)
def test_what_is_suppressed_is_decided_at_the_call(entry: str, llama: Any, telemetry: Telemetry) -> None:
    """Suppressed at the call and iterated outside: no span. Called outside and iterated suppressed: one."""
    with suppress_instrumentation():
        silent = call(entry, llama, 4)
    take(entry, silent, 3)
    silent.close()
    assert telemetry.spans() == ()
    assert telemetry.points("specdecode.request.started") == []
    heard = call(entry, llama, 4)
    with suppress_instrumentation():
        take(entry, heard, 3)
        heard.close()
    assert ended(telemetry.span())[2] == 3


def test_a_suppressed_chat_whose_handler_gives_no_generator(llama: Any, telemetry: Telemetry) -> None:
    """Its completion is silent too, though it begins outside the block."""

    def handler(*, llama: Any, **_: Any) -> Iterator[Any]:
        return map(dict, llama.create_completion(PROMPT, max_tokens=4, temperature=0.0, stream=True))

    llama.chat_handler = handler
    with suppress_instrumentation():
        chunks = llama.create_chat_completion(MESSAGES, stream=True)
    assert len(list(chunks)) >= 4
    assert telemetry.spans() == ()


def test_no_ending_makes_log_noise(cycle: Pair, telemetry: Telemetry, caplog: pytest.LogCaptureFixture) -> None:
    """Streams of several models, closed in another order than they began, log nothing: nothing was attached."""
    with caplog.at_level(logging.WARNING):
        streams = [call(entry, load(cycle, k)) for entry, k in zip(ENTRIES, (None, K, None), strict=True)]
        for stream in streams:
            next(stream)
        for stream in (streams[2], streams[0], streams[1]):
            next(stream)
            stream.close()
        assert len(telemetry.spans()) == 3
    assert caplog.records == []
