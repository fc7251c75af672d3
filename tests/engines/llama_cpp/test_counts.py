"""Every count on the span equals one taken below the adapter: at the context, at the sampler and in the draft."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from otel_specdecode.telemetry.names import Attr, Enum
from otel_specdecode.testing.capture import Telemetry
from otel_specdecode.tiny_pair.cycle import build
from otel_specdecode.tiny_pair.gguf import convert
from tests.edge_table import EDGES, Edge
from tests.engines.llama_cpp.cases import (
    EOS_AFTER,
    METHODS,
    MOST,
    Bench,
    Case,
    Run,
    prepare,
    run,
    word_before_eos,
)
from tests.engines.llama_cpp.conftest import Pair
from tests.engines.llama_cpp.ground_truth import Scripted, llama_cpp

pytestmark = pytest.mark.llama_cpp

CASES = 240
BATCH = 40
ROUND_OUTCOMES = ("all_accepted", "rolled_back", "all_rejected", "cut")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A pair whose every token is known; a prompt's last word decides when EOS comes."""
    folder = tmp_path_factory.mktemp("eos")
    truth = build(folder, eos_after=EOS_AFTER)
    target, draft = (convert(path, path.with_suffix(".gguf"), "f32") for path in (truth.target, truth.draft))
    bench = Bench(Pair(target, draft, truth))
    yield bench
    bench.close()


def check_request(case: Case, ran: Run, found: dict[str, Any]) -> None:
    """Hold what was asked for and how it ended."""
    assert found[Attr.SPECDECODE_METHOD] == METHODS[case.draft]
    assert found[Attr.SPECDECODE_REQUESTED_MODE] == ("autoregressive" if case.draft == "none" else "speculative")
    assert found[Attr.SPECDECODE_MODE] == ("speculative" if case.speculates else "autoregressive")
    k = 0 if case.draft == "none" else case.k if case.declared else None
    assert found.get(Attr.SPECDECODE_DRAFT_MAX_TOKENS) == k
    assert found.get(Attr.SPECDECODE_DRAFT_MODEL) == ("draft" if METHODS[case.draft] == "draft_model" else None)
    assert found[Attr.GEN_AI_RESPONSE_FINISH_REASONS] == (ran.outcome.reason,)


