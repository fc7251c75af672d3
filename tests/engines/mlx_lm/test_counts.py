"""Every count on the span equals one taken at the models and one worked out from the emitted tokens."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest

from otel_specdecode.telemetry.names import Attr
from otel_specdecode.testing.capture import Telemetry
from tests.engines.mlx_lm.conftest import Pair, Passes, counted_passes, step_functions

pytestmark = pytest.mark.mlx

CASES = 240
BATCH = 40


@dataclass(frozen=True)
class Case:
    """One random run.

    Attributes:
        prompt: Token ids.
        k: Draft length, None for an autoregressive run.
        limit: max_tokens.
        stop: Consumer stops after this many tokens, None: never.
        entry: The function that is called.
        step: Prefill step size.
    """

    prompt: list[int]
    k: int | None
    limit: int
    stop: int | None
    entry: str
    step: int

    @classmethod
    def random(cls, seed: int) -> Case:
        """Draw a case."""
        draw = random.Random(seed)
        limit = draw.randint(1, 24)
        return cls(
            prompt=[draw.randrange(300, 500) for _ in range(draw.choice((1, 2, 3, 9, 17, 40)))],
            k=draw.choice((None, 0, 1, 2, 3, 4, 6, 9)),
            limit=limit,
            stop=draw.choice((None, None, draw.randint(1, limit))),
            entry=draw.choice(("stream_generate", "step")),
            step=draw.choice((8, 16, 512)),
        )


def run(case: Case, pair: Pair) -> list[tuple[int, bool]]:
    """Run a case; return tokens with whether each came from the draft."""
    import mlx.core as mx
    import mlx_lm

    options: dict[str, Any] = {"max_tokens": case.limit, "prefill_step_size": case.step}
    drafted = {} if case.k is None else {"num_draft_tokens": case.k}
    if case.entry == "stream_generate":
        draft = {} if case.k is None else {"draft_model": pair.draft}
        stream = mlx_lm.stream_generate(pair.target, pair.tokenizer, case.prompt, **options, **drafted, **draft)
        tokens = ((response.token, response.from_draft) for response in stream)
    elif case.k is None:
        stream = step_functions().generate_step(mx.array(case.prompt), pair.target, **options)
        tokens = ((token, False) for token, _ in stream)
    else:
        step = step_functions().speculative_generate_step
        stream = step(mx.array(case.prompt), pair.target, pair.draft, **options, **drafted)
        tokens = ((token, flag) for token, _, flag in stream)
    emitted = []
    for token in tokens:
        emitted.append(token)
        if len(emitted) == case.stop:
            break
    stream.close()
    return emitted


def expected_rounds(case: Case, flags: list[bool]) -> list[tuple[int, int, bool]]:
    """Work out (proposed, accepted, finished) of each round from the flags alone."""
    rounds: list[tuple[int, int, bool]] = []
    before = accepted = 0
    for number, from_draft in enumerate(flags, 1):
        accepted += from_draft
        proposed = min(case.limit - before, case.k or 0)
        full = number == case.limit
        if not from_draft:
            rounds.append((proposed, accepted, True))
        elif number == len(flags) or full:
            rounds.append((proposed, accepted, False))
        else:
            continue
        before, accepted = number, 0
    return rounds


def check(case: Case, emitted: list[tuple[int, bool]], passes: Passes, attributes: dict[str, Any]) -> None:
    """Hold a span's counts against both independent ones."""
    flags = [flag for _, flag in emitted]
    rounds = expected_rounds(case, flags) if case.k else []
    proposed = sum(round_[0] for round_ in rounds)
    accepted = sum(round_[1] for round_ in rounds)
    rejected = sum(round_[0] - round_[1] for round_ in rounds if round_[2])
    assert attributes[Attr.GEN_AI_USAGE_INPUT_TOKENS] == len(case.prompt)
    assert attributes[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == len(emitted)
    assert attributes[Attr.SPECDECODE_MODE] == ("speculative" if case.k else "autoregressive")
    assert attributes[Attr.SPECDECODE_VERIFY_PASSES] == len(rounds)
    assert attributes[Attr.SPECDECODE_DRAFT_PROPOSED_TOKENS] == proposed
    assert attributes[Attr.SPECDECODE_DRAFT_ACCEPTED_TOKENS] == accepted == sum(flags)
    assert attributes[Attr.SPECDECODE_DRAFT_REJECTED_TOKENS] == rejected
    assert attributes[Attr.SPECDECODE_DRAFT_UNVERIFIED_TOKENS] == proposed - accepted - rejected
    assert attributes[Attr.SPECDECODE_ROLLBACKS] == sum(1 for round_ in rounds if round_[2] and round_[1] < round_[0])
    target = attributes[Attr.SPECDECODE_PREFILL_PASSES] + attributes[Attr.SPECDECODE_DECODE_PASSES]
    assert target == len(passes.target)
    draft = attributes[Attr.SPECDECODE_DRAFT_PREFILL_PASSES] + attributes[Attr.SPECDECODE_DRAFT_PASSES]
    assert draft == len(passes.draft)
    if case.k:
        assert attributes[Attr.SPECDECODE_DECODE_PASSES] == len(rounds)
        assert attributes[Attr.SPECDECODE_DRAFT_PASSES] == proposed
        assert attributes[Attr.SPECDECODE_DRAFT_CALLS] == len(rounds)
        assert sum(passes.target) == len(case.prompt) - 1 + len(rounds) + proposed


@pytest.mark.parametrize("first", range(0, CASES, BATCH))
def test_counts_equal_those_taken_at_the_models(first: int, cycle: Pair, telemetry: Telemetry) -> None:
    """240 random prompts, draft lengths, limits and stopping points, through the outer and the inner functions."""
    for seed in range(first, first + BATCH):
        case = Case.random(seed)
        telemetry.clear()
        with counted_passes(cycle) as passes:
            emitted = run(case, cycle)
        try:
            check(case, emitted, passes, dict(telemetry.span().attributes or {}))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {case}") from error
        assert cycle.truth is not None
        assert [token for token, _ in emitted] == cycle.truth.tokens(case.prompt[-1], len(emitted))


def test_metric_sums_equal_the_spans(cycle: Pair, telemetry: Telemetry) -> None:
    """Over a mix of runs each counter is the sum of the spans' attribute of that name."""
    for seed in range(300, 330):
        run(Case.random(seed), cycle)
    spans = [dict(span.attributes or {}) for span in telemetry.spans()]
    for attribute, metric in (
        (Attr.SPECDECODE_DECODE_PASSES, "specdecode.decode.passes"),
        (Attr.SPECDECODE_ROLLBACKS, "specdecode.rollbacks"),
        (Attr.SPECDECODE_DRAFT_PASSES, "specdecode.draft.passes"),
        (Attr.SPECDECODE_DRAFT_CALLS, "specdecode.draft.calls"),
        (Attr.SPECDECODE_VERIFY_PASSES, "specdecode.verify.passes"),
        (Attr.SPECDECODE_DRAFT_PROPOSED_TOKENS, "specdecode.draft.tokens"),
        (Attr.SPECDECODE_DRAFT_PROPOSED_TOKENS, "specdecode.draft.proposed_by_position"),
        (Attr.SPECDECODE_DRAFT_ACCEPTED_TOKENS, "specdecode.draft.accepted_by_position"),
    ):
        assert telemetry.total(metric) == sum(span[attribute] for span in spans), metric
    assert telemetry.total("specdecode.request.started") == len(spans)
    assert telemetry.total("specdecode.request.active") == 0
