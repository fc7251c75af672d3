"""Putting the wrappers in place and taking them out again."""

from __future__ import annotations

import copy
import gc
import importlib
import inspect
import logging
import pickle
import sys
from typing import Any

import pytest
from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.sdk.trace import ReadableSpan

llama_cpp = pytest.importorskip("llama_cpp", reason="needs the [llama-cpp] extra")

from llama_cpp.llama_speculative import LlamaPromptLookupDecoding  # noqa: E402

import otel_specdecode  # noqa: E402
from otel_specdecode.engines.llama_cpp.hooks import LlamaCppHooks  # noqa: E402
from otel_specdecode.generation import faults  # noqa: E402
from otel_specdecode.generation.folding import FoldingObserver  # noqa: E402
from otel_specdecode.generation.observer import Recording, Ticket  # noqa: E402
from otel_specdecode.generation.request import Request  # noqa: E402
from otel_specdecode.telemetry.names import Attr, Enum  # noqa: E402
from otel_specdecode.testing.capture import Telemetry, capture  # noqa: E402
from tests.engines.llama_cpp.conftest import QUIET, Pair  # noqa: E402

pytestmark = pytest.mark.llama_cpp

PROMPT = [301, 302, 303]
MESSAGES = [{"role": "user", "content": "hello"}]
HOOKED = ("__init__", "create_chat_completion", "create_completion", "embed", "eval", "generate")
MODULES = ("llama_cpp", "llama_cpp.llama", "llama_cpp.llama_chat_format", "llama_cpp.llama_speculative")


def complete(llama: Any, tokens: int = 3, **options: Any) -> Any:
    """Make one greedy completion."""
    return llama.create_completion(PROMPT, max_tokens=tokens, temperature=0.0, **options)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """A span's attributes."""
    return dict(span.attributes or {})


def test_uninstrument_restores_every_attribute() -> None:
    """Six methods of one class are replaced, nothing else anywhere, and all of it comes back."""
    gc.collect()  # streams that other tests left in a circle are in flight
    before = dict(vars(llama_cpp.Llama))
    modules = {name: dict(vars(sys.modules[name])) for name in MODULES}
    with capture():
        during = dict(vars(llama_cpp.Llama))
        assert {name: dict(vars(sys.modules[name])) for name in MODULES} == modules
    assert tuple(sorted(name for name in before if before[name] is not during[name])) == HOOKED
    assert dict(vars(llama_cpp.Llama)) == before
    assert list(vars(llama_cpp.Llama)) == list(before)


@pytest.mark.parametrize("name", HOOKED)
def test_wrappers_look_like_what_they_wrap(name: str) -> None:
    """Name, signature and documentation are the engine's; they are methods, copied and pickled by name."""
    bare = getattr(llama_cpp.Llama, name)
    with capture():
        hooked = getattr(llama_cpp.Llama, name)
        assert hooked is not bare
        assert inspect.signature(hooked) == inspect.signature(bare)
        assert inspect.isfunction(hooked)
        for fact in ("__doc__", "__name__", "__qualname__", "__module__", "__annotations__"):
            assert getattr(hooked, fact) == getattr(bare, fact)
        assert copy.deepcopy(hooked) is pickle.loads(pickle.dumps(hooked)) is hooked
        assert b"otel_specdecode" not in pickle.dumps(hooked)


def test_the_call_itself_reaches_the_wrapper(cycle: Pair, telemetry: Telemetry) -> None:
    """`llama(...)` is a completion."""
    assert cycle.llama()("hello", max_tokens=3)["choices"]
    assert telemetry.span().name == "text_completion cycle-target"


def test_arguments_by_place_are_read_as_such(cycle: Pair, telemetry: Telemetry) -> None:
    """As the engine's own signatures have them."""
    llama = cycle.llama()
    llama.create_completion(PROMPT, None, 5, 0.5, 0.75)
    list(llama.create_chat_completion(MESSAGES, None, None, None, None, 0.5, 0.75, 7, 0.05, 1.0, True, [], 3, None, 4))
    loop = llama.generate(PROMPT, 7, 0.75, 0.05, 1.0, 0.5)
    next(loop)
    loop.close()
    found = [attributes(span) for span in telemetry.spans()]
    assert [each[Attr.GEN_AI_REQUEST_TEMPERATURE] for each in found] == [0.5, 0.5, 0.5]
    assert [each[Attr.GEN_AI_REQUEST_TOP_P] for each in found] == [0.75, 0.75, 0.75]
    assert [each[Attr.GEN_AI_REQUEST_TOP_K] for each in found] == [40, 7, 7]
    assert [each.get(Attr.GEN_AI_REQUEST_MAX_TOKENS) for each in found] == [5, 4, None]
    assert [each.get(Attr.GEN_AI_REQUEST_SEED) for each in found] == [None, 3, None]
    assert [each[Attr.GEN_AI_RESPONSE_FINISH_REASONS] for each in found] == [("length",), ("length",), ("closed",)]