def check_tokens(ran: Run, found: dict[str, Any], eog: frozenset[int]) -> None:
    """Hold prompt and output against what was sampled, and against the engine's own usage where it tells one.

    Known deviation: that leaves out the token that ends a generation, which this package counts on every engine.
    """
    truth, usage = ran.truth, ran.outcome.usage
    assert found[Attr.GEN_AI_USAGE_INPUT_TOKENS] == ran.input_tokens
    assert found.get(Attr.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS, 0) == ran.input_tokens - truth.fed
    assert found[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == len(truth.tokens)
    if usage is not None:
        left_out = bool(truth.tokens) and truth.tokens[-1] in eog
        assert usage["prompt_tokens"] == ran.input_tokens
        assert usage["completion_tokens"] == len(truth.tokens) - left_out


def check_passes(case: Case, ran: Run, found: dict[str, Any]) -> None:
    """Hold the passes of target and draft."""
    truth = ran.truth
    assert found[Attr.SPECDECODE_PREFILL_PASSES] == truth.prefill_passes
    assert found[Attr.SPECDECODE_DECODE_PASSES] == len(truth.widths)
    assert found[Attr.SPECDECODE_VERIFY_PASSES] == len(truth.rounds)
    assert found[Attr.SPECDECODE_DRAFT_CALLS] == len(truth.calls)
    if METHODS[case.draft] == "custom":
        assert Attr.SPECDECODE_DRAFT_PASSES not in found
        assert Attr.SPECDECODE_DRAFT_PREFILL_PASSES not in found
    else:
        draft_passes = sum(map(len, truth.draft_widths))
        assert found[Attr.SPECDECODE_DRAFT_PASSES] == truth.draft_passes
        assert found[Attr.SPECDECODE_DRAFT_PREFILL_PASSES] == draft_passes - truth.draft_passes


def check_draft_tokens(ran: Run, found: dict[str, Any]) -> None:
    """Hold what became of the proposed tokens, and the identities of all counts."""
    rounds = ran.truth.rounds
    proposed = sum(len(each.draft) for each in rounds)
    accepted = sum(each.accepted for each in rounds)
    rejected = sum(each.rejected for each in rounds)
    assert found[Attr.SPECDECODE_DRAFT_PROPOSED_TOKENS] == proposed
    assert found[Attr.SPECDECODE_DRAFT_ACCEPTED_TOKENS] == accepted
    assert found[Attr.SPECDECODE_DRAFT_REJECTED_TOKENS] == rejected
    assert found[Attr.SPECDECODE_DRAFT_UNVERIFIED_TOKENS] == sum(each.unverified for each in rounds)
    assert proposed == accepted + rejected + found[Attr.SPECDECODE_DRAFT_UNVERIFIED_TOKENS]
    assert found[Attr.SPECDECODE_ROLLBACKS] == sum(each.rejected > 0 for each in rounds)
    compared = accepted + rejected
    assert found.get(Attr.SPECDECODE_ACCEPT_RATE) == (accepted / compared if compared else None)
    finished = sum(each.finished for each in rounds)
    if found[Attr.SPECDECODE_MODE] == "speculative":
        length = (accepted + finished) / len(rounds) if rounds else None
        assert found.get(Attr.SPECDECODE_ACCEPTANCE_LENGTH) == length
        from_plain_passes = sum(len(each.emitted) for each in ran.truth.passes if not each.draft)
        first = min(len(ran.truth.tokens), 1)
        assert len(ran.truth.tokens) == first + accepted + finished + from_plain_passes


def check_draft_time(case: Case, ran: Run, found: dict[str, Any]) -> None:
    """Hold the time of drafting: a part of decode, which ends with the last token, and 0 where no draft led to one."""
    time = found[Attr.SPECDECODE_DRAFT_DURATION]
    assert (time > 0) == (case.draft != "none" and any(each.emitted for each in ran.truth.passes))
    assert time <= found.get(Attr.SPECDECODE_DECODE_DURATION, 0)


@pytest.mark.parametrize("first", range(0, CASES, BATCH))
def test_counts_equal_those_taken_below(first: int, bench: Bench, telemetry: Telemetry) -> None:
    """240 random prompts, drafts, draft lengths, calls, endings, caches and temperatures."""
    for seed in range(first, first + BATCH):
        case = Case.random(seed, bench)
        llama = prepare(case, bench)
        telemetry.clear()
        ran = run(case, bench, llama)
        found = dict(telemetry.span().attributes or {})
        try:
            check_request(case, ran, found)
            check_tokens(ran, found, bench.eog)
            check_passes(case, ran, found)
            check_draft_tokens(ran, found)
            check_draft_time(case, ran, found)
            if case.temperature == 0:
                assert list(ran.truth.tokens) == bench.truth.tokens(case.prompt[-1], len(ran.truth.tokens))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {case}") from error


SUMS = (
    (Attr.SPECDECODE_DECODE_PASSES, "specdecode.decode.passes"),
    (Attr.SPECDECODE_ROLLBACKS, "specdecode.rollbacks"),
    (Attr.SPECDECODE_DRAFT_PASSES, "specdecode.draft.passes"),
    (Attr.SPECDECODE_DRAFT_CALLS, "specdecode.draft.calls"),
    (Attr.SPECDECODE_VERIFY_PASSES, "specdecode.verify.passes"),
    (Attr.SPECDECODE_DRAFT_PROPOSED_TOKENS, "specdecode.draft.tokens"),
    (Attr.SPECDECODE_DRAFT_PROPOSED_TOKENS, "specdecode.draft.proposed_by_position"),
    (Attr.SPECDECODE_DRAFT_ACCEPTED_TOKENS, "specdecode.draft.accepted_by_position"),
)
OUTCOMES = {
    "accepted": Attr.SPECDECODE_DRAFT_ACCEPTED_TOKENS,
    "rejected": Attr.SPECDECODE_DRAFT_REJECTED_TOKENS,
    "unverified": Attr.SPECDECODE_DRAFT_UNVERIFIED_TOKENS,
}


def test_metric_sums_equal_the_spans(bench: Bench, telemetry: Telemetry) -> None:
    """Over a mix of runs each counter is the sum of the spans' attribute of that name."""
    truths = []
    for seed in range(300, 360):
        case = replace(Case.random(seed, bench), earlier="nothing")
        truths.append(run(case, bench, prepare(case, bench)).truth)
    spans = [dict(span.attributes or {}) for span in telemetry.spans()]
    assert len(spans) == len(truths)
    for attribute, metric in SUMS:
        assert telemetry.total(metric) == sum(span.get(attribute, 0) for span in spans), metric
    for outcome, attribute in OUTCOMES.items():
        total = telemetry.total("specdecode.draft.tokens", draft_outcome=outcome)
        assert total == sum(span[attribute] for span in spans), outcome
    assert telemetry.total("specdecode.decode.tokens") == sum(max(len(truth.tokens) - 1, 0) for truth in truths)
    assert telemetry.total("specdecode.request.started") == len(spans)
    assert telemetry.total("specdecode.request.active") == 0


def test_counts_by_position_equal_those_taken_below(bench: Bench, telemetry: Telemetry) -> None:
    """Proposed and accepted tokens by their place in the draft, all above the sixteenth in one."""
    truths = []
    for seed in range(400, 440):
        case = replace(
            Case.random(seed, bench), earlier="nothing", narrow=False, k=20, ending="closed", entry="generate"
        )
        case = replace(case, draft="scripted", limit=24)
        truths.append(run(case, bench, prepare(case, bench)).truth)
    for name, accepted in (("proposed", False), ("accepted", True)):
        places = [truth.by_position(accepted=accepted) for truth in truths]
        for place, label in enumerate(Enum.SPECDECODE_DRAFT_POSITION):
            total = telemetry.total(f"specdecode.draft.{name}_by_position", draft_position=label)
            assert total == sum(each[place] for each in places), (name, label)
        assert sum(each[-1] for each in places)


def play(draft: Scripted, llama: Any, prompt: list[int], ending: str, tokens: int) -> None:
    """Emit this many tokens, the last of which is the end in one of four ways."""
    llama.draft_model, draft.log = draft, []
    if ending in ("limit", "eos"):
        llama.create_completion(prompt, max_tokens=tokens if ending == "limit" else MOST, temperature=0.0)
    else:
        refuse = llama_cpp.StoppingCriteriaList(
            [lambda ids, _: ending == "refused" and len(ids) == len(prompt) + tokens]
        )
        loop = llama.generate(prompt, temp=0.0, stopping_criteria=refuse)
        list(islice(loop, tokens + (ending == "refused")))
        loop.close()
    llama.draft_model = None


ENDED_EDGES = [
    pytest.param(edge, ending, id=f"{edge.name}, {ending}")
    for edge in EDGES
    for ending in (("closed", "limit", "eos") if edge.emitted else ("refused",))
]


@pytest.mark.parametrize(("edge", "ending"), ENDED_EDGES)
def test_the_edge_table(edge: Edge, ending: str, bench: Bench, telemetry: Telemetry) -> None:
    """A round that goes as a row of the table says counts as the row says, whether closed there, at the limit or EOS.

    Nothing is emitted from a round if a stopping criterion refuses its first token.
    """
    llama = bench.fresh(narrow=True, logits_all=True)
    first = word_before_eos(bench.truth, 1 + len(edge.emitted)) if ending == "eos" else 303
    following = bench.truth.tokens(first, 6)[1:]
    right = edge.accepted if edge.finished else len(edge.draft)
    draft = [token if place < right else token - 1 for place, token in enumerate(following[: len(edge.draft)])]
    play(Scripted(lambda _: draft), llama, [301, 302, first], ending, 1 + len(edge.emitted))
    found = dict(telemetry.span().attributes or {})
    assert found[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == 1 + len(edge.emitted)
    assert found[Attr.SPECDECODE_DECODE_PASSES] == 1
    assert found[Attr.SPECDECODE_VERIFY_PASSES] == (edge.outcome is not None)
    assert tuple(found[attribute] for attribute in OUTCOMES.values()) == (edge.accepted, edge.rejected, edge.unverified)
    outcomes = {name: telemetry.total("specdecode.verify.passes", round_outcome=name) for name in ROUND_OUTCOMES}
    assert outcomes == {name: name == edge.outcome for name in ROUND_OUTCOMES}


def test_the_worked_example(bench: Bench, telemetry: Telemetry) -> None:
    """[2, 3, 1, 4, 2, 0, 3, 3] at k = 4 on the real engine: 8 rounds, 18 accepted, acceptance length 3.25."""
    script = iter((2, 3, 1, 4, 2, 0, 3, 3))

    def propose(input_ids: Any) -> list[int]:
        right = next(script)
        return [token - (place >= right) for place, token in enumerate(bench.truth.tokens(int(input_ids[-1]), 4))]

    play(Scripted(propose, 4), bench.fresh(narrow=True, logits_all=True), [301, 302, 303], "closed", 27)
    found = dict(telemetry.span().attributes or {})
    assert found[Attr.SPECDECODE_VERIFY_PASSES] == 8
    assert found[Attr.SPECDECODE_DRAFT_ACCEPTED_TOKENS] == 18
    assert found[Attr.SPECDECODE_ACCEPTANCE_LENGTH] == 3.25
    assert found[Attr.SPECDECODE_ACCEPT_RATE] == 18 / 32
    by_position = [
        telemetry.total("specdecode.draft.accepted_by_position", draft_position=str(place)) for place in range(4)
    ]
    assert by_position == [7, 6, 4, 1]
