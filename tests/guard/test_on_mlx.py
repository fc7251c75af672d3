"""Plans on the real MLX-LM: every rung is the plain run of its mode, however it is used, and caches stay right."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("mlx_lm", reason="needs the [mlx] extra")

import mlx.core as mx
import mlx_lm
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.sample_utils import make_sampler

from otel_specdecode.generation.plan import Plan
from otel_specdecode.telemetry.names import Attr
from otel_specdecode.testing.capture import Telemetry, capture
from otel_specdecode.tiny_pair import chat_tokens
from tests.guard.joined import (
    ROUNDS,
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
from tests.guard.mlx_pair import EASY, HARD, TOKENS, Item, K, Pair, seen

pytestmark = pytest.mark.mlx


def greedy() -> dict[str, Any]:
    return {}


def seeded() -> dict[str, Any]:
    mx.random.seed(7)
    return {"sampler": make_sampler(temp=0.9, top_p=0.95)}


def processed() -> dict[str, Any]:
    def processor(_: Any, logits: Any) -> Any:
        return mx.where(mx.arange(logits.shape[-1]) == 310, -mx.inf, logits)

    mx.random.seed(11)
    return {"sampler": make_sampler(temp=0.7), "logits_processors": [processor]}


def plain_run(pair: Pair, plan: Plan, **options: Any) -> list[Item]:
    """What nobody decided about, in the mode of a plan."""
    if plan.autoregressive:
        return pair.run(**options)
    return pair.run(draft=pair.draft, num_draft_tokens=plan.length(K), **options)


@pytest.mark.parametrize("sampling", [greedy, seeded, processed])
@pytest.mark.parametrize("rung", RUNGS)
def test_a_planned_request_is_the_plain_run_of_its_mode(
    rung: str, sampling: Callable[[], dict[str, Any]], pair: Pair
) -> None:
    """Token by token, with its text and where it came from; the span says what ran and why."""
    plan = RUNGS[rung]
    plain = plain_run(pair, plan, **sampling())
    with capture() as telemetry, planned(plan) as planner:
        assert pair.run(draft=pair.draft, **sampling()) == plain
        (found,) = paths(telemetry)
        mode = "autoregressive" if plan.autoregressive else "speculative"
        assert found == (mode, plan.cohort, plan.fallback_reason, plan.length(K))
        attributes = dict(telemetry.span().attributes or {})
        assert attributes[Attr.SPECDECODE_REQUESTED_MODE] == "speculative"
        assert attributes[Attr.SPECDECODE_METHOD] == "draft_model"
        assert violations(telemetry) == []
        (ask,) = planner.asked
        assert (ask.provider, ask.model, ask.method, ask.draft_length) == ("mlx", "target", "draft_model", K)
        assert planner.given_back == 1


@pytest.mark.parametrize("rung", RUNGS)
def test_a_planned_whole_answer_is_the_plain_one(rung: str, pair: Pair, telemetry: Telemetry) -> None:
    """`generate`, which waits for the text, is planned by the stream that it makes."""
    prompt = chat_tokens(pair.tokenizer, EASY)
    plan = RUNGS[rung]
    asked = {} if plan.autoregressive else {"draft_model": pair.draft, "num_draft_tokens": plan.length(K)}
    plain = mlx_lm.generate(pair.target, pair.tokenizer, prompt, max_tokens=TOKENS, **asked)
    with planned(plan) as planner:
        options = {"draft_model": pair.draft, "num_draft_tokens": K}
        assert mlx_lm.generate(pair.target, pair.tokenizer, prompt, max_tokens=TOKENS, **options) == plain
        assert planner.given_back == len(planner.asked) == 1


def test_a_step_function_that_the_program_calls_itself_is_planned(pair: Pair, telemetry: Telemetry) -> None:
    """It cannot become another function: without speculation its draft proposes nothing."""
    from mlx_lm.generate import speculative_generate_step

    prompt = mx.array(chat_tokens(pair.tokenizer, EASY))

    def run() -> list[tuple[int, bool]]:
        steps = speculative_generate_step(prompt, pair.target, pair.draft, num_draft_tokens=K, max_tokens=12)
        return [(int(token), bool(from_draft)) for token, _, from_draft in steps]

    plain = run()
    with planned(RUNGS["fallback"]):
        under = run()
    assert [token for token, _ in under] == [token for token, _ in plain]
    assert not any(from_draft for _, from_draft in under)
    assert ("autoregressive", "fallback", "accept_rate", 0) in paths(telemetry)
    assert violations(telemetry) == []


def leaves(stream: Any) -> None:
    next(stream)
    next(stream)


def closes(stream: Any) -> None:
    leaves(stream)
    stream.close()


def throws(stream: Any) -> None:
    leaves(stream)
    with pytest.raises(KeyError, match="own"):
        stream.throw(KeyError("own"))


def sends(stream: Any) -> None:
    next(stream)
    stream.send("nothing that the engine takes")
    list(stream)


def starts_not(_: Any) -> None:
    pass


@pytest.mark.parametrize("use", [leaves, closes, throws, sends, starts_not])
@pytest.mark.parametrize("rung", ["shortened", "fallback"])
def test_a_permit_is_given_back_however_a_stream_ends(
    rung: str, use: Callable[[Any], None], pair: Pair, telemetry: Telemetry
) -> None:
    """Left, closed, thrown into, sent to, or never begun."""
    with planned(RUNGS[rung]) as planner:
        stream = pair.stream(draft=pair.draft)
        use(stream)
        del stream
        gc.collect()
        assert planner.given_back == 1


def test_a_draft_that_turns_bad_is_off_within_a_window_and_on_again_when_it_is_good(
    pair: Pair, telemetry: Telemetry
) -> None:
    """What is in flight finishes unharmed; after the cool-down probes bring speculation back."""
    pair.turn(good=True)

    def request() -> None:
        pair.run(draft=pair.dialled)

    try:
        with guarded(policy(cool_down=0.5)):
            for _ in range(4):
                request()
            assert set(paths(telemetry)) == {("speculative", "normal", None, K)}
            pair.turn(good=False)
            flying = pair.stream(draft=pair.dialled)
            begun = [next(flying)]
            taken = run_until(lambda: bool(transitions(telemetry)), request, 4)
            request()
            assert seen(iter([*begun, *flying])) == whole(pair)
            told = transitions(telemetry)[0]
            assert (told["trigger"], told["previous_state"], told["state"]) == ("accept_rate", "closed", "open")
            assert (told["previous_rung"], told["rung"]) == ("as_asked", "autoregressive")
            assert told["value"] < told["threshold"] == pytest.approx(0.35)
            assert ROUNDS <= told["samples"] < ROUNDS + TOKENS
            assert taken * TOKENS >= ROUNDS
            pair.turn(good=True)
            run_until(lambda: transitions(telemetry)[-1]["state"] == "closed", request, 200)
    finally:
        pair.turn(good=True)
    states = [each["state"] for each in transitions(telemetry)]
    assert states[:2] == ["open", "probing"]
    assert "limited" in states
    cohorts = {cohort for _, cohort, _, _ in paths(telemetry)}
    assert cohorts == {"normal", "fallback", "probe"}
    assert telemetry.total("specdecode.fallbacks") == sum(
        count for (mode, *_), count in paths(telemetry).items() if mode == "autoregressive"
    )
    assert telemetry.total("specdecode.guard.transitions") == len(states)
    assert violations(telemetry) == []


def whole(pair: Pair) -> list[Item]:
    """The plain speculative run with the dialled draft as it is."""
    with planned(Plan()):
        return pair.run(draft=pair.dialled)


def test_a_shift_of_the_prompts_alone_is_seen(pair: Pair, telemetry: Telemetry) -> None:
    """The same draft, that is, on prompts of which it knows less."""
    with guarded(policy(0.5)):
        for _ in range(8):
            pair.run(EASY, draft=pair.weak)
        assert transitions(telemetry) == []
        run_until(lambda: bool(transitions(telemetry)), lambda: pair.run(HARD, draft=pair.weak), 6)
        pair.run(EASY, draft=pair.weak)
    assert ("autoregressive", "fallback", "accept_rate", 0) in paths(telemetry)


def test_one_tenant_falls_back_while_another_speculates(pair: Pair, telemetry: Telemetry) -> None:
    """In one process, by the baggage of each call."""
    with guarded(policy(0.5, by="tenant")):
        for _ in range(6):
            for tenant, prompt in (("acme", HARD), ("beta", EASY)):
                with on_behalf_of(tenant=tenant):
                    pair.run(prompt, draft=pair.weak)
        telemetry.spans()
        (told,) = transitions(telemetry)
        assert (told["scope"], told["specdecode.tenant.id"]) == ("tenant", "acme")
        telemetry.clear()
        for tenant in ("acme", "beta"):
            with on_behalf_of(tenant=tenant):
                pair.run(EASY, draft=pair.weak)
        modes = {
            span.attributes[Attr.SPECDECODE_TENANT_ID]: span.attributes[Attr.SPECDECODE_MODE]
            for span in telemetry.spans()
            if span.attributes
        }
    assert modes == {"acme": "autoregressive", "beta": "speculative"}


def test_a_trigger_takes_a_shorter_draft_first_where_it_says_so(pair: Pair, telemetry: Telemetry) -> None:
    """Rung by rung, each as long as the policy has a request keep it at least."""
    with guarded(policy(0.5, action="down", cool_down=0.01)):
        run_until(lambda: len(transitions(telemetry)) >= 3, lambda: pair.run(HARD, draft=pair.weak), 40)
    assert [each["rung"] for each in transitions(telemetry)][:3] == ["k=3", "k=2", "autoregressive"]
    lengths = {length for *_, length in paths(telemetry)}
    assert {4, 3, 2} <= lengths


def test_nothing_else_of_a_call_is_touched(pair: Pair, telemetry: Telemetry) -> None:
    """The caller's objects are used and stay what they were."""
    asked = []

    def sampler(logits: Any) -> Any:
        asked.append("sampler")
        return mx.argmax(logits, axis=-1)

    def processor(_: Any, logits: Any) -> Any:
        asked.append("processor")
        return logits

    cache = [*make_prompt_cache(pair.target), *make_prompt_cache(pair.draft)]
    options = {"sampler": sampler, "logits_processors": [processor], "prompt_cache": cache, "num_draft_tokens": K}
    before = dict(options)
    with planned(RUNGS["fallback"]):
        items = seen(
            mlx_lm.stream_generate(
                pair.target, pair.tokenizer, [1, 310], max_tokens=5, draft_model=pair.draft, **options
            )
        )
    assert len(items) == 5
    assert {"sampler", "processor"} == set(asked)
    assert options == before
    assert all(options[key] is before[key] for key in options)
    assert cache[0].offset > 0
    assert cache[-1].offset == 0
