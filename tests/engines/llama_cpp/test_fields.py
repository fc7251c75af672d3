"""Identical field names for autoregressive and speculative runs, on this engine and between engines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from otel_specdecode.telemetry.names import CORE_ATTRIBUTES, MODE_ONLY_ATTRIBUTES, Attr, Enum, Metrics
from otel_specdecode.testing.capture import Point, Telemetry, capture
from otel_specdecode.testing.checker import assert_conformant
from tests.engines.llama_cpp.conftest import Pair
from tests.engines.llama_cpp.ground_truth import Generating, Lookup, Scripted, SecondModel, llama_cpp

pytestmark = pytest.mark.llama_cpp

ONLY_HERE = {Attr.SPECDECODE_DRAFT_DURATION}
"""What MLX cannot tell."""
ENOUGH_TO_BE_RECORDED = 60
"""Requests of so fast a pair until some of the durations that are sampled are recorded."""
DRAFTS = ("none", "prompt_lookup", "draft_model")


class Bench:
    """The cycle pair, loaded once.

    Attributes:
        prompt: Tokens that say already what comes, so that a lookup finds it.
        chat: Messages that do.
    """

    def __init__(self, pair: Pair) -> None:
        """Load target, draft and a model that embeds."""
        truth = pair.truth
        assert truth is not None
        self.target = pair.llama(logits_all=True, n_ctx=256)
        self.draft = pair.draft_llama(n_ctx=256)
        self.embedder = pair.llama(embedding=True, n_ctx=256)
        self.prompt = [301, *truth.tokens(301, 5), 301]
        said = self.target.detokenize(truth.tokens(truth.chat_end, 5)).decode()
        self.chat = [{"role": "user", "content": said}]

    def llama(self, method: str, k: int = 3) -> Any:
        """Return the target with a draft of a method."""
        self.target.reset()
        self.draft.reset()
        self.target.draft_model = {
            "none": lambda: None,
            "prompt_lookup": lambda: Lookup(1, k),
            "draft_model": lambda: SecondModel(self.draft, self.target, num_pred_tokens=k),
            "custom": lambda: Scripted(lambda ids: [int(ids[-1])] * k, k),
            "custom that hides k": lambda: Scripted(lambda ids: [int(ids[-1])] * k, k, declared=False),
            "draft model that hides k": lambda: Generating(self.draft, k, declared=False),
        }[method]()
        if self.target.draft_model is not None:
            self.target.draft_model.log = []
        return self.target

    def close(self) -> None:
        """Free the models."""
        for llama in (self.target, self.draft, self.embedder):
            llama.draft_model = None
            llama.close()


@pytest.fixture(scope="module")
def bench(cycle: Pair) -> Iterator[Bench]:
    """The cycle pair's models."""
    bench = Bench(cycle)
    yield bench
    bench.close()


def loop(bench: Bench, llama: Any) -> None:
    """Run a token loop and drop it."""
    stream = llama.generate(bench.prompt, temp=0.0)
    list(islice(stream, 20))
    stream.close()


def complete(bench: Bench, llama: Any, *, stream: bool = False) -> None:
    """Complete the prompt."""
    answer = llama.create_completion(bench.prompt, max_tokens=20, temperature=0.0, stream=stream)
    list(answer)


def chat(bench: Bench, llama: Any, *, stream: bool = False) -> None:
    """Answer the messages."""
    list(llama.create_chat_completion(bench.chat, max_tokens=20, temperature=0.0, stream=stream))


CALLS: dict[str, Callable[[Bench, Any], None]] = {
    "generate": loop,
    "create_completion": complete,
    "create_completion, streamed": partial(complete, stream=True),
    "create_chat_completion": chat,
    "create_chat_completion, streamed": partial(chat, stream=True),
}


def keys(telemetry: Telemetry) -> set[str]:
    """The attribute keys of the one span so far, which is then forgotten."""
    found = set(telemetry.span().attributes or {})
    telemetry.clear()
    return found


def shapes(telemetry: Telemetry) -> set[tuple[str, frozenset[str]]]:
    """Metric names with the label keys of their points."""
    return {(point.metric, frozenset(point.labels)) for point in telemetry.points()}


