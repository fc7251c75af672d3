"""MLX-LM's own server: a span for each HTTP request, and under it the generation, which another thread makes."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from opentelemetry.trace import SpanKind, StatusCode

pytest.importorskip("mlx_lm", reason="needs the [mlx] extra")

from otel_specdecode.engines.mlx_lm.hooks import MLXLMHooks
from otel_specdecode.generation.folding import FoldingObserver
from otel_specdecode.telemetry.names import Attr
from otel_specdecode.testing.capture import Telemetry, capture
from otel_specdecode.testing.checker import assert_conformant
from tests.engines.mlx_lm.local_server import CALLER, LocalServer, local_server, server_module, without_identity
from tests.engines.mlx_lm.served import (
    ASKED,
    CHAT,
    CHATS,
    DRAFT,
    RELEASE,
    STOPS,
    STREAMED,
    TELLS_OF_ITS_CACHE,
    TEXT,
    finish_reason,
    pair,
    usage,
)
from tests.engines.spans import attributes

pytestmark = pytest.mark.mlx


# Where a generation stands, and what it counts


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "operation"), [(TEXT, "text_completion"), pytest.param(CHAT, "chat", marks=CHATS)])
def test_a_generation_is_a_child_of_its_request_in_the_clients_trace(
    server: LocalServer, telemetry: Telemetry, path: str, operation: str, stream: bool
) -> None:
    answer = server.ask(path, {**ASKED[path], **(STREAMED if stream else {})})
    request, generation = pair(telemetry, answer)

    assert (request.name, request.status.status_code) == (f"POST {path}", StatusCode.UNSET)
    assert request.parent is not None
    assert f"{request.parent.span_id:016x}" == CALLER
    assert (generation.name, generation.parent) == (f"{operation} target", request.context)
    assert request.start_time <= generation.start_time <= generation.end_time <= request.end_time
    assert attributes(generation).get(Attr.GEN_AI_REQUEST_STREAM, False) is stream
    assert usage(generation) == answer.usage
    assert finish_reason(generation) == answer.finish_reason


@CHATS
def test_both_modes_conform_and_have_the_same_fields(telemetry: Telemetry) -> None:
    """But for those that only a draft has, and prefill passes, which a batch shares."""
    keys = {}
    for options in ((), DRAFT):
        with local_server(*options) as server:
            _, generation = pair(telemetry, server.ask(CHAT, {**ASKED[CHAT], **STREAMED}))
            keys[attributes(generation)[Attr.SPECDECODE_MODE]] = set(attributes(generation))
    assert keys["speculative"] - keys["autoregressive"] == {
        Attr.SPECDECODE_DRAFT_MODEL,
        Attr.SPECDECODE_ACCEPT_RATE,
        Attr.SPECDECODE_PREFILL_PASSES,
    }
    assert keys["autoregressive"] <= keys["speculative"]
    assert_conformant(spans=telemetry.spans(), metrics=telemetry.metrics_data(), logs=telemetry.logs())


@TELLS_OF_ITS_CACHE
def test_a_batched_request_is_autoregressive_and_its_counts_add_up(batching: LocalServer, telemetry: Telemetry) -> None:
    answer = batching.ask(TEXT, ASKED[TEXT])
    found = attributes(pair(telemetry, answer)[1])
    emitted = answer.usage[2]

    assert [found[key] for key in (Attr.SPECDECODE_MODE, Attr.SPECDECODE_REQUESTED_MODE, Attr.SPECDECODE_METHOD)] == [
        "autoregressive",
        "autoregressive",
        "none",
    ]
    assert found[Attr.SPECDECODE_DECODE_PASSES] == emitted
    assert found[Attr.SPECDECODE_VERIFY_PASSES] == found[Attr.SPECDECODE_DRAFT_PROPOSED_TOKENS] == 0
    assert found[Attr.SPECDECODE_CONSUMER_DURATION] == 0
    times = Attr.SPECDECODE_PREFILL_DURATION, Attr.SPECDECODE_DECODE_DURATION
    assert 0 < found[times[0]] < found[Attr.SPECDECODE_TIME_TO_FIRST_TOKEN] < found[times[0]] + found[times[1]]
    assert telemetry.total("specdecode.decode.tokens") == emitted - 1


def test_a_seed_takes_a_request_out_of_the_batch_and_it_is_still_recorded(
    batching: LocalServer, telemetry: Telemetry
) -> None:
    answer = batching.ask(TEXT, {**ASKED[TEXT], "seed": 7, "temperature": 0.7, "top_p": 0.9, "top_k": 40})
    found = attributes(pair(telemetry, answer)[1])
    assert found[Attr.SPECDECODE_PREFILL_PASSES] > 0, "it ran in a batch"
    assert (found[Attr.GEN_AI_REQUEST_SEED], found[Attr.GEN_AI_REQUEST_TEMPERATURE]) == (7, 0.7)
    assert (found[Attr.GEN_AI_REQUEST_TOP_P], found[Attr.GEN_AI_REQUEST_TOP_K]) == (0.9, 40.0)
    assert usage(pair(telemetry, answer)[1]) == answer.usage


def test_what_a_client_asks_for_is_on_the_span_in_both_ways(server: LocalServer, telemetry: Telemetry) -> None:
    body = {**ASKED[TEXT], "temperature": 0.5, "top_p": 0.8, "presence_penalty": 0.25, "stop": ["zanzibar"]}
    found = attributes(pair(telemetry, server.ask(TEXT, body))[1])
    assert found[Attr.GEN_AI_REQUEST_MAX_TOKENS] == 12
    assert found[Attr.GEN_AI_REQUEST_TEMPERATURE] == 0.5
    assert found[Attr.GEN_AI_REQUEST_TOP_P] == 0.8
    assert found[Attr.GEN_AI_REQUEST_STOP_SEQUENCES] == ("zanzibar",)


def test_a_client_may_choose_draft_and_draft_length(telemetry: Telemetry) -> None:
    with local_server() as server:
        found = {}
        for length in (0, 2, 4):
            body = {**ASKED[TEXT], "draft_model": DRAFT[1], "num_draft_tokens": length}
            found[length] = attributes(pair(telemetry, server.ask(TEXT, body))[1])
        back = attributes(pair(telemetry, server.ask(TEXT, ASKED[TEXT]))[1])
    bypassed = RELEASE[:2] == (0, 30)
    for length in (2, 4):
        assert found[length][Attr.SPECDECODE_DRAFT_MAX_TOKENS] == length
        assert found[length][Attr.SPECDECODE_DRAFT_MODEL] == "draft"
        assert found[length][Attr.SPECDECODE_REQUESTED_MODE] == "speculative"
        reason = found[length].get(Attr.SPECDECODE_FALLBACK_REASON)
        assert reason == ("engine_bypass" if bypassed else None), "mlx-lm 0.30 batches drafts as well"
    modes = (Attr.SPECDECODE_MODE, Attr.SPECDECODE_REQUESTED_MODE, Attr.SPECDECODE_FALLBACK_REASON)
    assert [found[0][key] for key in modes] == ["autoregressive", "speculative", "zero_draft_length"]
    assert (back[Attr.SPECDECODE_MODE], back[Attr.SPECDECODE_METHOD]) == ("autoregressive", "none")


def test_the_model_is_the_one_that_ran_whatever_the_last_request_had_loaded(
    batching: LocalServer, telemetry: Telemetry
) -> None:
    names = [
        pair(telemetry, batching.ask(TEXT, {**ASKED[TEXT], **model}))[1].name
        for model in ({}, {"model": DRAFT[1]}, {"model": "default_model"})
    ]
    assert names == ["text_completion target", "text_completion draft", "text_completion target"]


@pytest.mark.parametrize("limit", [1, 2])
def test_few_tokens(server: LocalServer, telemetry: Telemetry, limit: int) -> None:
    answer = server.ask(TEXT, {**ASKED[TEXT], "max_tokens": limit})
    _, generation = pair(telemetry, answer)
    assert (usage(generation), finish_reason(generation)) == (answer.usage, "length")


@STOPS
def test_a_stop_string_is_the_end_that_the_server_says_it_is(server: LocalServer, telemetry: Telemetry) -> None:
    whole = server.ask(TEXT, {**ASKED[TEXT], "max_tokens": 7})
    word = whole.body["choices"][0]["text"].split()[2]
    answer = server.ask(TEXT, {**ASKED[TEXT], "stop": [f" {word}"]})
    _, generation = pair(telemetry, answer)
    assert answer.usage[2] < whole.usage[2], "the stop string was not met"
    assert (finish_reason(generation), generation.status.status_code) == ("stop", StatusCode.UNSET)
    assert usage(generation) == answer.usage


@TELLS_OF_ITS_CACHE
def test_turns_of_a_chat_reuse_the_prompt_cache_and_counts_stay_those_of_the_response(
    server: LocalServer, telemetry: Telemetry
) -> None:
    messages = [{"role": "user", "content": "Tell me a story about a silver key and a wolf."}]
    reused = []
    for _ in range(3):
        answer = server.ask(CHAT, {"messages": messages, "max_tokens": 10})
        assert usage(pair(telemetry, answer)[1]) == answer.usage
        reused.append(answer.usage[1])
        said = answer.body["choices"][0]["message"]["content"] or ""
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "And then?"}]
    assert any(reused)


@TELLS_OF_ITS_CACHE
def test_a_reused_cache_that_lacks_its_last_token_is_a_hazard(drafting: LocalServer, telemetry: Telemetry) -> None:
    """A speculative run that ends on the target's own token: the next turn skips that token."""
    seen = set()
    for length in range(4, 10):
        prompt = f"{length} silver keys"
        first = drafting.ask(TEXT, {"prompt": prompt, "max_tokens": length})
        said = first.body["choices"][0]["text"]
        second = drafting.ask(TEXT, {"prompt": f"{prompt}{said} and", "max_tokens": 4})
        hazards = [attributes(pair(telemetry, each)[1]).get(Attr.SPECDECODE_HAZARD_IDS, ()) for each in (first, second)]
        assert "cache_reuse_short" not in hazards[0]
        seen.add((second.usage[1] >= sum(first.usage[::2]), "cache_reuse_short" in hazards[1]))
    assert (True, True) in seen, "no run ended on the target's own token and was gone on from"
    assert (False, True) not in seen


