"""Putting the wrappers in place and taking them out again."""

from __future__ import annotations

import copy
import functools
import gc
import importlib
import inspect
import json
import logging
import pickle
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import mlx_lm
import pytest
from opentelemetry.instrumentation.utils import suppress_instrumentation

import otel_specdecode
from otel_specdecode.engines.mlx_lm.hooks import MLXLMHooks
from otel_specdecode.generation import faults
from otel_specdecode.generation.folding import FoldingObserver
from otel_specdecode.telemetry.names import Attr, Enum
from otel_specdecode.testing.capture import Telemetry, capture
from otel_specdecode.tiny_pair import chat_tokens, model_path
from tests.engines.mlx_lm.conftest import Pair, counted_passes, step_functions

pytestmark = pytest.mark.mlx

ROOT = Path(__file__).parents[3]
LATE_MODULES = ("mlx_lm.server", "mlx_lm.chat", "mlx_lm.cache_prompt")


def engine_functions() -> dict[tuple[str, str], object]:
    """Every function and class attribute of mlx-lm's loaded modules."""
    found: dict[tuple[str, str], object] = {}
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "mlx_lm":
            found |= {(name, key): value for key, value in vars(module).items() if callable(value)}
    found |= {("BatchGenerator", key): value for key, value in vars(step_functions().BatchGenerator).items()}
    return found


def run(pair: Pair, **options: Any) -> Any:
    """Stream three tokens to their end."""
    return list(mlx_lm.stream_generate(pair.target, pair.tokenizer, [301], max_tokens=3, **options))


@pytest.fixture
def not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if nobody had imported LATE_MODULES yet; afterwards the modules of before are back, which others hold."""
    for late in LATE_MODULES:
        monkeypatch.delitem(sys.modules, late, raising=False)
        monkeypatch.delattr(late, raising=False)


@pytest.mark.usefixtures("not_imported")
def test_uninstrument_restores_every_reference() -> None:
    """Also those that modules imported meanwhile copied."""
    before = engine_functions()
    with capture():
        during = engine_functions()
        for late in LATE_MODULES:
            importlib.import_module(late)
        assert sys.modules["mlx_lm.server"].stream_generate is mlx_lm.stream_generate
    changed = {key for key in before if before[key] is not during[key]}
    assert {name for _, name in changed} == {
        "batch_generate",
        "generate",
        "generate_step",
        "insert",
        "load",
        "make_sampler",
        "speculative_generate_step",
        "stream_generate",
        "next_generated" if hasattr(step_functions().BatchGenerator, "next_generated") else "next",
    }
    after = engine_functions()
    assert {key: after[key] for key in before} == before
    for late in LATE_MODULES:
        held = getattr(sys.modules[late], "stream_generate", mlx_lm.stream_generate)
        assert held is mlx_lm.stream_generate


def test_wrappers_look_like_what_they_wrap(telemetry: Telemetry) -> None:
    """Name, signature, documentation and generator kind are the engine's."""
    step = step_functions()
    assert str(inspect.signature(mlx_lm.stream_generate)).startswith("(model")
    assert mlx_lm.stream_generate.__name__ == "stream_generate"
    assert mlx_lm.stream_generate.__doc__ == mlx_lm.stream_generate.__wrapped__.__doc__
    assert inspect.isgeneratorfunction(step.generate_step)


@pytest.mark.parametrize("name", ["mlx_lm.generate", "mlx_lm.load", "mlx_lm.sample_utils.make_sampler"])
def test_wrappers_are_copied_and_pickled_by_name(name: str, telemetry: Telemetry) -> None:
    """As functions are: configurations hold them, and process pools send them."""
    module, _, attribute = name.rpartition(".")
    function = getattr(importlib.import_module(module), attribute)
    assert copy.copy(function) is copy.deepcopy([function])[0] is function
    assert pickle.loads(pickle.dumps(functools.partial(function, 1))).func is function
    insert = step_functions().BatchGenerator.insert
    assert copy.deepcopy(insert) is pickle.loads(pickle.dumps(insert)) is insert
    assert b"otel_specdecode" not in pickle.dumps(function)