@pytest.mark.parametrize("entry", CALLS)
def test_span_keys_differ_by_two(entry: str, bench: Bench, telemetry: Telemetry) -> None:
    """A speculative span has the keys of an autoregressive one, and accept_rate, and draft.model where there is one."""
    found = {}
    for method in DRAFTS:
        CALLS[entry](bench, bench.llama(method))
        found[method] = keys(telemetry)
    assert set(CORE_ATTRIBUTES) | ONLY_HERE <= found["none"]
    assert found["draft_model"] ^ found["none"] == set(MODE_ONLY_ATTRIBUTES)
    assert found["prompt_lookup"] ^ found["none"] == {Attr.SPECDECODE_ACCEPT_RATE}


@pytest.mark.parametrize("method", ["prompt_lookup", "draft_model"])
def test_metric_names_and_label_keys_are_equal(method: str, bench: Bench) -> None:
    """Speculative requests make the metrics of autoregressive ones, same label keys, and the time of drafting."""

    def made_by(method: str) -> set[tuple[str, frozenset[str]]]:
        with capture() as telemetry:
            for _ in range(ENOUGH_TO_BE_RECORDED):
                complete(bench, bench.llama(method), stream=True)
            return shapes(telemetry)

    one, other = made_by("none"), made_by(method)
    assert one <= other
    assert {name for name, _ in other - one} == {Metrics.SPECDECODE_DRAFT_DURATION.name}


@pytest.mark.mlx
def test_both_engines_have_the_same_keys(bench: Bench, telemetry: Telemetry, tmp_path: Path) -> None:
    """Autoregressive with autoregressive, speculative with speculative: but for the time of drafting they are equal."""
    mlx_lm = pytest.importorskip("mlx_lm", reason="needs the [mlx] extra")
    from tests.engines.mlx_lm.conftest import SPLITS_PREFILL, load_cycle

    pair = load_cycle(tmp_path)
    for method, draft in (("none", {}), ("draft_model", {"draft_model": pair.draft})):
        telemetry.clear()
        complete(bench, bench.llama(method), stream=True)
        here = keys(telemetry)
        list(mlx_lm.stream_generate(pair.target, pair.tokenizer, bench.prompt, max_tokens=20, **draft))
        there = keys(telemetry)
        unsplit = set() if SPLITS_PREFILL or not draft else {Attr.SPECDECODE_PREFILL_DURATION}
        assert set(CORE_ATTRIBUTES) - unsplit == set(CORE_ATTRIBUTES) & there
        assert set(CORE_ATTRIBUTES) == set(CORE_ATTRIBUTES) & here
        ours = {key for key in here ^ there if key.startswith("specdecode.")}
        assert ours - unsplit == ONLY_HERE


def test_the_registry_lists_what_only_this_engine_can_tell() -> None:
    """Those fields are not in the core set, and forbidden on MLX."""
    registry = json.loads(resources.files("otel_specdecode.telemetry").joinpath("registry.json").read_text())
    (span,) = (span for span in registry["spans"] if span["id"] == "span.specdecode.generation")
    not_on_mlx = {"attribute": Attr.GEN_AI_PROVIDER_NAME, "equals": "mlx"}
    listed = {key for key, use in span["attributes"].items() if use.get("absent_when") == not_on_mlx}
    assert listed == ONLY_HERE
    assert not listed & set(CORE_ATTRIBUTES)


def by_label(points: list[Point], label: str) -> dict[Any, float]:
    """Values by one label's value."""
    return {point.labels[label]: point.value for point in points}


