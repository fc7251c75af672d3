"""Calls inside calls: what belongs to one request is one span, counted once; what does not has its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest
from opentelemetry.trace import SpanKind

pytest.importorskip("llama_cpp", reason="needs the [llama-cpp] extra")

from llama_cpp.llama_speculative import LlamaDraftModel, LlamaPromptLookupDecoding

from otel_specdecode.engines.llama_cpp.model_draft import ModelDraft
from otel_specdecode.telemetry.names import Attr
from otel_specdecode.testing.capture import Telemetry
from tests.engines.llama_cpp.calling import MESSAGES, PROMPT, K, complete, llama_cpp, named, passes, samples
from tests.engines.llama_cpp.conftest import Pair
from tests.engines.llama_cpp.ground_truth import watched_engine
from tests.engines.spans import attributes

pytestmark = pytest.mark.llama_cpp


# Two models at once


@pytest.mark.parametrize("stream", [False, True])
def test_two_models_in_two_threads(stream: bool, cycle: Pair, tiny: Pair, telemetry: Telemetry) -> None:
    """At the same time, one with a draft: each span has its own counts."""
    plain = cycle.llama()
    target = tiny.llama(ModelDraft(tiny.draft_llama(), str(tiny.target), num_pred_tokens=K))
    started = threading.Barrier(2)

    def work(llama: Any, tokens: int) -> None:
        started.wait()
        for _ in range(4):
            result = complete(llama, tokens, stream=stream)
            if stream:
                list(result)

    with watched_engine() as log:
        threads = [threading.Thread(target=work, args=each) for each in ((plain, 30), (target, 17))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = [attributes(span) for span in telemetry.spans()]
    for llama, model, tokens, mode in (
        (plain, "cycle-target", 30, "autoregressive"),
        (target, "target", 17, "speculative"),
    ):
        own = [each for each in found if each[Attr.GEN_AI_REQUEST_MODEL] == model]
        assert {each[Attr.SPECDECODE_MODE] for each in own} == {mode}
        assert sum(each[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] for each in own) == samples(log, llama)
        assert all(each[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] <= tokens for each in own)
        made = sum(each[Attr.SPECDECODE_PREFILL_PASSES] + each[Attr.SPECDECODE_DECODE_PASSES] for each in own)
        assert made == passes(log, llama)
    drafted = [each for each in found if each[Attr.SPECDECODE_MODE] == "speculative"]
    draft_passes = sum(
        each[Attr.SPECDECODE_DRAFT_PASSES] + each[Attr.SPECDECODE_DRAFT_PREFILL_PASSES] for each in drafted
    )
    assert draft_passes == passes(log, target.draft_model.llama)


# A Llama as another's draft


class Evaluating(LlamaDraftModel):  # type: ignore[misc]
    """Drafts with a Llama, pass by pass."""

    def __init__(self, llama: Any, k: int = K) -> None:
        self.llama = llama
        self.num_pred_tokens = k

    def __call__(self, input_ids: Any, /, **kwargs: Any) -> Any:
        return np.array(self.propose([int(token) for token in input_ids]), dtype=np.intc)

    def propose(self, tokens: list[int]) -> list[int]:
        """The tokens that come next."""
        self.llama.reset()
        proposed: list[int] = []
        for _ in range(self.num_pred_tokens):
            self.llama.eval(proposed[-1:] if proposed else tokens)
            proposed.append(self.llama.sample(temp=0.0))
        return proposed


class Generating(Evaluating):
    """Drafts with a Llama's token loop."""

    def propose(self, tokens: list[int]) -> list[int]:
        """The tokens that come next."""
        return list(islice(self.llama.generate(tokens, temp=0.0), K))


