"""Plans on the real llama.cpp: every rung is the plain run of its mode, and a Llama keeps its own draft always."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

llama_cpp = pytest.importorskip("llama_cpp", reason="needs the [llama-cpp] extra")
pytest.importorskip("gguf", reason="needs the [demo] extra")

from llama_cpp.llama_speculative import LlamaDraftModel, LlamaPromptLookupDecoding  # noqa: E402

from otel_specdecode.engines.llama_cpp.model_draft import ModelDraft  # noqa: E402
from otel_specdecode.engines.llama_cpp.plans import ShorterDraft, length_of  # noqa: E402
from otel_specdecode.generation.plan import Plan  # noqa: E402
from otel_specdecode.telemetry.names import Attr  # noqa: E402
from otel_specdecode.testing.capture import Telemetry, capture  # noqa: E402
from otel_specdecode.tiny_pair import model_path  # noqa: E402
from otel_specdecode.tiny_pair.gguf import convert  # noqa: E402
from tests.guard.joined import (  # noqa: E402
    RUNGS,
    guarded,
    on_behalf_of,
    paths,
    planned,
    policy,
    run_until,
    transitions,
    violations,
)

pytestmark = pytest.mark.llama_cpp

K = 4
TOKENS = 24
SIZES = {"n_ctx": 512, "n_batch": 64, "n_threads": 1, "n_threads_batch": 1, "verbose": False}
PROMPT = [1, *range(300, 320), *range(300, 306)]
MESSAGES = [{"role": "user", "content": "Count from 3 to 9."}]


class Echo(LlamaDraftModel):  # type: ignore[misc]
    """A draft of a program's own that tells nothing of itself: the text goes on as it did at some token before."""

    def __init__(self, most: int = K) -> None:
        """Propose so many tokens."""
        self._most = most

    def __call__(self, input_ids: Any, /, **_: Any) -> Any:
        places = np.flatnonzero(input_ids[:-1] == input_ids[-1])
        at = int(places[-1]) + 1 if places.size else 0
        return np.array(input_ids[at : at + self._most], dtype=np.intc)


class Guessing(LlamaDraftModel):  # type: ignore[misc]
    """Proposes what a model would say, or nonsense: a draft that turns bad."""

    def __init__(self, inner: Any) -> None:
        """Ask a good draft."""
        self.num_pred_tokens = K
        self.good = True
        self._ask = inner.__call__

    def __call__(self, input_ids: Any, /, **_: Any) -> Any:
        proposed = self._ask(input_ids)
        return (proposed if self.good else (proposed + 7) % 500)[: self.num_pred_tokens]