@pytest.mark.parametrize(("method", "k"), [("none", 0), ("prompt_lookup", 3), ("draft_model", 3), ("draft_model", 20)])
def test_every_counter_series_is_there_from_the_first_request(
    method: str, k: int, bench: Bench, telemetry: Telemetry
) -> None:
    """Closed labels exist with 0 from the first request on: outcomes, positions below k, hazards, reasons."""
    complete(bench, bench.llama(method, k))
    outcomes = by_label(telemetry.points(Metrics.SPECDECODE_DRAFT_TOKENS.name), Attr.SPECDECODE_DRAFT_OUTCOME)
    rounds = by_label(telemetry.points(Metrics.SPECDECODE_VERIFY_PASSES.name), Attr.SPECDECODE_ROUND_OUTCOME)
    hazards = by_label(telemetry.points(Metrics.SPECDECODE_HAZARDS.name), Attr.SPECDECODE_HAZARD_ID)
    reasons = by_label(telemetry.points(Metrics.SPECDECODE_FALLBACKS.name), Attr.SPECDECODE_FALLBACK_REASON)
    assert set(outcomes) == set(Enum.SPECDECODE_DRAFT_OUTCOME)
    assert set(rounds) == set(Enum.SPECDECODE_ROUND_OUTCOME)
    assert hazards == dict.fromkeys(Enum.SPECDECODE_HAZARD_ID, 0)
    assert reasons == dict.fromkeys(Enum.SPECDECODE_FALLBACK_REASON, 0)
    positions = list(Enum.SPECDECODE_DRAFT_POSITION)[: k or 1]
    for metric in (Metrics.SPECDECODE_DRAFT_PROPOSED_BY_POSITION, Metrics.SPECDECODE_DRAFT_ACCEPTED_BY_POSITION):
        assert list(by_label(telemetry.points(metric.name), Attr.SPECDECODE_DRAFT_POSITION)) == positions
    for name in ("rollbacks", "draft.passes", "draft.calls", "decode.passes", "decode.tokens"):
        assert len(telemetry.points(f"specdecode.{name}")) == 1
    if not k:
        assert sum(outcomes.values()) == sum(rounds.values()) == 0


@pytest.mark.parametrize(
    ("method", "labelled", "k", "length"),
    [
        ("none", "none", 0, "0"),
        ("prompt_lookup", "prompt_lookup", 3, "3"),
        ("draft_model", "draft_model", 20, "16+"),
        ("custom", "custom", 3, "3"),
        ("custom that hides k", "custom", 3, "unknown"),
        ("draft model that hides k", "draft_model", 3, "unknown"),
    ],
)
def test_labels(method: str, labelled: str, k: int, length: str, bench: Bench, telemetry: Telemetry) -> None:
    """What a request was is on its counters: engine, model, modes, method, draft length, cohort, size of the prompt."""
    complete(bench, bench.llama(method, k))
    (point,) = telemetry.points(Metrics.SPECDECODE_DECODE_TOKENS.name)
    mode = "autoregressive" if method == "none" else "speculative"
    assert point.labels == {
        Attr.GEN_AI_OPERATION_NAME: "text_completion",
        Attr.GEN_AI_PROVIDER_NAME: "llama_cpp",
        Attr.GEN_AI_REQUEST_MODEL: "cycle-target",
        Attr.SPECDECODE_MODE: mode,
        Attr.SPECDECODE_REQUESTED_MODE: mode,
        Attr.SPECDECODE_METHOD: labelled,
        Attr.SPECDECODE_DRAFT_LENGTH: length,
        Attr.SPECDECODE_COHORT: "normal",
        Attr.SPECDECODE_CONTEXT_TIER: "short",
    }


BY_POSITION: dict[str, tuple[Any, ...]] = {
    "generate": (7, 0.5, 0.0, 1.0, 0.7),
    "create_completion": (None, 5, 0.7, 0.5),
    "create_chat_completion": (None, None, None, None, 0.7, 0.5, 7),
}


@pytest.mark.parametrize("entry", BY_POSITION)
def test_arguments_may_be_given_by_position(entry: str, bench: Bench, telemetry: Telemetry) -> None:
    """Sampling parameters are those of the call, however they are given."""
    asked: Any = bench.chat if "chat" in entry else bench.prompt
    list(islice(getattr(bench.llama("none"), entry)(asked, *BY_POSITION[entry]), 5))
    found = dict(telemetry.span().attributes or {})
    assert found[Attr.GEN_AI_REQUEST_TEMPERATURE] == 0.7
    assert found[Attr.GEN_AI_REQUEST_TOP_P] == 0.5
    assert found[Attr.GEN_AI_REQUEST_TOP_K] == (40 if entry == "create_completion" else 7)
    assert found.get(Attr.GEN_AI_REQUEST_MAX_TOKENS) == (5 if entry == "create_completion" else None)