class Completing(Evaluating):
    """Drafts with a Llama's completion, from whose text it gets tokens again."""

    stream = False

    def propose(self, tokens: list[int]) -> list[int]:
        """The tokens that come next."""
        result = complete(self.llama, K, tokens, stream=self.stream)
        text = "".join(each["choices"][0]["text"] for each in (result if self.stream else [result]))
        found: list[int] = self.llama.tokenize(text.encode(), add_bos=False, special=True)
        return found


class Streaming(Completing):
    """The same, chunk by chunk."""

    stream = True


def second_model(llama: Any) -> Any:
    """The draft that this package brings."""
    return ModelDraft(llama, llama.model_path.replace("-draft", "-target"), num_pred_tokens=K)


@pytest.mark.parametrize("entry", ["whole", "stream", "generate", "chat"])
@pytest.mark.parametrize("draft", [Evaluating, Generating, Completing, Streaming, second_model])
def test_a_llama_as_the_draft_of_another(
    draft: Callable[[Any], Any], entry: str, cycle: Pair, telemetry: Telemetry
) -> None:
    """One span; what the draft's Llama evaluates are draft passes, each counted once."""
    drafting = cycle.draft_llama()
    llama = cycle.llama(draft(drafting))
    with watched_engine() as log:
        if entry == "generate":
            list(islice(llama.generate(PROMPT, temp=0.0), 20))
        elif entry == "chat":
            llama.create_chat_completion(MESSAGES, max_tokens=20, temperature=0.0)
        else:
            list(complete(llama, 20, stream=entry == "stream"))
    found = attributes(telemetry.span())
    assert found[Attr.SPECDECODE_METHOD] == "draft_model"
    assert found[Attr.SPECDECODE_DRAFT_MODEL] == "cycle-draft"
    assert found[Attr.SPECDECODE_DRAFT_PASSES] == found[Attr.SPECDECODE_DRAFT_PROPOSED_TOKENS] > 0
    assert found[Attr.SPECDECODE_DRAFT_PASSES] + found[Attr.SPECDECODE_DRAFT_PREFILL_PASSES] == passes(log, drafting)
    assert found[Attr.SPECDECODE_PREFILL_PASSES] + found[Attr.SPECDECODE_DECODE_PASSES] == passes(log, llama)
    assert telemetry.total("specdecode.request.started") == 1


def test_a_draft_of_two_models(cycle: Pair, telemetry: Telemetry) -> None:
    """Both are the draft's: the passes of each are draft passes, under the name of the first."""
    first, second = cycle.draft_llama(), cycle.draft_llama()

    class Checking(Evaluating):
        """Proposes what two models agree on."""

        def __init__(self) -> None:
            super().__init__(first)
            self.second = second

        def propose(self, tokens: list[int]) -> list[int]:
            complete(self.second, 2, tokens)
            return super().propose(tokens)

    with watched_engine() as log:
        complete(cycle.llama(Checking()), 10)
    found = attributes(telemetry.span())
    made = found[Attr.SPECDECODE_DRAFT_PASSES] + found[Attr.SPECDECODE_DRAFT_PREFILL_PASSES]
    assert made == passes(log, first) + passes(log, second)
    assert found[Attr.SPECDECODE_DRAFT_MODEL] == "cycle-draft"


def test_a_draft_that_hides_its_model(cycle: Pair, telemetry: Telemetry) -> None:
    """Nobody can tell whose passes they are: method custom, passes absent, and still one span."""
    inner = Completing(cycle.draft_llama())

    class Hiding(LlamaDraftModel):  # type: ignore[misc]
        def __call__(self, input_ids: Any, /, **kwargs: Any) -> Any:
            return inner(input_ids)

    complete(cycle.llama(Hiding()), 20)
    found = attributes(telemetry.span())
    assert found[Attr.SPECDECODE_METHOD] == "custom"
    assert found[Attr.SPECDECODE_MODE] == "speculative"
    assert Attr.SPECDECODE_DRAFT_PASSES not in found
    assert Attr.SPECDECODE_DRAFT_MODEL not in found
    assert Attr.SPECDECODE_DRAFT_MAX_TOKENS not in found
    assert found[Attr.SPECDECODE_DRAFT_ACCEPTED_TOKENS] > 0


