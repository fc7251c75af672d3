"""What outlives what: streams the instrumentation, streams one another, and nothing a Llama that was dropped."""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from opentelemetry.instrumentation.utils import suppress_instrumentation

import otel_specdecode
from otel_specdecode.telemetry.names import Attr
from otel_specdecode.testing.capture import Telemetry, capture
from tests.engines.llama_cpp.calling import ENTRIES, MESSAGES, PROMPT, TEXTS, K, call, ended, llama_cpp, load, take
from tests.engines.llama_cpp.conftest import Pair
from tests.engines.spans import attributes, collect_inside_the_sdk

pytestmark = pytest.mark.llama_cpp


@pytest.fixture(params=[None, K], ids=["autoregressive", "speculative"])
def llama(request: pytest.FixtureRequest, cycle: Pair) -> Any:
    """The target, without a draft and with one."""
    return load(cycle, request.param)


# Uninstrumenting meanwhile


@pytest.mark.parametrize("entry", ENTRIES)
def test_uninstrumenting_in_the_middle_of_a_stream(entry: str, llama: Any) -> None:
    """What has begun is told in full, what had not stays bare, and the class is whole when the last stream has gone."""
    gc.collect()  # streams that other tests left in a circle are in flight
    before = dict(vars(llama_cpp.Llama))
    with capture() as telemetry:
        began = call(entry, llama, 9)
        take(entry, began, 2)
        waiting = call("completion", llama, 3)
        otel_specdecode.uninstrument()
        if entry == "generate":
            take(entry, began, 7)
            began.close()
        else:
            list(began)
        del began
        assert dict(vars(llama_cpp.Llama)) == before or waiting.gi_frame is not None
        list(waiting)
        del waiting
        assert dict(vars(llama_cpp.Llama)) == before
        span = telemetry.span()
        assert attributes(span)[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == 9
        passes = attributes(span)[Attr.SPECDECODE_DECODE_PASSES]
        assert passes == 8 if llama.draft_model is None else 1 < passes < 8
        assert attributes(span)[Attr.SPECDECODE_PREFILL_PASSES] == 1


def test_uninstrumenting_between_two_completions_of_a_chat(llama: Any) -> None:
    """The second completion is a part of a call that has begun: its tokens are counted, or none are."""

    def handler(*, llama: Any, **_: Any) -> Iterator[Any]:
        for prompt in (PROMPT, [310, 311]):
            yield from llama.create_completion(prompt, max_tokens=5, temperature=0.0, stream=True)

    llama.chat_handler = handler
    with capture() as telemetry:
        chunks = llama.create_chat_completion(MESSAGES, stream=True)
        next(chunks)
        otel_specdecode.uninstrument()
        list(chunks)
        del chunks
        found = attributes(telemetry.span())
        assert found.get(Attr.GEN_AI_USAGE_OUTPUT_TOKENS) in (10, None)
        assert found.get(Attr.SPECDECODE_PREFILL_PASSES) in (2, None)


def test_instrumenting_again_meanwhile(llama: Any) -> None:
    """A stream goes on for those it began with; a new call is the new providers' alone."""
    gc.collect()  # streams that other tests left in a circle are in flight
    before = dict(vars(llama_cpp.Llama))
    with capture() as first:
        stream = call("completion", llama, 6)
        take("completion", stream, 2)
        otel_specdecode.uninstrument()
        second = Telemetry()
        otel_specdecode.instrument(tracer_provider=second.tracer_provider, meter_provider=second.meter_provider)
        list(stream)
        del stream
        call("completion", llama, 3, stream=False)
        assert (ended(first.span())[2], ended(second.span())[2]) == (6, 3)
        assert attributes(first.span())[Attr.SPECDECODE_PREFILL_PASSES] == 1
        otel_specdecode.uninstrument()
        assert dict(vars(llama_cpp.Llama)) == before
        second.shutdown()


# Two streams of one Llama


@dataclass
class Loop:
    """What one stream really did.

    Attributes:
        fed: Tokens of each of its passes.
        emitted: Number of tokens that came after each pass.
        tokens: What it emitted.
    """

    fed: list[list[int]] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    def compared(self) -> tuple[int, int]:
        """Accepted tokens, by comparing each proposal with what was emitted in its place, and passes with one."""
        accepted = rounds = 0
        ends = [*self.starts[1:], len(self.tokens)]
        for fed, start, end in list(zip(self.fed, self.starts, ends, strict=True))[1:]:
            proposed, emitted = fed[1:], self.tokens[start:end]
            rounds += bool(proposed)
            pairs = zip(proposed, emitted, strict=False)
            accepted += next((place for place, (one, other) in enumerate(pairs) if one != other), None) or min(
                len(proposed), len(emitted)
            )
        return accepted, rounds


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("order", ["abababab", "aabab", "aaabbba", "aaaaabab"])
def test_two_streams_of_one_llama(
    order: str, same: bool, llama: Any, telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine mixes them up, which is its caller's fault: what is told of each is true or absent."""
    running = ""
    loops = {"a": Loop(), "b": Loop()}
    evaluate = llama_cpp.Llama.eval

    def noted(self: Any, tokens: Any) -> None:
        loops[running].fed.append(list(tokens))
        loops[running].starts.append(len(loops[running].tokens))
        evaluate(self, tokens)

    monkeypatch.setattr(llama_cpp.Llama, "eval", noted)
    prompts = {"a": PROMPT, "b": PROMPT if same else [310, 311, 312]}
    streams = {name: call("generate", llama, prompt=prompt) for name, prompt in prompts.items()}
    for running in order:
        loops[running].tokens.append(next(streams[running]))
    for stream in streams.values():
        stream.close()
    for span, loop in zip(telemetry.spans(), loops.values(), strict=True):
        found = attributes(span)
        told = found.get(Attr.GEN_AI_USAGE_OUTPUT_TOKENS)
        assert told in (len(loop.tokens), None)
        if told is None:
            assert Attr.SPECDECODE_DECODE_PASSES not in found
            continue
        accepted, rounds = loop.compared() if llama.draft_model is not None else (0, 0)
        assert found[Attr.SPECDECODE_VERIFY_PASSES] == rounds
        assert found[Attr.SPECDECODE_DRAFT_ACCEPTED_TOKENS] == accepted
        assert found[Attr.SPECDECODE_DECODE_PASSES] == len(loop.fed) - 1


# Nothing held


def held(pair: Pair, k: int | None, entry: str, ending: str) -> int:
    """Run a stream to an ending, drop it with its Llama, and count what only a collection would free."""
    llama = load(pair, k)
    alive = [weakref.ref(llama)]
    if ending == "whole":
        call(entry, llama, 4, stream=False)
        del llama
        return sum(each() is not None for each in alive)
    stream = call(entry, llama, 4)
    alive.append(weakref.ref(stream))
    if ending != "never iterated":
        take(entry, stream, 2)
    if ending == "consumed":
        for _ in zip(stream, range(4), strict=False):
            pass
    elif ending == "engine fails":
        llama._ctx.decode = failing_decode
        with contextlib.suppress(MemoryError):
            list(stream)
    elif ending == "thrown into":
        with contextlib.suppress(TimeoutError):
            stream.throw(TimeoutError())
    elif ending == "closed":
        stream.close()
    del stream, llama
    return sum(each() is not None for each in alive)


def failing_decode(_: Any) -> None:
    """A pass that fails."""
    raise MemoryError


def without_collector(function: Callable[[], int]) -> int:
    """Run with the collector off."""
    gc.collect()
    gc.disable()
    try:
        return function()
    finally:
        gc.enable()


LEFT = ("never iterated", "dropped", "closed", "consumed", "engine fails", "thrown into")


@pytest.mark.parametrize(
    ("entry", "ending"),
    [*((entry, ending) for entry in ENTRIES for ending in LEFT), *((entry, "whole") for entry in TEXTS)],
)
@pytest.mark.parametrize("k", [None, K])
def test_nothing_is_held_after_the_end(k: int | None, entry: str, ending: str, cycle: Pair) -> None:
    """A Llama, which can be gigabytes, is freed as it is dropped, as soon as a bare one."""
    run = functools.partial(held, cycle, k, entry, ending)
    bare = without_collector(run)
    with capture() as telemetry:
        watched = without_collector(run)
        with suppress_instrumentation():
            silent = without_collector(run)
        assert len(telemetry.spans()) == (ending != "never iterated")
    assert max(watched, silent) <= bare
    assert bare == 0 or sys.version_info < (3, 11)


def test_nothing_is_held_after_embeddings(cycle: Pair, telemetry: Telemetry) -> None:
    """The same for a call that emits no token."""

    def embed() -> int:
        llama = cycle.llama(embedding=True)
        alive = weakref.ref(llama)
        llama.create_embedding("hello")
        del llama
        return int(alive() is not None)

    assert without_collector(embed) == 0


def test_collection_in_the_middle_of_an_sdk_call(
    llama: Any, telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream found by the collector while the SDK holds its own lock ends without a deadlock."""
    collect_inside_the_sdk(lambda: call("chat", llama), telemetry, monkeypatch)
    assert ended(telemetry.span())[1] == "closed"