@pytest.mark.parametrize("method", ["prompt_lookup", "draft_model", "custom"])
def test_k_of_zero_is_a_fallback(method: str, bench: Bench, telemetry: Telemetry) -> None:
    """A draft that may propose nothing: asked for speculation, entered autoregressive decoding, the reason says so."""
    complete(bench, bench.llama(method, 0))
    found = dict(telemetry.span().attributes or {})
    assert found[Attr.SPECDECODE_MODE] == "autoregressive"
    assert found[Attr.SPECDECODE_REQUESTED_MODE] == "speculative"
    assert found[Attr.SPECDECODE_FALLBACK_REASON] == "zero_draft_length"
    assert found[Attr.SPECDECODE_DRAFT_MAX_TOKENS] == 0
    assert found[Attr.SPECDECODE_DRAFT_CALLS] == 19
    assert found.get(Attr.SPECDECODE_DRAFT_PASSES) == (None if method == "custom" else 0)
    assert 0 < found[Attr.SPECDECODE_DRAFT_DURATION] <= found[Attr.SPECDECODE_DECODE_DURATION]
    assert telemetry.total("specdecode.fallbacks", fallback_reason="zero_draft_length") == 1
    assert found[Attr.SPECDECODE_DECODE_PASSES] == found[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] - 1


def every_kind(bench: Bench) -> Iterator[Any]:
    """One call of every kind, and every ending."""
    for method in (*DRAFTS, "custom", "custom that hides k"):
        for k in (0, 3, 20):
            for call in CALLS.values():
                yield call(bench, bench.llama(method, k))
    for method in DRAFTS:
        llama = bench.llama(method)
        for stream in (
            llama.generate(bench.prompt),
            llama.create_completion(bench.prompt, stream=True),
            llama.create_chat_completion(bench.chat, stream=True),
        ):
            next(stream)
            yield stream.close()
        criteria = llama_cpp.StoppingCriteriaList([lambda *_: True])
        yield llama.create_completion(bench.prompt, stopping_criteria=criteria)
        yield llama.create_completion(
            bench.prompt, max_tokens=1, seed=3, stop=["x"], temperature=0.7, logit_bias={301: 1.0}
        )
        yield list(islice(llama.generate(bench.prompt), 3))
        for wrong in ([301] * 300, object()):
            with pytest.raises((ValueError, TypeError)):
                llama.create_completion(wrong)
        with pytest.raises(RuntimeError, match="decode"):
            list(llama.generate([301] * 300))
    bench.embedder.embed("a word")
    bench.embedder.embed("a word", return_count=True)
    bench.embedder.create_embedding("a word")
    with pytest.raises(TypeError):
        bench.embedder.embed(3)


@pytest.mark.parametrize("convention", ["released", "latest", "both"])
def test_everything_emitted_conforms(convention: Any, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names, kinds, types, units, texts, labels and requirement levels, for every kind of call and ending."""
    monkeypatch.setenv("OTEL_SPECDECODE_GENAI_METRICS", convention)
    with capture() as telemetry:
        list(every_kind(bench))
        conforms(telemetry, convention)


def test_a_draft_model_that_hides_its_length_conforms(bench: Bench, telemetry: Telemetry) -> None:
    """A hand-written draft need not tell how many tokens it proposes, whatever it runs on."""
    complete(bench, bench.llama("draft model that hides k"))
    assert Attr.SPECDECODE_DRAFT_MAX_TOKENS not in dict(telemetry.span().attributes or {})
    conforms(telemetry)


def conforms(telemetry: Telemetry, convention: Any = "released") -> None:
    """Hold all that was emitted against the registry."""
    assert_conformant(
        spans=telemetry.spans(), metrics=telemetry.metrics_data(), logs=telemetry.logs(), genai_metrics=convention
    )


@pytest.mark.parametrize("capturing", ["SPAN_ONLY", "EVENT_ONLY", "SPAN_AND_EVENT"])
def test_captured_content_conforms(capturing: str, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts and answers of those who opted in have the shape that the conventions give them."""
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", capturing)
    with capture() as telemetry:
        for call in CALLS.values():
            call(bench, bench.llama("draft_model"))
        conforms(telemetry)
        held = {key for span in telemetry.spans() for key in span.attributes or {}}
        assert (Attr.GEN_AI_OUTPUT_MESSAGES in held) == capturing.startswith("SPAN")


def test_exemplars_link_to_the_span(bench: Bench, telemetry: Telemetry) -> None:
    """Each histogram point carries an exemplar of the request's trace and span."""
    complete(bench, bench.llama("draft_model"), stream=True)
    context = telemetry.span().context
    histograms = [point for point in telemetry.points() if point.total is not None]
    assert len(histograms) >= 10
    for point in histograms:
        exemplars = {(exemplar.trace_id, exemplar.span_id) for exemplar in point.exemplars}
        assert exemplars == {(context.trace_id, context.span_id)}, point.metric