# Models that run inside a token loop without being its draft


@pytest.mark.parametrize("draft", ["none", "prompt lookup", "second model"])
@pytest.mark.parametrize("inner", ["whole", "generate"])
def test_a_logits_processor_that_runs_another_model(
    inner: str, draft: str, cycle: Pair, tiny: Pair, telemetry: Telemetry
) -> None:
    """It is not the draft, so it is a request of its own, and none of its passes is the draft's."""
    judge, drafting = tiny.llama(), cycle.draft_llama()
    asked: list[int] = []

    def processor(_: Any, logits: Any) -> Any:
        asked.append(1)
        if len(asked) == 3:
            if inner == "whole":
                complete(judge, 4)
            else:
                loop = judge.generate(PROMPT, temp=0.0)
                for _ in range(4):
                    next(loop)
                loop.close()
        return logits

    drafts = {
        "none": lambda: None,
        "prompt lookup": lambda: LlamaPromptLookupDecoding(num_pred_tokens=K),
        "second model": lambda: Evaluating(drafting),
    }
    llama = cycle.llama(drafts[draft]())
    with watched_engine() as log:
        complete(llama, 12, logits_processor=llama_cpp.LogitsProcessorList([processor]))
    outer, judging = named(telemetry, "text_completion cycle-target"), named(telemetry, "text_completion target")
    assert outer[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == 12
    assert judging[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == 4
    made = outer[Attr.SPECDECODE_PREFILL_PASSES] + outer[Attr.SPECDECODE_DECODE_PASSES]
    assert made == passes(log, llama)
    draft_made = outer[Attr.SPECDECODE_DRAFT_PASSES] + outer[Attr.SPECDECODE_DRAFT_PREFILL_PASSES]
    assert draft_made == passes(log, drafting)


def test_a_consumer_that_runs_another_model_between_chunks(cycle: Pair, telemetry: Telemetry) -> None:
    """Also the very draft of the stream it holds: a request of its own, which is not the stream's."""
    drafting = cycle.draft_llama()
    stream = complete(cycle.llama(Evaluating(drafting)), 12, stream=True)
    next(stream)
    complete(drafting, 5)
    list(stream)
    outer, own = named(telemetry, "text_completion cycle-target"), named(telemetry, "text_completion cycle-draft")
    assert own[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == 5
    assert outer[Attr.SPECDECODE_DRAFT_PASSES] == outer[Attr.SPECDECODE_DRAFT_PROPOSED_TOKENS]


# Under somebody else's span


def test_under_another_instrumentations_client_span(cycle: Pair, telemetry: Telemetry) -> None:
    """It counts the request as a client: ours is an INTERNAL child, and only `gen_ai.client.*` is left out."""
    tracer = telemetry.tracer_provider.get_tracer("framework")
    llama = cycle.llama()
    marks = {Attr.GEN_AI_OPERATION_NAME: "chat"}
    with tracer.start_as_current_span("chat framework", kind=SpanKind.CLIENT, attributes=marks) as outer:
        llama.create_chat_completion(MESSAGES, max_tokens=4, temperature=0.0)
    (span,) = [span for span in telemetry.spans() if span.name == "chat cycle-target"]
    assert span.kind is SpanKind.INTERNAL
    assert span.parent is not None
    assert span.parent.span_id == outer.get_span_context().span_id
    names = {point.metric for point in telemetry.points()}
    assert not any(name.startswith("gen_ai.client.") for name in names)
    assert {"gen_ai.server.request.duration", "specdecode.decode.passes"} <= names
    llama.create_chat_completion(MESSAGES, max_tokens=4, temperature=0.0)
    assert telemetry.total("gen_ai.client.operation.duration") == 1