class Bench:
    """Models of the tiny pair, loaded once."""

    def __init__(self, folder: Path) -> None:
        """Load two targets and a draft."""
        target = str(convert(model_path("target"), folder / "target.gguf", "f32"))
        draft = str(convert(model_path("draft-kd"), folder / "draft-kd.gguf", "f32"))
        self.targets = [llama_cpp.Llama(target, logits_all=True, **SIZES) for _ in range(2)]
        self.draft = llama_cpp.Llama(draft, **SIZES)

    def fresh(self, kind: str | None, length: int = K, place: int = 0) -> Any:
        """A target that remembers nothing, with what drafts for it."""
        llama = self.targets[place]
        for each in (llama, self.draft):
            each.reset()
            each.input_ids[:] = 0
            each.scores[:] = 0
            each.set_seed(0)
        llama.chat_handler = None
        llama.draft_model = None if kind is None else self.drafter(kind, length, llama)
        return llama

    def drafter(self, kind: str, length: int, llama: Any) -> Any:
        """A draft of a kind."""
        if kind == "lookup":
            return LlamaPromptLookupDecoding(max_ngram_size=2, num_pred_tokens=length)
        return ModelDraft(self.draft, llama, num_pred_tokens=length) if kind == "model" else Echo(length)

    def close(self) -> None:
        """Free them."""
        for each in (*self.targets, self.draft):
            each.draft_model = None
            each.close()


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One bench for all tests."""
    bench = Bench(tmp_path_factory.mktemp("bench"))
    yield bench
    bench.close()


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    """llama-cpp-python instrumented into memory."""
    with capture() as captured:
        yield captured


def completes(llama: Any, **sampling: Any) -> Any:
    return llama.create_completion(PROMPT, max_tokens=TOKENS, **sampling)["choices"]


def streams(llama: Any, **sampling: Any) -> Any:
    return [each["choices"] for each in llama.create_completion(PROMPT, max_tokens=TOKENS, stream=True, **sampling)]


def chats(llama: Any, **sampling: Any) -> Any:
    return llama.create_chat_completion(MESSAGES, max_tokens=TOKENS, **sampling)["choices"]


def loops(llama: Any, **sampling: Any) -> Any:
    llama.set_seed(sampling.get("seed", 0))
    return list(islice(llama.generate(PROMPT, temp=sampling["temperature"]), TOKENS))


GREEDY, SEEDED = {"temperature": 0.0}, {"temperature": 0.9, "seed": 7}
KINDS = ("lookup", "model", "custom")


@pytest.mark.parametrize("entry", [completes, streams, chats, loops])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rung", RUNGS)
def test_a_planned_request_is_the_plain_run_of_its_mode(
    rung: str, kind: str, entry: Callable[..., Any], bench: Bench
) -> None:
    """Token by token, greedy and by seed; the span says what ran and why."""
    plan = RUNGS[rung]
    for sampling in (GREEDY, SEEDED):
        plain = entry(bench.fresh(None if plan.autoregressive else kind, plan.length(K) or K), **sampling)
        with capture() as telemetry, planned(plan) as planner:
            llama = bench.fresh(kind)
            own = llama.draft_model
            assert entry(llama, **sampling) == plain
            assert llama.draft_model is own
            assert getattr(own, "num_pred_tokens", K) == K
            found = dict(telemetry.span().attributes or {})
            assert found[Attr.SPECDECODE_REQUESTED_MODE] == "speculative"
            assert (found[Attr.SPECDECODE_MODE] == "autoregressive") == plan.autoregressive
            assert found[Attr.SPECDECODE_COHORT] == plan.cohort
            assert found.get(Attr.SPECDECODE_FALLBACK_REASON) == plan.fallback_reason
            known = kind != "custom" or plan.draft_length is not None
            assert found.get(Attr.SPECDECODE_DRAFT_MAX_TOKENS) == (plan.length(K) if known else None)
            assert violations(telemetry) == []
            assert planner.given_back == len(planner.asked) == 1


@pytest.mark.parametrize("rung", ["shortened", "fallback"])
def test_a_llama_has_its_own_draft_whenever_its_program_looks(rung: str, bench: Bench, telemetry: Telemetry) -> None:
    """Between tokens, and in the callbacks that a program gives; also after each way to end a stream."""
    llama = bench.fresh("model")
    own = llama.draft_model

    def untouched() -> bool:
        return llama.draft_model is own and own.num_pred_tokens == K

    def ends(end: Callable[[Any], None]) -> None:
        stream = llama.create_completion(PROMPT, max_tokens=TOKENS, temperature=0.0, stream=True)
        for _ in range(3):
            next(stream)
            assert untouched()
        end(stream)

    def throws(stream: Any) -> None:
        with pytest.raises(KeyError, match="own"):
            stream.throw(KeyError("own"))

    with planned(RUNGS[rung]) as planner:
        for end in (lambda stream: stream.close(), throws, lambda _: None, list):
            ends(end)
            gc.collect()
            assert untouched()
        assert planner.given_back == 4


def test_a_loop_can_be_sent_to_and_thrown_into_under_a_plan(bench: Bench, telemetry: Telemetry) -> None:
    """As if nothing stood between: the engine takes tokens by send(), and what is thrown comes out."""
    with planned(RUNGS["fallback"]):
        under = _sent_to(bench.fresh("model"))
    assert under == _sent_to(bench.fresh(None))


def _sent_to(llama: Any) -> list[int]:
    loop = llama.generate(PROMPT, temp=0.0)
    tokens = [next(loop), next(loop), loop.send([310, 311]), next(loop)]
    with pytest.raises(KeyError, match="own"):
        loop.throw(KeyError("own"))
    return tokens


def test_what_is_thrown_into_a_planned_loop_holds_nothing(bench: Bench, telemetry: Telemetry) -> None:
    """Its traceback would hold the Llama until a garbage collection."""

    class Held:
        pass

    def use() -> weakref.ref[Held]:
        held = Held()
        loop = bench.fresh("lookup").generate(PROMPT, temp=0.0, stopping_criteria=lambda *_, held=held: False)
        next(loop)
        with suppress(KeyError):
            loop.throw(KeyError("own"))
        return weakref.ref(held)

    gc.disable()
    try:
        with planned(RUNGS["fallback"]):
            assert use()() is None
    finally:
        gc.enable()


def test_a_draft_that_a_program_sets_while_its_loop_runs_stays(bench: Bench, telemetry: Telemetry) -> None:
    """A callback inside of the engine's loop exchanges it."""
    llama = bench.fresh("lookup")
    other = Echo(2)

    def exchanges(*_: Any) -> bool:
        llama.draft_model = other
        return False

    with planned(RUNGS["shortened"]):
        loop = llama.generate(PROMPT, temp=0.0, stopping_criteria=exchanges)
        next(loop)
        next(loop)
        loop.close()
    assert llama.draft_model is other


