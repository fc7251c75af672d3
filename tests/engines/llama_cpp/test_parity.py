"""Instrumented and bare runs of the same mode are the same to the caller."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest

from otel_specdecode.telemetry.names import Attr
from otel_specdecode.testing.capture import capture
from tests.engines.llama_cpp.conftest import Pair
from tests.engines.llama_cpp.ground_truth import Generating, Lookup, Scripted, SecondModel, llama_cpp

pytestmark = pytest.mark.llama_cpp

SEEDS = 60
BATCH = 20
CHAT = [{"role": "user", "content": "Count from 3 to 9."}]
LETTERS = 'root ::= " "? [a-z0-9]+ (" " [a-z0-9]+)*'

ENTRIES = ("generate", "create_completion", "__call__", "create_chat_completion")
DRAFTS = ("none", "lookup", "scripted", "generating", "second model")

Trace = list[Any]


class Bench:
    """A pair's models, loaded once."""

    def __init__(self, pair: Pair) -> None:
        """Load a target without logits of every position, one with them, and a draft."""
        size = {"n_ctx": 512, "n_batch": 64}
        self.plain = pair.llama(**size)
        self.drafted = pair.llama(logits_all=True, **size)
        self.draft = pair.draft_llama(n_ctx=512)

    def fresh(self, draft: str) -> Any:
        """Return a target that remembers nothing, with what drafts for it."""
        llama = self.plain if draft == "none" else self.drafted
        for each in (llama, self.draft):
            each.reset()
            each.input_ids[:] = 0
            each.scores[:] = 0
            each.set_seed(0)
        llama.set_cache(None)
        llama.draft_model = self._draft_of(draft, llama)
        return llama

    def _draft_of(self, draft: str, llama: Any) -> Any:
        made = {
            "none": lambda: None,
            "lookup": lambda: Lookup(2, 5),
            "scripted": lambda: Scripted(lambda ids: [int(ids[-1]), 301, 7], 3, declared=False),
            "generating": lambda: Generating(self.draft, 3),
            "second model": lambda: SecondModel(self.draft, llama, num_pred_tokens=4),
        }[draft]()
        if made is not None:
            made.log = []
        return made

    def close(self) -> None:
        """Free the models."""
        for llama in (self.plain, self.drafted, self.draft):
            llama.draft_model = None
            llama.close()


