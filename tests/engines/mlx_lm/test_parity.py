"""Instrumented and bare runs of the same mode are the same to the caller."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx_lm
import pytest
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.sample_utils import make_logits_processors, make_sampler

from otel_specdecode.testing.capture import capture
from tests.engines.mlx_lm.conftest import Pair, step_functions

pytestmark = pytest.mark.mlx

SEEDS = 60

Trace = list[Any]


def options(draw: random.Random, pair: Pair, speculative: bool) -> dict[str, Any]:
    """Draw the options of a call; caches and samplers are made anew each time the same seed is drawn."""
    chosen: dict[str, Any] = {"max_tokens": draw.randint(1, 20)}
    if speculative:
        chosen |= {"draft_model": pair.draft, "num_draft_tokens": draw.randint(0, 6)}
    elif draw.random() < 0.2:
        chosen["max_kv_size"] = draw.choice((8, 64))
    if draw.random() < 0.4:
        chosen["sampler"] = make_sampler(temp=draw.choice((0.0, 0.7, 1.5)), top_p=0.9, top_k=draw.choice((0, 5)))
    if draw.random() < 0.3:
        chosen["logits_processors"] = make_logits_processors(repetition_penalty=1.4)
    if draw.random() < 0.2:
        chosen |= {"kv_bits": 8, "quantized_kv_start": draw.choice((0, 4))}
    if draw.random() < 0.3:
        cache = make_prompt_cache(pair.target)
        chosen["prompt_cache"] = cache + make_prompt_cache(pair.draft) if speculative else cache
    if draw.random() < 0.5:
        chosen["prefill_step_size"] = draw.choice((2, 5, 64))
    return chosen


def prompt(draw: random.Random) -> Any:
    """Draw a prompt as text, list or array."""
    ids = [draw.randrange(3, 500) for _ in range(draw.randint(1, 12))]
    return draw.choice((ids, mx.array(ids), "Tell me a story", "a", "<|im_start|>user\nhi<|im_end|>\n"))


def fields(response: Any) -> tuple[Any, ...]:
    """What a response says, but for its times and memory."""
    return (
        type(response),
        response.text,
        response.token,
        response.from_draft,
        response.prompt_tokens,
        response.generation_tokens,
        response.finish_reason,
        response.logprobs.tolist(),
    )


def outcome_of(call: Callable[[], Trace]) -> Trace:
    """Run a call; return its trace, with the exception at the end if it raised."""
    trace: Trace = []
    try:
        trace += call()
    except Exception as error:
        trace.append((type(error), str(error)))
    return trace


def stream(seed: int, pair: Pair) -> Trace:
    """Stream one random call, dropping it early sometimes, and go on from its cache sometimes."""
    draw = random.Random(seed)
    mx.random.seed(seed)
    chosen = options(draw, pair, speculative=draw.random() < 0.6)
    stop = draw.choice((None, None, draw.randint(1, 8)))
    trace: Trace = []
    for number, response in enumerate(mlx_lm.stream_generate(pair.target, pair.tokenizer, prompt(draw), **chosen), 1):
        trace.append(fields(response))
        if number == stop:
            break
    if "prompt_cache" in chosen:
        trace.append([layer.offset for layer in chosen["prompt_cache"]])
        again = mlx_lm.stream_generate(pair.target, pair.tokenizer, [301, 302], **chosen)
        trace += [fields(response) for response in again]
    return trace


@pytest.mark.parametrize("name", ["cycle", "tiny"])
def test_streams_are_the_same(name: str, request: pytest.FixtureRequest) -> None:
    """Tokens, text, logprobs, flags, finish reasons, cache offsets and exceptions, random settings, both modes."""
    pair: Pair = request.getfixturevalue(name)
    bare = [outcome_of(lambda seed=seed: stream(seed, pair)) for seed in range(SEEDS)]
    with capture() as telemetry:
        watched = [outcome_of(lambda seed=seed: stream(seed, pair)) for seed in range(SEEDS)]
        assert len(telemetry.spans()) >= SEEDS
    for seed, (one, other) in enumerate(zip(bare, watched, strict=True)):
        assert one == other, seed


def test_whole_texts_are_the_same(tiny: Pair) -> None:
    """`generate` returns the same text, speculatively or not."""

    def texts() -> list[str]:
        return [
            mlx_lm.generate(tiny.target, tiny.tokenizer, "Count from 3 to 9.", max_tokens=24, **draft)
            for draft in ({}, {"draft_model": tiny.draft, "num_draft_tokens": 3})
        ]

    bare = texts()
    with capture():
        assert texts() == bare


def test_batches_are_the_same(tiny: Pair) -> None:
    """`batch_generate` returns the same texts and statistics."""
    prompts = [tiny.tokenizer.encode(text) for text in ("Count from 3 to 9.", "List 4 names.", "hi")]

    def run() -> tuple[list[str], int, int]:
        response = mlx_lm.batch_generate(tiny.target, tiny.tokenizer, prompts, max_tokens=[5, 9, 14])
        return response.texts, response.stats.prompt_tokens, response.stats.generation_tokens

    bare = run()
    with capture() as telemetry:
        assert run() == bare
        assert len(telemetry.spans()) == 4


BAD_CALLS: dict[str, Callable[[Pair], Any]] = {
    "no tokens": lambda pair: list(mlx_lm.stream_generate(pair.target, pair.tokenizer, [301], max_tokens=0)),
    "empty prompt": lambda pair: list(mlx_lm.stream_generate(pair.target, pair.tokenizer, [])),
    "unknown option": lambda pair: list(mlx_lm.stream_generate(pair.target, pair.tokenizer, [301], colour="red")),
    "no limit with a draft": lambda pair: list(
        mlx_lm.stream_generate(pair.target, pair.tokenizer, [301], max_tokens=-1, draft_model=pair.draft)
    ),
    "negative draft length": lambda pair: list(
        mlx_lm.stream_generate(pair.target, pair.tokenizer, [301], draft_model=pair.draft, num_draft_tokens=-1)
    ),
    "draft length of text": lambda pair: list(
        mlx_lm.stream_generate(pair.target, pair.tokenizer, [301], draft_model=pair.draft, num_draft_tokens="two")
    ),
    "prompt of the wrong type": lambda pair: list(mlx_lm.stream_generate(pair.target, pair.tokenizer, object())),
    "no model": lambda pair: list(mlx_lm.stream_generate(None, pair.tokenizer, [301])),
    "no tokenizer": lambda pair: mlx_lm.generate(pair.target, None, [301]),
    "draft that is no model": lambda pair: list(
        mlx_lm.stream_generate(pair.target, pair.tokenizer, [301], draft_model=object())
    ),
    "embeddings with a draft": lambda pair: list(
        mlx_lm.stream_generate(
            pair.target, pair.tokenizer, [301], draft_model=pair.draft, input_embeddings=mx.zeros((1, 64))
        )
    ),
    "missing arguments": lambda pair: mlx_lm.stream_generate(pair.target),
    "step without prompt": lambda pair: list(step_functions().generate_step(mx.array([], mx.uint32), pair.target)),
    "failing sampler": lambda pair: list(
        mlx_lm.stream_generate(pair.target, pair.tokenizer, [301], sampler=lambda _: 1 / 0)
    ),
    "batch of nothing sensible": lambda pair: mlx_lm.batch_generate(pair.target, pair.tokenizer, [None]),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_input_gives_the_engines_own_error(name: str, cycle: Pair) -> None:
    """The same exception with the same text, and at most one span a call, an error with error.type."""
    call = BAD_CALLS[name]
    bare = outcome_of(lambda: [call(cycle)])
    with capture() as telemetry:
        watched = outcome_of(lambda: [call(cycle)])
        spans = telemetry.spans()
    assert watched == bare
    assert isinstance(bare[-1], tuple), "this call was meant to fail"
    assert len(spans) == (0 if name == "missing arguments" else 1)
    for span in spans:
        assert span.status.status_code.name == "ERROR"
        assert dict(span.attributes or {})["error.type"].rpartition(".")[2] == bare[-1][0].__name__


def test_unlimited_streams_stay_unlimited(cycle: Pair) -> None:
    """max_tokens = -1 goes on until the consumer stops."""
    with capture() as telemetry:
        stream = mlx_lm.stream_generate(cycle.target, cycle.tokenizer, [301], max_tokens=-1)
        for _ in range(300):
            next(stream)
        stream.close()
        assert dict(telemetry.span().attributes or {})["gen_ai.usage.output_tokens"] == 300
