"""`batch_generate`: a span for the batch, one for each prompt under it, every pass counted once."""

from __future__ import annotations

import contextlib
import gc
import itertools
import sys
import weakref
from typing import Any

import mlx_lm
import pytest
from opentelemetry.trace import StatusCode

from otel_specdecode.telemetry.names import Attr
from otel_specdecode.testing.capture import Telemetry
from otel_specdecode.testing.checker import assert_conformant
from tests.engines.mlx_lm.conftest import EOS, SPLITS_PREFILL, Pair, counted_passes, step_functions

pytestmark = pytest.mark.mlx

PROMPTS = [[301, 302, 303, 304], [310], [320, 321]]


def test_a_batch(telemetry: Telemetry, cycle: Pair) -> None:
    """Three prompts of unequal limits: each child has its own tokens and passes, the batch the passes of all once."""
    limits = [3, 9, 6]
    with counted_passes(cycle) as passes:
        mlx_lm.batch_generate(cycle.target, cycle.tokenizer, PROMPTS, max_tokens=limits)
    *children, batch = telemetry.spans()
    whole = dict(batch.attributes or {})
    assert batch.name == "text_completion target"
    assert whole[Attr.SPECDECODE_BATCH_SIZE] == 3
    assert Attr.SPECDECODE_MODE not in whole
    assert whole[Attr.SPECDECODE_DECODE_PASSES] + whole[Attr.SPECDECODE_PREFILL_PASSES] == len(passes.target)
    found = [dict(child.attributes or {}) for child in children]
    assert sorted(each[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] for each in found) == sorted(limits)
    for child, each in zip(children, found, strict=True):
        assert child.parent is not None
        assert child.parent.span_id == batch.context.span_id
        assert each[Attr.SPECDECODE_MODE] == "autoregressive"
        assert each[Attr.GEN_AI_RESPONSE_FINISH_REASONS] == ("length",)
        assert each[Attr.GEN_AI_REQUEST_MAX_TOKENS] == each[Attr.GEN_AI_USAGE_OUTPUT_TOKENS]
        assert each[Attr.SPECDECODE_DECODE_PASSES] == each[Attr.GEN_AI_USAGE_OUTPUT_TOKENS]
    assert telemetry.total("specdecode.decode.passes") == whole[Attr.SPECDECODE_DECODE_PASSES] == max(limits)
    assert telemetry.total("specdecode.decode.tokens") == sum(limits) - 3
    assert telemetry.total("specdecode.request.started") == 3
    assert telemetry.total("specdecode.request.active") == 0
    assert telemetry.total("gen_ai.client.operation.duration") == 3
    by_input = {each[Attr.GEN_AI_USAGE_INPUT_TOKENS] for each in found}
    assert by_input == {4, 1, 2}


def test_more_prompts_than_fit(telemetry: Telemetry, cycle: Pair) -> None:
    """Prompts that wait for a place in the batch are recorded like the others."""
    prompts = [[300 + number] for number in range(11)]
    options = {"completion_batch_size": 4, "prefill_batch_size": 2}
    with counted_passes(cycle) as passes:
        mlx_lm.batch_generate(cycle.target, cycle.tokenizer, prompts, max_tokens=5, **options)
    *children, batch = telemetry.spans()
    whole = dict(batch.attributes or {})
    assert len(children) == 11
    assert whole[Attr.SPECDECODE_DECODE_PASSES] + whole[Attr.SPECDECODE_PREFILL_PASSES] == len(passes.target)
    assert {dict(child.attributes or {})[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] for child in children} == {5}


def test_a_batch_that_fails(telemetry: Telemetry, cycle: Pair) -> None:
    """The error reaches the caller; the batch and every prompt still running end with it."""
    calls = itertools.count(1)

    def sampler(logprobs: Any) -> Any:
        if next(calls) > 4:
            raise MemoryError
        return logprobs.argmax(axis=-1)

    with pytest.raises(MemoryError):
        mlx_lm.batch_generate(cycle.target, cycle.tokenizer, PROMPTS, max_tokens=20, sampler=sampler)
    spans = telemetry.spans()
    assert len(spans) == 4
    for span in spans:
        assert span.status.status_code is StatusCode.ERROR
        assert dict(span.attributes or {})[Attr.ERROR_TYPE] == "MemoryError"


def test_a_batch_that_fails_holds_nothing(telemetry: Telemetry, cycle: Pair) -> None:
    """The error's traceback makes no cycle that would hold the caller's objects until a collection."""

    class Sampler:
        def __call__(self, logprobs: Any) -> Any:
            raise MemoryError

    sampler = Sampler()
    alive = weakref.ref(sampler)
    gc.collect()
    gc.disable()
    try:
        with contextlib.suppress(MemoryError):
            mlx_lm.batch_generate(cycle.target, cycle.tokenizer, PROMPTS, max_tokens=4, sampler=sampler)
        del sampler
        telemetry.spans()
        assert alive() is None or sys.version_info < (3, 11)
    finally:
        gc.enable()


def test_passes_and_tokens_have_one_context_tier(telemetry: Telemetry, cycle: Pair) -> None:
    """The passes of a batch are labelled by its longest prompt."""
    mlx_lm.batch_generate(cycle.target, cycle.tokenizer, [[301] * 1_100], max_tokens=3)
    assert telemetry.total("specdecode.decode.passes", context_tier="mid") == 3
    assert telemetry.total("specdecode.decode.tokens", context_tier="mid") == 2


def test_a_batch_inside_a_batch(telemetry: Telemetry, cycle: Pair) -> None:
    """A sampler that runs another batch, and an engine object of its own: neither mixes with the one it serves."""
    mlx_lm.batch_generate(cycle.target, cycle.tokenizer, PROMPTS, max_tokens=4)
    alone = dict(telemetry.spans()[-1].attributes or {})[Attr.SPECDECODE_DECODE_PASSES]
    telemetry.clear()
    began: list[bool] = []

    def sampler(logprobs: Any) -> Any:
        if not began:
            began.append(True)
            mlx_lm.batch_generate(cycle.target, cycle.tokenizer, [[330]], max_tokens=2)
            own = step_functions().BatchGenerator(cycle.target, stop_tokens=[[EOS]] if SPLITS_PREFILL else {EOS})
            own.insert([[340, 341]], [3])
            step = own.next_generated if hasattr(own, "next_generated") else own.next
            while step():
                pass
        return logprobs.argmax(axis=-1)

    mlx_lm.batch_generate(cycle.target, cycle.tokenizer, PROMPTS, max_tokens=4, sampler=sampler)
    found = [dict(span.attributes or {}) for span in telemetry.spans()]
    batches = {each[Attr.SPECDECODE_BATCH_SIZE]: each for each in found if Attr.SPECDECODE_BATCH_SIZE in each}
    assert {size: each[Attr.SPECDECODE_DECODE_PASSES] for size, each in batches.items()} == {1: 2, 3: alone}
    tokens = [each[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] for each in found if Attr.SPECDECODE_BATCH_SIZE not in each]
    assert sorted(tokens) == [2, 4, 4, 4]
    assert telemetry.total("specdecode.request.active") == 0


def test_batches_conform(telemetry: Telemetry, cycle: Pair) -> None:
    """What a batch emits is what the registry declares; prefill, which its prompts share, is on none of them."""
    mlx_lm.batch_generate(cycle.target, cycle.tokenizer, PROMPTS, max_tokens=4)
    assert_conformant(
        spans=telemetry.spans(),
        metrics=telemetry.metrics_data(),
    )