@pytest.fixture(scope="module", params=["cycle", "tiny"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """The models of both pairs, one after the other."""
    bench = Bench(request.getfixturevalue(request.param))
    yield bench
    bench.close()


def sampling(draw: random.Random) -> dict[str, Any]:
    """Draw what every entry takes but under another name for the temperature."""
    chosen: dict[str, Any] = {"temperature": draw.choice((0.0, 0.0, 0.7, 3.0))}
    if draw.random() < 0.5:
        chosen |= {"top_k": draw.choice((0, 5)), "top_p": draw.choice((0.9, 1.0)), "min_p": 0.0}
    if draw.random() < 0.3:
        chosen |= {"repeat_penalty": 1.4, "frequency_penalty": 0.2, "presence_penalty": 0.1}
    if draw.random() < 0.2:
        chosen["mirostat_mode"] = draw.choice((1, 2))
    if draw.random() < 0.2:
        chosen["logits_processor"] = llama_cpp.LogitsProcessorList([lambda _, scores: np.roll(scores, 1)])
    return chosen


def texting(draw: random.Random, entry: str, logits_all: bool) -> dict[str, Any]:
    """Draw what completions and chats take."""
    chosen = {**sampling(draw), "max_tokens": draw.randint(1, 24), "stream": draw.random() < 0.5}
    if draw.random() < 0.3:
        chosen["stop"] = draw.choice((["e", "zz"], " b", "9"))
    if draw.random() < 0.5:
        chosen["seed"] = draw.randrange(1000)
    if draw.random() < 0.2:
        chosen["logit_bias"] = {301: 4.0, 40: 3.0}
    if draw.random() < 0.2:
        chosen["grammar"] = llama_cpp.LlamaGrammar.from_string(LETTERS, verbose=False)
    if entry == "create_chat_completion":
        if draw.random() < 0.2:
            chosen |= {"response_format": {"type": "json_object"}, "grammar": None}
        if logits_all and draw.random() < 0.3:
            chosen |= {"logprobs": True, "top_logprobs": 2}
        return chosen
    if logits_all and draw.random() < 0.3:
        chosen["logprobs"] = 2
    if draw.random() < 0.2:
        chosen["echo"] = True
    if draw.random() < 0.2:
        chosen["suffix"] = " the end"
    if draw.random() < 0.2:
        chosen["stopping_criteria"] = stopping_after(draw.randint(8, 30))
    return chosen


def stopping_after(tokens: int) -> Any:
    """Return criteria that stop at a length."""
    return llama_cpp.StoppingCriteriaList([lambda ids, _: len(ids) >= tokens])


def prompt(draw: random.Random) -> Any:
    """Draw a prompt as text or tokens, longer than a batch sometimes."""
    ids = [draw.randrange(3, 500) for _ in range(draw.choice((1, 2, 5, 12, 70)))]
    return draw.choice((ids, ids * 2, "Count from 3 to 9.", "a", "<|im_start|>user\nhi<|im_end|>\n"))


def loop(draw: random.Random, llama: Any, most: int | None) -> Iterator[Any]:
    """Run a token loop of random settings; send a token into it sometimes."""
    options = sampling(draw)
    options["temp"] = options.pop("temperature")
    if draw.random() < 0.2:
        options["stopping_criteria"] = stopping_after(draw.randint(3, 30))
    given = prompt(draw)
    tokens = given if isinstance(given, list) else llama.tokenize(given.encode(), special=True)
    running = llama.generate(tokens, reset=draw.random() < 0.8, **options)
    sent = 2 if keeps_logits(llama) and draw.random() < 0.3 else None  # llama.cpp aborts where they are not kept
    for number, token in enumerate(islice(running, most or 20), 1):
        yield token
        if number == sent:
            yield running.send([301, 302])
    running.close()


def call(draw: random.Random, llama: Any) -> Trace:
    """Make one random call, and drop it early sometimes."""
    entry = draw.choice(ENTRIES)
    most = draw.choice((None, None, draw.randint(1, 8)))
    if entry == "generate":
        return list(loop(draw, llama, most))
    options = texting(draw, entry, keeps_logits(llama))
    answer = getattr(llama, entry)(CHAT if "chat" in entry else prompt(draw), **options)
    if not options["stream"]:
        return [said(answer)]
    chunks = [said(chunk) for chunk in islice(answer, most)]
    answer.close()
    return chunks


def keeps_logits(llama: Any) -> bool:
    """Return whether logits of every position are kept."""
    return bool(len(llama.scores) == llama.n_ctx())


def said(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer or a chunk without what is new each time."""
    return {key: value for key, value in answer.items() if key not in ("id", "created")}


def left_behind(llama: Any) -> Trace:
    """Return what a call leaves in a Llama."""
    return [int(llama.n_tokens), llama.input_ids.tolist()]


def outcome_of(call: Callable[[], Trace]) -> Trace:
    """Run a call; return its trace, with the exception at the end if it raised."""
    trace: Trace = []
    try:
        trace += call()
    except Exception as error:
        trace.append((type(error), str(error)))
    return trace


def talk(seed: int, bench: Bench) -> Trace:
    """Make two random calls on one Llama, through a cache sometimes, the second maybe going on from the first."""
    draw = random.Random(seed)
    llama = bench.fresh(draw.choice(DRAFTS))
    if draw.random() < 0.3:
        llama.set_cache(llama_cpp.LlamaRAMCache())
    first = draw.randrange(10**6)
    second = draw.choice((first, draw.randrange(10**6)))
    trace: Trace = []
    for each in (first, second):
        trace += [outcome_of(lambda each=each: call(random.Random(each), llama)), left_behind(llama)]
    state = llama.save_state()
    llama.reset()
    llama.load_state(state)
    return [*trace, left_behind(llama)]


@pytest.mark.parametrize("start", range(0, SEEDS, BATCH))
def test_calls_are_the_same(start: int, bench: Bench) -> None:
    """Tokens, text, chunks, logprobs, usage, exceptions and what is left behind; random settings, every entry."""
    seeds = range(start, start + BATCH)
    bare = [talk(seed, bench) for seed in seeds]
    with capture() as telemetry:
        watched = [talk(seed, bench) for seed in seeds]
        assert len(telemetry.spans()) == 2 * BATCH
    for seed, one, other in zip(seeds, bare, watched, strict=True):
        assert one == other, seed


@pytest.mark.parametrize("answer", [np.array([301.0, 302.0]), np.array([True]), np.array([], dtype=np.intc)])
def test_whatever_a_draft_answers_means_the_same(answer: Any, bench: Bench) -> None:
    """The engine takes an array of any kind for token ids."""

    def run() -> Trace:
        llama = bench.fresh("none")
        return [*islice(drafted(bench, lambda _: answer).generate([301, 302], temp=0.0), 12), left_behind(llama)]

    bare = run()
    with capture() as telemetry:
        assert run() == bare
        proposed = dict(telemetry.span().attributes or {})[Attr.SPECDECODE_DRAFT_PROPOSED_TOKENS]
        assert (proposed > 0) == bool(len(answer))


def drafted(bench: Bench, draft: Callable[[Any], Any]) -> Any:
    """Return a target with a function as its draft."""
    llama = bench.fresh("scripted")
    llama.draft_model = draft
    return llama


def cached(llama: Any, cache: Any) -> Any:
    """Return a Llama with a cache."""
    llama.set_cache(cache)
    return llama


def refuse(*_: Any) -> Any:
    """Raise."""
    raise ArithmeticError("no")


LONG = [301] * 600

BAD_CALLS: dict[str, Callable[[Bench, Any], Any]] = {
    "prompt longer than the context": lambda _, llama: llama.create_completion(LONG),
    "prompt longer than the context, streamed": lambda _, llama: list(llama.create_completion(LONG, stream=True)),
    "loop with a prompt longer than the context": lambda _, llama: list(llama.generate(LONG)),
    "chat longer than the context": lambda _, llama: llama.create_chat_completion(
        [{"role": "user", "content": "a " * 600}]
    ),
    "loop past the context": lambda _, llama: list(llama.generate(LONG[:500], temp=0.0)),
    "loop past the context with a draft": lambda bench, _: list(
        drafted(bench, lambda ids: ids[-2:].copy()).generate(LONG[:500], temp=0.0)
    ),
    "empty text": lambda _, llama: llama.create_completion(""),
    "no tokens": lambda _, llama: list(llama.generate([])),
    "no prompt": lambda _, llama: llama.create_completion(),
    "no tokens argument": lambda _, llama: llama.generate(),
    "prompt of the wrong type": lambda _, llama: llama.create_completion(object()),
    "tokens of the wrong type": lambda _, llama: llama.create_completion(["a"], stream=False),
    "tokens that do not exist": lambda _, llama: llama.create_completion([99999]),
    "unknown option": lambda _, llama: llama.create_completion([301], colour="red"),
    "unknown option of a chat": lambda _, llama: llama.create_chat_completion(CHAT, colour="red"),
    "unknown option of a loop": lambda _, llama: llama.generate([301], colour="red"),
    "temperature of text": lambda _, llama: llama([301], temperature="hot"),
    "limit of text": lambda _, llama: llama([301], max_tokens="ten"),
    "seed of text": lambda _, llama: llama.create_completion([301], seed="x"),
    "stop strings that are none": lambda _, llama: llama.create_completion([301], stop=[1]),
    "suffix that is no text": lambda _, llama: llama.create_completion([301], suffix=3),
    "bias of no token": lambda _, llama: llama.create_completion([301], logit_bias={"x": 1}),
    "grammar that is none": lambda _, llama: llama.create_completion([301], grammar='root ::= "a"'),
    "logprobs without logits": lambda _, llama: list(llama.create_completion([301], logprobs=2, stream=True)),
    "messages that are none": lambda _, llama: llama.create_chat_completion("hi", stream=True),
    "message without content": lambda _, llama: llama.create_chat_completion([{"role": "user"}]),
    "cache that is none": lambda _, llama: cached(llama, object()).create_completion([301]),
    "criteria that raise": lambda _, llama: llama.create_completion(
        [301], stopping_criteria=llama_cpp.StoppingCriteriaList([refuse])
    ),
    "criteria that raise in a loop": lambda _, llama: list(
        llama.generate([301], stopping_criteria=llama_cpp.StoppingCriteriaList([refuse]))
    ),
    "draft that raises": lambda bench, _: drafted(bench, refuse).create_completion([301]),
    "draft that raises, streamed": lambda bench, _: list(drafted(bench, refuse)([301], stream=True)),
    "draft that answers a list": lambda bench, _: drafted(bench, lambda _: [301]).create_chat_completion(CHAT),
    "draft that answers nothing": lambda bench, _: list(drafted(bench, lambda _: None).generate([301])),
    "draft that answers text": lambda bench, _: list(drafted(bench, lambda _: np.array(["a"])).generate([301])),
    "embedding without a model for it": lambda _, llama: llama.embed("hi"),
    "embeddings without a model for it": lambda _, llama: llama.create_embedding(["hi"]),
}
NOT_BEGUN = ("no tokens argument", "unknown option of a loop")
"""A token loop that could not be made was never iterated."""


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_input_gives_the_engines_own_error(name: str, bench: Bench) -> None:
    """The same exception with the same text, the same left behind, and one span with its error.type."""

    def run() -> Trace:
        llama = bench.fresh("none")
        return [*outcome_of(lambda: [BAD_CALLS[name](bench, llama)]), left_behind(llama), left_behind(bench.drafted)]

    bare = run()
    with capture() as telemetry:
        watched = run()
        spans = telemetry.spans()
    assert watched == bare
    assert isinstance(bare[0], tuple), "this call was meant to fail"
    assert len(spans) == (0 if name in NOT_BEGUN else 1)
    for span in spans:
        assert span.status.status_code.name == "ERROR"
        assert dict(span.attributes or {})[Attr.ERROR_TYPE].rpartition(".")[2] == bare[0][0].__name__


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_stream_that_is_never_iterated_leaves_no_span(entry: str, bench: Bench) -> None:
    """Nothing runs before the first token is asked for, with and without the instrumentation."""
    with capture() as telemetry:
        llama = bench.fresh("none")
        asked: Any = CHAT if "chat" in entry else [301]
        stream = getattr(llama, entry)(asked, **({} if entry == "generate" else {"stream": True}))
        del stream
        assert not telemetry.spans()
        assert not telemetry.points("specdecode.request.started")


@pytest.mark.parametrize("pooling", ["NONE", "MEAN"])
def test_embeddings_are_the_same(pooling: str, cycle: Pair) -> None:
    """Vectors of one text and of several, counts, usage and errors; one span a call."""
    llama = cycle.llama(embedding=True, pooling_type=getattr(llama_cpp, f"LLAMA_POOLING_TYPE_{pooling}"), n_ctx=256)
    calls: list[Callable[[], Any]] = [
        lambda: llama.embed("a word"),
        lambda: llama.embed("a word", normalize=True, return_count=True)[0],
        lambda: llama.create_embedding("bada", model="mine")["usage"],
        lambda: llama.embed(["a word", "bada"]),  # not every version can with every model
        lambda: said(llama.create_embedding(["a word", "bada"])),
        lambda: llama.embed(3),
        lambda: llama.embed("a " * 600, truncate=False),
    ]

    def run() -> list[Trace]:
        return [outcome_of(lambda call=call: [call()]) for call in calls]

    bare = run()
    with capture() as telemetry:
        assert run() == bare
        states = [span.status.status_code.name for span in telemetry.spans()]
    failed = [isinstance(outcome[0], tuple) for outcome in bare]
    assert failed[:3] == [False] * 3
    assert failed[-2:] == [True] * 2
    assert states == ["ERROR" if each else "UNSET" for each in failed]
    llama.close()