def test_a_generation_inside_tokenizing_does_not_mix(
    telemetry: Telemetry, tiny: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tokenizer that generates while it encodes the outer prompt: a span for each, with its own counts."""
    inner = tiny.tokenizer._tokenizer
    original = inner.encode

    def encode(*args: Any, **kwargs: Any) -> Any:
        list(mlx_lm.stream_generate(tiny.target, tiny.tokenizer, [301], max_tokens=2))
        return original(*args, **kwargs)

    monkeypatch.setattr(inner, "encode", encode)
    options = {"max_tokens": 5, "draft_model": tiny.draft}
    assert len(list(mlx_lm.stream_generate(tiny.target, tiny.tokenizer, "Count from 3 to 9.", **options))) == 5
    found = [dict(span.attributes or {}) for span in telemetry.spans()]
    assert [each[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] for each in found] == [2, 5]
    assert [each[Attr.SPECDECODE_VERIFY_PASSES] > 0 for each in found] == [False, True]


def test_passes_that_were_not_seen_are_not_zeros(
    telemetry: Telemetry, cycle: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Another tool took the step function's place: the span has no counts rather than wrong ones, with one warning."""
    faults._told.clear()
    hooked = step_functions().speculative_generate_step
    monkeypatch.setattr(step_functions(), "speculative_generate_step", hooked.__wrapped__)
    for _ in range(2):
        run(cycle, draft_model=cycle.draft)
    for span in telemetry.spans():
        assert Attr.SPECDECODE_VERIFY_PASSES not in (span.attributes or {})
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert telemetry.total("specdecode.request.active") == 0


def test_another_wrapper_around_the_step_function(telemetry: Telemetry, cycle: Pair) -> None:
    """A tool that wraps the step function after us, and the model too, loses nothing."""
    step, hooked = step_functions(), step_functions().generate_step

    class Model:
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return cycle.target(*args, **kwargs)

        def __getattr__(self, name: str) -> Any:
            return getattr(cycle.target, name)

    step.generate_step = lambda prompt, model, *args, **kwargs: hooked(prompt, Model(), *args, **kwargs)
    try:
        run(cycle)
    finally:
        step.generate_step = hooked
    assert dict(telemetry.span().attributes or {})[Attr.SPECDECODE_DECODE_PASSES] == 3


def test_wrappers_held_after_uninstrument_pass_through(cycle: Pair) -> None:
    """Nothing more is recorded, and the engine is called as before."""
    with capture() as telemetry:
        held = (mlx_lm.stream_generate, mlx_lm.generate, mlx_lm.batch_generate, step_functions().generate_step)
    assert held[0] is not mlx_lm.stream_generate
    assert len(list(held[0](cycle.target, cycle.tokenizer, [301], max_tokens=3))) == 3
    assert isinstance(held[1](cycle.target, cycle.tokenizer, [301], max_tokens=3), str)
    assert len(held[2](cycle.target, cycle.tokenizer, [[301]], max_tokens=3).texts) == 1
    assert telemetry.spans() == ()


def test_a_stream_that_began_before_uninstrument_is_delivered(cycle: Pair) -> None:
    """Uninstrumenting in the middle of a stream loses nothing of it; one that had not begun stays bare."""
    with capture() as telemetry:
        began = mlx_lm.stream_generate(cycle.target, cycle.tokenizer, [301], max_tokens=5, draft_model=cycle.draft)
        waiting = mlx_lm.stream_generate(cycle.target, cycle.tokenizer, [301], max_tokens=5)
        next(began)
        otel_specdecode.uninstrument()
        assert len(list(began)) == 4
        assert len(list(waiting)) == 5
        assert dict(telemetry.span().attributes or {})[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == 5


def test_instrumenting_again_binds_to_the_new_providers(cycle: Pair) -> None:
    """Each capture gets its own runs, every zero series included, and names known before are still known."""
    for _ in range(2):
        with capture() as telemetry:
            run(cycle, draft_model=cycle.draft)
            found = dict(telemetry.span().attributes or {})
            assert (found[Attr.GEN_AI_REQUEST_MODEL], found[Attr.SPECDECODE_DRAFT_MODEL]) == ("target", "draft")
            assert telemetry.total("specdecode.request.started") == 1
            assert len(telemetry.points("specdecode.hazards")) == len(Enum.SPECDECODE_HAZARD_ID)


def test_instrument_twice_changes_nothing(telemetry: Telemetry, cycle: Pair, caplog: pytest.LogCaptureFixture) -> None:
    """The drop-in module and instrument() may both run: one span a call, no warning."""
    with caplog.at_level(logging.WARNING):
        otel_specdecode.instrument()
        drop_in = importlib.import_module("otel_specdecode.mlx_lm")
        list(drop_in.stream_generate(cycle.target, cycle.tokenizer, [301], max_tokens=3))
    assert len(telemetry.spans()) == 1
    assert caplog.records == []


def test_given_providers_replace_the_ones_before(telemetry: Telemetry, cycle: Pair) -> None:
    """instrument() with providers takes over from an earlier instrument()."""
    other = Telemetry()
    otel_specdecode.instrument(tracer_provider=other.tracer_provider, meter_provider=other.meter_provider)
    run(cycle)
    assert (len(telemetry.spans()), len(other.spans())) == (0, 1)
    other.shutdown()


def test_wrappers_imported_once_follow_the_observer_of_the_moment(eos: Pair) -> None:
    """The drop-in module is imported first, providers are given later: its functions are the ones that record."""
    with capture():
        held = mlx_lm.stream_generate
    with capture() as telemetry:
        list(held(eos.target, eos.tokenizer, chat_tokens(eos.tokenizer, "hello"), max_tokens=9))
        found = dict(telemetry.span().attributes or {})
        assert found[Attr.GEN_AI_RESPONSE_FINISH_REASONS] == ("stop",)
        assert mlx_lm.stream_generate is held


def test_a_model_that_cannot_be_named_is_loaded_all_the_same(
    telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No home folder, as for some container users: the engine's result is returned."""

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    target, _ = mlx_lm.load(str(model_path("target")))
    assert target.layers


def test_content_is_that_of_the_call(cycle: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """By opt-in, prompt and completion of a stream, from text or tokens; where only passes are seen, none at all."""
    import mlx.core as mx

    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")
    with capture() as telemetry:
        texts = [
            "".join(
                response.text
                for response in mlx_lm.stream_generate(cycle.target, cycle.tokenizer, prompt, max_tokens=4)
            )
            for prompt in ("hello", [301, 302])
        ]
        list(step_functions().generate_step(mx.array([301]), cycle.target, max_tokens=2))
        mlx_lm.batch_generate(cycle.target, cycle.tokenizer, [[301]], max_tokens=2)
        one, other, *rest = (dict(span.attributes or {}) for span in telemetry.spans())
    for found, prompt, text in ((one, "hello", texts[0]), (other, cycle.tokenizer.decode([301, 302]), texts[1])):
        assert json.loads(found[Attr.GEN_AI_INPUT_MESSAGES])[0]["parts"][0]["content"] == prompt
        assert json.loads(found[Attr.GEN_AI_OUTPUT_MESSAGES])[0]["parts"][0]["content"] == text
    assert len(rest) == 3
    assert not any(Attr.GEN_AI_INPUT_MESSAGES in found for found in rest)


def test_a_step_function_is_read_when_it_begins(telemetry: Telemetry, cycle: Pair) -> None:
    """A cache that is filled between the call and the first token counts as it is at the first token."""
    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache

    cache = make_prompt_cache(cycle.target)
    stream = step_functions().generate_step(mx.array([305, 306]), cycle.target, max_tokens=2, prompt_cache=cache)
    list(mlx_lm.stream_generate(cycle.target, cycle.tokenizer, [301], max_tokens=3, prompt_cache=cache))
    held = cache[0].offset
    list(stream)
    assert dict(telemetry.spans()[1].attributes or {})[Attr.GEN_AI_USAGE_INPUT_TOKENS] == held + 2


def test_a_reference_captured_earlier_is_reached_inside(cycle: Pair) -> None:
    """`stream_generate` held since before instrumentation: exact counts; no finish reason, which only it knew."""
    held = mlx_lm.stream_generate
    with capture() as telemetry, counted_passes(cycle) as passes:
        emitted = list(held(cycle.target, cycle.tokenizer, [301, 302], max_tokens=9, draft_model=cycle.draft))
        stopped = held(cycle.target, cycle.tokenizer, [301, 302], max_tokens=9)
        next(stopped)
        stopped.close()
        del stopped
        gc.collect()  # on Python 3.10 contextlib leaves a cycle around the frame that holds the inner generator
        whole, closed = (dict(span.attributes or {}) for span in telemetry.spans())
    assert whole[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == len(emitted) == 9
    assert whole[Attr.GEN_AI_RESPONSE_FINISH_REASONS] == ("length",)
    assert whole[Attr.SPECDECODE_DRAFT_ACCEPTED_TOKENS] == sum(response.from_draft for response in emitted)
    assert whole[Attr.SPECDECODE_DRAFT_PASSES] + whole[Attr.SPECDECODE_DRAFT_PREFILL_PASSES] == len(passes.draft)
    assert Attr.GEN_AI_RESPONSE_FINISH_REASONS not in closed


def test_suppressed_calls_are_bare(telemetry: Telemetry, cycle: Pair) -> None:
    """suppress_instrumentation silences spans, metrics and events."""
    with suppress_instrumentation():
        run(cycle)
    assert telemetry.spans() == ()
    assert telemetry.points("specdecode.request.started") == []


def test_without_a_provider_the_engine_is_bare(cycle: Pair) -> None:
    """Nobody listens: the engine's own generator is returned."""
    otel_specdecode.instrument()
    try:
        stream = mlx_lm.stream_generate(cycle.target, cycle.tokenizer, [301], max_tokens=3)
        assert stream.gi_code.co_filename.endswith("generate.py")
        assert len(list(stream)) == 3
    finally:
        otel_specdecode.uninstrument()


@pytest.mark.parametrize("name", ["stream_generate", "generate_step", "batch_generate", "BatchGenerator"])
def test_an_unexpected_version_stays_bare(
    name: str, cycle: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A hooked function with other parameters: nothing is hooked there, and one warning says so."""

    def other(*, everything: Any) -> Any:
        return everything

    class Other:
        pass

    monkeypatch.setattr(step_functions(), name, Other if name == "BatchGenerator" else other)
    before = engine_functions()
    faults._told.clear()
    hooks = MLXLMHooks()
    with caplog.at_level(logging.WARNING):
        hooks.install(FoldingObserver())
        during = engine_functions()
        hooks.remove()
    changed = {key[1] for key in before if before[key] is not during[key] and key != ("mlx_lm.server", "Queue")}
    assert changed == {"load", "make_sampler"}
    assert [record.message for record in caplog.records] == [
        (
            "this version of mlx-lm is not watched: mlx_lm.generate is not as expected "
            f"({'KeyError' if name == 'BatchGenerator' else 'TypeError'}); generation is not affected"
        )
    ]


def test_a_generation_inside_another_has_a_span_of_its_own(telemetry: Telemetry, cycle: Pair, tiny: Pair) -> None:
    """A logits processor that runs another model does not mix with the run it serves."""
    inner_tokens = []

    def processor(tokens: Any, logits: Any) -> Any:
        if not inner_tokens:
            inner_tokens.extend(mlx_lm.stream_generate(tiny.target, tiny.tokenizer, "hi", max_tokens=4))
        return logits

    outer = list(
        mlx_lm.stream_generate(cycle.target, cycle.tokenizer, [301], max_tokens=6, logits_processors=[processor])
    )
    tokens = sorted(dict(span.attributes or {})[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] for span in telemetry.spans())
    assert tokens == sorted((len(outer), len(inner_tokens)))


@pytest.mark.parametrize(("name", "fault"), [("mlx_lm.utils", AttributeError("orig_argv")), ("mlx_lm.renamed", None)])
def test_whatever_goes_wrong_as_a_module_is_imported_the_import_does_not_fail(
    name: str, fault: Exception | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def warn() -> None:
        if fault is not None:
            raise fault

    monkeypatch.setattr("otel_specdecode.engines.mlx_lm.hooks.warn_of_main_module", warn)
    hooks = MLXLMHooks()
    hooks._relay.observer = FoldingObserver()
    hooks._imported(ModuleType(name))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