def test_two_llamas_share_a_lookup_and_each_runs_by_its_own_plan(
    bench: Bench, telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On two threads at once; the draft that both have is never changed, not even while it is asked."""
    shared = LlamaPromptLookupDecoding(max_ngram_size=2, num_pred_tokens=K)
    find, lengths = LlamaPromptLookupDecoding.find_candidate_pred_tokens, set()

    def finds(input_ids: Any, max_ngram_size: int, num_pred_tokens: int) -> Any:
        lengths.add((shared.num_pred_tokens, num_pred_tokens))
        return find(input_ids, max_ngram_size, num_pred_tokens)

    expected = [completes(bench.fresh("lookup", 2, place), **GREEDY) for place in (0, 1)]
    llamas = [bench.fresh(None, place=place) for place in (0, 1)]
    for llama in llamas:
        llama.draft_model = shared
    monkeypatch.setattr(LlamaPromptLookupDecoding, "find_candidate_pred_tokens", staticmethod(finds))
    with planned(Plan(2)), ThreadPoolExecutor(2) as threads:
        for _ in range(3):
            answers = list(threads.map(lambda llama: completes(llama, **GREEDY), llamas))
            assert answers == expected
            assert shared.num_pred_tokens == K
            for llama in llamas:
                llama.reset()
    assert lengths == {(K, 2)}


def two_completions(*, llama: Any, **_: Any) -> Any:
    """Thinks first, then answers."""
    thought = completes(llama, **GREEDY)[0]["text"]
    answer = llama.create_completion(PROMPT[:9], max_tokens=TOKENS, temperature=0.0)
    answer["choices"][0]["message"] = {"content": thought + answer["choices"][0]["text"]}
    return answer


@pytest.mark.parametrize("rung", ["shortened", "fallback"])
def test_every_completion_of_a_chat_handler_runs_by_the_plan(rung: str, bench: Bench) -> None:
    """It was decided once, for the chat."""
    plan = RUNGS[rung]
    bare = bench.fresh(None if plan.autoregressive else "model", plan.length(K) or K)
    bare.chat_handler = two_completions
    plain = bare.create_chat_completion(MESSAGES)["choices"][0]["message"]
    with capture() as telemetry, planned(plan) as planner:
        llama = bench.fresh("model")
        llama.chat_handler = two_completions
        assert llama.create_chat_completion(MESSAGES)["choices"][0]["message"] == plain
        assert len(planner.asked) == 1
        (found,) = paths(telemetry)
        assert found[-1] == plan.length(K)
        assert violations(telemetry) == []


def test_the_handler_for_function_calls_runs_by_the_plan(bench: Bench) -> None:
    """It makes several completions with grammars of its own."""
    tool = {
        "type": "function",
        "function": {"name": "lamp", "parameters": {"type": "object", "properties": {"on": {"type": "boolean"}}}},
    }

    def calls(llama: Any) -> Any:
        llama.chat_format, before = "chatml-function-calling", llama.chat_format
        try:
            answer = llama.create_chat_completion(
                MESSAGES, tools=[tool], tool_choice={"type": "function", "function": {"name": "lamp"}}, **GREEDY
            )
        finally:
            llama.chat_format = before
        return answer["choices"][0]["message"]["tool_calls"][0]["function"]

    plain = calls(bench.fresh(None))
    with capture() as telemetry, planned(RUNGS["fallback"]):
        assert calls(bench.fresh("model")) == plain
        assert set(paths(telemetry)) == {("autoregressive", "fallback", "accept_rate", 0)}


def test_a_draft_that_turns_bad_is_off_within_a_window_and_on_again_when_it_is_good(
    bench: Bench, telemetry: Telemetry
) -> None:
    """What is in flight finishes unharmed."""
    llama, other = bench.fresh("model"), bench.fresh(None, place=1)
    draft = llama.draft_model = other.draft_model = Guessing(llama.draft_model)
    plain = completes(bench.fresh(None, place=1), **GREEDY)
    other.draft_model = draft
    telemetry.clear()

    def request() -> None:
        llama.create_chat_completion(MESSAGES, max_tokens=48, **GREEDY)

    with guarded(policy(cool_down=0.02)):
        for _ in range(3):
            request()
        assert set(paths(telemetry)) == {("speculative", "normal", None, K)}
        flying = other.create_completion(PROMPT, max_tokens=TOKENS, stream=True, **GREEDY)
        text = next(flying)["choices"][0]["text"]
        draft.good = False
        run_until(lambda: bool(transitions(telemetry)), request, 3)
        assert text + "".join(each["choices"][0]["text"] for each in flying) == plain[0]["text"]
        draft.good = True
        run_until(lambda: transitions(telemetry)[-1]["state"] == "closed", request, 80)
    assert [each["state"] for each in transitions(telemetry)][:2] == ["open", "probing"]
    assert llama.draft_model is draft
    assert draft.num_pred_tokens == K
    assert violations(telemetry) == []


def test_one_tenant_falls_back_while_another_speculates(bench: Bench, telemetry: Telemetry) -> None:
    """On one Llama, by the baggage of each call."""
    llama = bench.fresh("model")
    draft = llama.draft_model = Guessing(llama.draft_model)
    with guarded(policy(by="tenant")):
        for _ in range(4):
            for tenant in ("acme", "beta"):
                draft.good = tenant == "beta"
                with on_behalf_of(tenant=tenant):
                    llama.create_chat_completion(MESSAGES, max_tokens=48, **GREEDY)
                telemetry.spans()
        (told,) = transitions(telemetry)
        assert told["specdecode.tenant.id"] == "acme"
    modes = [
        (span.attributes[Attr.SPECDECODE_TENANT_ID], span.attributes[Attr.SPECDECODE_MODE])
        for span in telemetry.spans()
        if span.attributes
    ]
    assert ("acme", "autoregressive") in modes
    assert ("beta", "autoregressive") not in modes


class Fixed(Echo):
    """A draft whose length cannot be set."""

    @property
    def num_pred_tokens(self) -> int:
        """Its length."""
        return self._most


def test_a_draft_whose_length_cannot_be_set_is_cut_off(bench: Bench) -> None:
    """It is asked as ever, and fails no request."""
    llama = bench.fresh(None)
    llama.draft_model = Echo(2)
    plain = completes(llama, **GREEDY)
    with capture() as telemetry, planned(RUNGS["shortened"]):
        llama = bench.fresh(None)
        llama.draft_model = Fixed()
        assert completes(llama, **GREEDY) == plain
        assert set(paths(telemetry)) == {("speculative", "normal", None, 2)}


class Slow(LlamaPromptLookupDecoding):  # type: ignore[misc]
    """A draft of a program's own, which two threads ask at once."""

    def __init__(self) -> None:
        super().__init__(max_ngram_size=2, num_pred_tokens=K)
        self.first, self.second = Event(), Event()

    def __call__(self, input_ids: Any, /, **_: Any) -> Any:
        (self.second if self.first.is_set() else self.first).set()
        assert self.second.wait(20)
        return super().__call__(input_ids)


def test_a_draft_that_two_threads_ask_at_once_has_its_own_length_afterwards() -> None:
    """And meanwhile nobody takes the lower one for its own."""
    draft = Slow()
    text = np.array(PROMPT, dtype=np.intc)
    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(ShorterDraft(draft, 2), text)
        assert draft.first.wait(20)
        assert draft.num_pred_tokens == 2
        assert length_of(draft) == K
        other = threads.submit(ShorterDraft(draft, 1), text)
        assert (len(one.result()) <= 2, len(other.result()) <= 1) == (True, True)
    assert draft.num_pred_tokens == length_of(draft) == K