# Whose request it is


def test_tenant_and_session_of_a_clients_baggage_reach_the_generation(
    server: LocalServer, telemetry: Telemetry
) -> None:
    answer = server.ask(TEXT, ASKED[TEXT], baggage="tenant.id=acme,session.id=s%201")
    found = attributes(pair(telemetry, answer)[1])
    assert (found[Attr.SPECDECODE_TENANT_ID], found[Attr.SPECDECODE_SESSION_ID]) == ("acme", "s 1")
    other = attributes(pair(telemetry, server.ask(TEXT, ASKED[TEXT]))[1])
    assert Attr.SPECDECODE_TENANT_ID not in other


@CHATS
def test_prompts_and_answers_are_kept_only_where_the_user_opted_in(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {}
    for choice in ("NO_CONTENT", "SPAN_ONLY"):
        monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", choice)
        for options in ((), DRAFT):
            with capture() as telemetry, local_server(*options) as server:
                answer = server.ask(CHAT, ASKED[CHAT])
                request, generation = pair(telemetry, answer)
                said = answer.body["choices"][0]["message"]["content"]
                found = str(attributes(generation))
                kept[choice, options] = ("Tell me a story." in found, said.split()[1] in found)
                assert "story" not in str(attributes(request))
    assert {key[0]: value for key, value in kept.items()} == {"NO_CONTENT": (False, False), "SPAN_ONLY": (True, True)}
    assert len(set(kept.values())) == 2


def test_requests_of_excluded_urls_have_no_span_but_their_generations_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_PYTHON_MLX_LM_EXCLUDED_URLS", "http://127.0.0.1:[0-9]+/health,v1/completions$")
    with capture() as telemetry, local_server() as server:
        server.ask("/health")
        server.ask(TEXT, ASKED[TEXT])
        span = telemetry.span()
    assert (span.kind, span.parent) == (SpanKind.INTERNAL, None)
    assert Attr.SPECDECODE_QUEUE_DURATION in attributes(span)


# The server itself


@CHATS
@pytest.mark.parametrize("options", [(), DRAFT], ids=["batched", "speculative"])
def test_answers_are_those_of_a_bare_server(options: tuple[str, ...]) -> None:
    bodies = [(path, {**body, **more}) for path, body in ASKED.items() for more in ({}, STREAMED, {"seed": 3})]
    told = []
    for watching in (nullcontext, capture):
        with watching(), local_server(*options) as server:
            answers = [server.ask(path, body) for path, body in bodies]
        told.append([[without_identity(each) for each in (*one.events, one.body)] for one in answers])
    assert told[0] == told[1]


def test_uninstrumenting_restores_the_server() -> None:
    module = server_module()
    places = (module, module.APIHandler, module.ResponseGenerator)
    before = [dict(vars(place)) for place in places]
    with capture():
        assert [dict(vars(place)) for place in places] != before
    assert [dict(vars(place)) for place in places] == before


def test_a_server_whose_inside_is_another_stays_bare_and_one_warning_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    module = server_module()

    class Other(module.Queue):  # type: ignore[misc, name-defined]
        pass

    monkeypatch.setattr(module, "Queue", Other)
    hooks = MLXLMHooks()
    hooks.install(FoldingObserver())
    try:
        with local_server() as server:
            assert server.ask(TEXT, ASKED[TEXT]).status == 200
        assert vars(module.APIHandler)["do_POST"].__code__.co_filename == module.__file__
    finally:
        hooks.remove()
    warned = [record.message for record in caplog.records if record.name == "otel_specdecode"]
    assert warned == [
        (
            "this version of mlx-lm is not watched: mlx_lm.server is not as expected (TypeError);"
            " generation is not affected"
        )
    ]