def test_a_llama_made_before_is_reached(cycle: Pair) -> None:
    """The class is watched, not its objects."""
    llama = cycle.llama()
    with capture() as telemetry:
        complete(llama)
        assert attributes(telemetry.span())[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == 3


def test_a_method_bound_before_is_reached_inside(cycle: Pair) -> None:
    """`create_completion` taken before instrumentation: exact counts; no finish reason, which only it knew."""
    held = cycle.llama().create_completion
    with capture() as telemetry:
        held(PROMPT, max_tokens=5, temperature=0.0)
        list(held(PROMPT, max_tokens=4, temperature=0.0, stream=True))
        for span, tokens in zip(telemetry.spans(), (5, 4), strict=True):
            assert attributes(span)[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == tokens
            assert attributes(span)[Attr.SPECDECODE_DECODE_PASSES] == tokens - 1
            assert attributes(span).get(Attr.GEN_AI_RESPONSE_FINISH_REASONS, ("length",)) == ("length",)


def test_wrappers_held_after_uninstrument_pass_through(cycle: Pair) -> None:
    """Nothing more is recorded, and the engine is called as before."""
    llama, embedder = cycle.llama(), cycle.llama(embedding=True)
    with capture() as telemetry:
        held = {name: getattr(llama_cpp.Llama, name) for name in HOOKED}
    assert held["create_completion"](llama, PROMPT, max_tokens=2)["usage"]["completion_tokens"] == 2
    assert len(list(held["create_completion"](llama, PROMPT, max_tokens=2, stream=True))) == 3
    assert held["create_chat_completion"](llama, MESSAGES, max_tokens=2)["usage"]["completion_tokens"] == 2
    assert next(held["generate"](llama, PROMPT)) > 0
    held["eval"](llama, [301])
    assert len(held["embed"](embedder, "hello")) > 0
    assert telemetry.spans() == ()


def test_without_a_provider_the_engine_is_bare(cycle: Pair) -> None:
    """Nobody listens: the engine's own generators are returned."""
    llama = cycle.llama()
    otel_specdecode.instrument()
    try:
        for stream in (complete(llama, stream=True), llama.generate(PROMPT)):
            assert stream.gi_code.co_filename == inspect.getsourcefile(llama_cpp.Llama)
            next(stream)
    finally:
        otel_specdecode.uninstrument()


def test_suppressed_calls_are_bare(cycle: Pair, telemetry: Telemetry) -> None:
    """suppress_instrumentation silences every entry."""
    llama, embedder = cycle.llama(), cycle.llama(embedding=True)
    with suppress_instrumentation():
        complete(llama)
        list(complete(llama, stream=True))
        llama.create_chat_completion(MESSAGES, max_tokens=2)
        next(llama.generate(PROMPT))
        embedder.create_embedding("hello")
    assert telemetry.spans() == ()
    assert telemetry.points("specdecode.request.started") == []


def test_instrument_twice_changes_nothing(cycle: Pair, telemetry: Telemetry, caplog: pytest.LogCaptureFixture) -> None:
    """The drop-in module and instrument() may both run: one span a call, no warning."""
    with caplog.at_level(logging.WARNING):
        otel_specdecode.instrument()
        drop_in = importlib.import_module("otel_specdecode.llama_cpp")
        complete(drop_in.Llama(str(cycle.target), **QUIET))
    assert len(telemetry.spans()) == 1
    assert caplog.records == []


def test_instrumenting_again_binds_to_the_new_providers(cycle: Pair) -> None:
    """Each capture gets its own runs, every zero series included."""
    llama = cycle.llama(LlamaPromptLookupDecoding(num_pred_tokens=4))
    for _ in range(2):
        with capture() as telemetry:
            complete(llama)
            assert attributes(telemetry.span())[Attr.GEN_AI_REQUEST_MODEL] == "cycle-target"
            assert telemetry.total("specdecode.request.started") == 1
            assert len(telemetry.points("specdecode.hazards")) == len(Enum.SPECDECODE_HAZARD_ID)


def test_given_providers_replace_the_ones_before(cycle: Pair, telemetry: Telemetry) -> None:
    """instrument() with providers takes over from an earlier instrument()."""
    other = Telemetry()
    otel_specdecode.instrument(tracer_provider=other.tracer_provider, meter_provider=other.meter_provider)
    complete(cycle.llama())
    assert (len(telemetry.spans()), len(other.spans())) == (0, 1)
    other.shutdown()


def test_another_tools_wrapper_is_left_alone(cycle: Pair) -> None:
    """Put over ours: it is still there after uninstrument(), and what it calls passes through."""
    llama = cycle.llama()
    original = llama_cpp.Llama.create_completion

    def theirs(self: Any, *args: Any, **kwargs: Any) -> Any:
        return ours(self, *args, **kwargs)

    try:
        with capture() as telemetry:
            ours = llama_cpp.Llama.create_completion
            llama_cpp.Llama.create_completion = theirs
            complete(llama)
            assert len(telemetry.spans()) == 1
        assert llama_cpp.Llama.create_completion is theirs
        assert complete(llama)["usage"]["completion_tokens"] == 3
    finally:
        llama_cpp.Llama.create_completion = original


# Subclasses


class Asking(llama_cpp.Llama):  # type: ignore[misc]
    """Overrides what is hooked, and goes on to it."""

    def create_completion(self, prompt: Any, *args: Any, **kwargs: Any) -> Any:
        """With a shorter signature."""
        return super().create_completion(prompt, *args, **kwargs)

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """As a generator of its own."""
        yield from super().generate(*args, **kwargs)

    def eval(self, tokens: Any) -> None:
        """In two calls."""
        super().eval(tokens)


class Answering(llama_cpp.Llama):  # type: ignore[misc]
    """Overrides a hooked method without going on to it."""

    def create_completion(self, prompt: Any, **_: Any) -> Any:
        """Text of its own."""
        loop = self.generate(prompt, temp=0.0)
        tokens = [next(loop) for _ in range(3)]
        loop.close()
        return {"choices": [{"text": self.detokenize(tokens).decode(), "finish_reason": "stop"}]}


@pytest.mark.parametrize("entry", ["whole", "stream", "chat", "call"])
def test_a_subclass_that_goes_on_to_the_methods(entry: str, cycle: Pair, telemetry: Telemetry) -> None:
    """One span with every count, as for the class itself."""
    llama = Asking(str(cycle.target), n_ctx=256, **QUIET)
    if entry == "chat":
        llama.create_chat_completion(MESSAGES, max_tokens=4, temperature=0.0)
    elif entry == "call":
        llama(PROMPT, max_tokens=4, temperature=0.0)
    else:
        list(complete(llama, 4, stream=entry == "stream"))
    found = attributes(telemetry.span())
    assert found[Attr.GEN_AI_RESPONSE_FINISH_REASONS] == ("length",)
    assert found[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == 4
    assert found[Attr.SPECDECODE_PREFILL_PASSES] == 1
    assert found[Attr.SPECDECODE_DECODE_PASSES] == 3


def test_a_subclass_with_a_draft_that_goes_on_to_the_methods(cycle: Pair, telemetry: Telemetry) -> None:
    """Its overridden eval is a target pass, not the draft's."""
    lookup = LlamaPromptLookupDecoding(num_pred_tokens=4)
    llama = Asking(str(cycle.target), n_ctx=256, logits_all=True, draft_model=lookup, **QUIET)
    assert cycle.truth is not None
    prompt = [301, *cycle.truth.tokens(301, 12), 301]
    llama.create_completion(prompt, max_tokens=8, temperature=0.0)
    found = attributes(telemetry.span())
    assert found[Attr.SPECDECODE_VERIFY_PASSES] > 0
    assert found[Attr.SPECDECODE_DRAFT_ACCEPTED_TOKENS] > 0
    assert found[Attr.SPECDECODE_DRAFT_PASSES] == 0


def test_a_subclass_that_answers_by_itself(cycle: Pair, telemetry: Telemetry) -> None:
    """Its token loop is watched; alone it is a request, in a chat a part of it."""
    llama = Answering(str(cycle.target), n_ctx=256, **QUIET)
    complete(llama)
    assert attributes(telemetry.span())[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == 3
    telemetry.clear()
    llama.chat_handler = lambda *, llama, **_: llama.create_completion(PROMPT)
    llama.create_chat_completion(MESSAGES)
    assert telemetry.span().name == "chat cycle-target"
    assert attributes(telemetry.span())[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == 3


# Pickling


@pytest.mark.parametrize("drafted", [False, True])
def test_an_instrumented_llama_is_pickled_as_a_bare_one(drafted: bool, cycle: Pair) -> None:
    """Its state is the engine's, used or not, and what comes back works; nothing of ours is in it."""
    llama = cycle.llama(LlamaPromptLookupDecoding(num_pred_tokens=3) if drafted else None, n_ctx=256)
    bare, state = pickle.dumps(llama), llama.__getstate__()
    with capture() as telemetry:
        assert pickle.dumps(llama) == bare
        text = complete(llama)["choices"][0]["text"]
        used = pickle.dumps(llama)
        assert llama.__getstate__() == {**state, "seed": llama._seed}
        assert b"otel_specdecode" not in used
        assert complete(pickle.loads(used))["choices"][0]["text"] == text
        assert len(telemetry.spans()) == 2


# Versions of another shape


@pytest.mark.parametrize("name", [*HOOKED[1:], "one that is gone"])
def test_an_unexpected_version_stays_bare(
    name: str, cycle: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A hooked method without a parameter that is read, or missing: nothing is hooked, and one warning says so."""

    def other(self: Any, *, everything: Any) -> Any:
        return everything

    if name == "one that is gone":
        monkeypatch.delattr(llama_cpp.Llama, "embed")
    else:
        monkeypatch.setattr(llama_cpp.Llama, name, other)
    before = dict(vars(llama_cpp.Llama))
    hooks = LlamaCppHooks()
    with caplog.at_level(logging.WARNING):
        hooks.install(FoldingObserver())
        assert dict(vars(llama_cpp.Llama)) == before
        hooks.remove()
        hooks.install(FoldingObserver())
        hooks.remove()
    assert dict(vars(llama_cpp.Llama)) == before
    (record,) = caplog.records
    assert record.message.startswith("this version of llama-cpp-python is not watched: Llama is not as expected (")
    assert record.message.endswith("generation is not affected")


# Telemetry that fails


class Failing(FoldingObserver):
    """An observer that raises at one place."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self._where = where

    def admit(self) -> Ticket:
        """Raise here, or later."""
        if self._where == "admit":
            raise ValueError("secret prompt")
        return self

    def begin(self, request: Request, began: int, ago: int) -> Recording:
        """Raise here, or later."""
        if self._where == "begin":
            raise ValueError("secret prompt")
        recording = super().begin(request, began, ago)
        setattr(recording, self._where, self._raise)
        return recording

    def _raise(self, *_: Any) -> None:
        raise ValueError("secret prompt")


@pytest.mark.parametrize("where", ["admit", "begin", "progress", "end_segment", "finish"])
def test_telemetry_that_raises_never_reaches_the_caller(
    where: str, cycle: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    """Every entry gives what it gives bare, with one warning a cause and no text of the exception."""
    llama, embedder = cycle.llama(), cycle.llama(embedding=True)

    def results() -> list[Any]:
        loop = llama.generate(PROMPT, temp=0.0)
        return [
            complete(llama)["choices"],
            [chunk["choices"] for chunk in complete(llama, 300, stream=True)],
            llama.create_chat_completion(MESSAGES, max_tokens=3, temperature=0.0)["choices"],
            [next(loop) for _ in range(3)],
            embedder.embed("hello"),
        ]

    bare = results()
    hooks = LlamaCppHooks()
    hooks.install(Failing(where))
    try:
        with caplog.at_level(logging.DEBUG):
            assert results() == bare
            faults.tell_faults()
    finally:
        hooks.remove()
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert warnings
    assert len(warnings) == len(set(warnings))
    assert "secret" not in caplog.text
