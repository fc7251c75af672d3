"""llama_cpp.server under many clients that ask for all kinds of things: one SERVER span each, and its generation."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.arrived import (
    active,
    breaks_the_contract,
    by_trace,
    finish_reason,
    requests_and_generations,
    total,
)
from tests.e2e.llama_cpp_server import (
    LOOKUP,
    QUEUEING,
    WITHOUT_END,
    running,
    seconds_waited,
    skip_unless_installed,
    stops_quietly,
    target,
)
from tests.e2e.servers import ASKED, CALLER, CHAT, ENDLESS, JSON, PROMPT_ONLY, SELDOM, TEXT, TURNS, Server
from tests.otlp_receiver import ReceivedSpan

skip_unless_installed()

pytestmark = [pytest.mark.e2e, pytest.mark.llama_cpp, pytest.mark.slow, pytest.mark.timeout(900)]

CLIENTS, REQUESTS = 8, 200
INTERRUPTING = 80

LONG = f"{PROMPT_ONLY} " * 600
"""More tokens than fit in the context."""


@dataclass(frozen=True)
class Told:
    """What a client was told.

    Attributes:
        trace_id: The trace that the request was sent in.
        method: Of the request.
        path: Of the request.
        status: Of the answer.
        seconds: From sending the request to the whole answer, of a stream to its first event.
        ended: Finish reason that the generation has to have; None where the request makes none.
        prompt: What was asked, by which prompts of one length are told.
        input_tokens: None where the client was told none.
        output_tokens: None where the client could not count them.
    """

    trace_id: str
    method: str
    path: str
    status: int | None
    seconds: float
    ended: str | None = None
    prompt: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None


Kind = Callable[[Server, int], Told]


def whole(path: str, **more: Any) -> Kind:
    """A completion that comes in one piece.

    The server's `usage` leaves out the token that ended the text.
    """

    def ask(server: Server, number: int) -> Told:
        body = {**ASKED[path], "max_tokens": 2 + number % 5, **more}
        began = time.monotonic()
        got = server.post(path, body)
        seconds = time.monotonic() - began
        ended, usage = got.body["choices"][0]["finish_reason"], got.body["usage"]
        counts = usage["prompt_tokens"], emitted(body, ended, usage["completion_tokens"])
        return Told(got.trace_id, "POST", path, got.status, seconds, ended, prompt_of(body), *counts)

    return ask


def streamed(path: str, **more: Any) -> Kind:
    """A completion that comes as a stream, read to its end.

    A stream tells no usage. It has an event for each token, as no token is a part of a character and none could begin a
    stop string, then one with the reason; and of a chat one before, with the role.
    """

    def ask(server: Server, number: int) -> Told:
        body = {**ASKED[path], "max_tokens": 2 + number % 5, **more}
        began = time.monotonic()
        with server.stream(path, body) as chunks:
            events = chunks.events()
            first = next(events)
            seconds = time.monotonic() - began
            *_, last = got = [first, *events]
        ended = last["choices"][0]["finish_reason"]
        told = None if "stop" in body else emitted(body, ended, len(got) - (1 if path == TEXT else 2))
        return Told(chunks.trace_id, "POST", path, 200, seconds, ended, prompt_of(body), None, told)

    return ask


def dropped(path: str, after: int) -> Kind:
    """A stream whose client goes away after some events."""

    def ask(server: Server, number: int) -> Told:
        body = {**ASKED[path], **WITHOUT_END}
        began = time.monotonic()
        with server.stream(path, body) as chunks:
            events = chunks.events()
            next(events)
            seconds = time.monotonic() - began
            assert len(list(islice(events, after - 1))) == after - 1
        return Told(chunks.trace_id, "POST", path, 200, seconds, "closed", prompt_of(body))

    return ask


def refused(status: int, path: str, body: object, method: str = "POST", ended: str | None = None) -> Kind:
    """Something that the server does not do, or that is no completion."""

    def ask(server: Server, number: int) -> Told:
        content = body.encode() if isinstance(body, str) else None if body is None else json.dumps(body).encode()
        began = time.monotonic()
        got = server.exchange(method, path, content, JSON)
        assert got.status == status, f"{method} {path}: {got.status}, expected {status}"
        return Told(got.trace_id, method, path, status, time.monotonic() - began, ended)

    return ask


def turn(server: Server, number: int) -> Told:
    """A turn of a chat that several clients are at: its prompt begins with those of the turns before."""
    return whole(CHAT, messages=TURNS[: 1 + number // 20 % 3 * 2])(server, number)


def emitted(body: dict[str, Any], ended: str, told: int) -> int:
    """Return how many tokens there were, by those that a client was told of.

    A text ended by itself if neither a stop string nor `max_tokens` ended it. The reason alone does not tell: with a
    draft, that of a chat can be `stop` at `max_tokens` too, since llama-cpp-python looks at what was last proposed.
    """
    by_itself = ended == "stop" and "stop" not in body and told < body["max_tokens"]
    return told + by_itself


def prompt_of(body: dict[str, Any]) -> str:
    return json.dumps(body.get("messages", body.get("prompt")))


KINDS: tuple[Kind, ...] = (
    whole(TEXT),
    whole(CHAT),
    streamed(TEXT),
    streamed(CHAT),
    turn,
    turn,
    whole(TEXT, max_tokens=1),
    streamed(CHAT, max_tokens=1),
    whole(TEXT, stop=[" a", " the", "."], max_tokens=12, **ENDLESS),
    streamed(TEXT, stop=[" a", " the", "."], max_tokens=12, **ENDLESS),
    streamed(TEXT, seed=7, temperature=0.9, max_tokens=40),
    whole(CHAT, seed=3, temperature=0.7, top_p=0.9, top_k=20, max_tokens=60),
    streamed(CHAT, temperature=0, max_tokens=60),
    dropped(TEXT, after=2),
    dropped(CHAT, after=3),
    refused(400, TEXT, {"prompt": LONG, "max_tokens": 2}, ended="error"),
    refused(200, TEXT, {"prompt": LONG, "stream": True}, ended="error"),
    refused(400, CHAT, {"messages": [{"role": "user", "content": LONG}]}, ended="error"),
    refused(500, TEXT, {"prompt": ""}, ended="error"),
    refused(500, TEXT, "{" + PROMPT_ONLY),
    refused(500, CHAT, {**ASKED[CHAT], "temperature": PROMPT_ONLY}),
    refused(200, "/v1/models", None, "GET"),
    refused(405, CHAT, None, "GET"),
)
"""Streamed, a prompt that does not fit gets 200 and no event."""

BROKEN = 500
REFUSED_WITH = ("AssertionError", "fastapi.exceptions.RequestValidationError", "json.decoder.JSONDecodeError")
"""What the server's own refusals write a traceback of."""


def by_clients(server: Server, kinds: Sequence[Kind], requests: int) -> list[Told]:
    with ThreadPoolExecutor(CLIENTS) as clients:
        return list(clients.map(lambda number: kinds[number % len(kinds)](server, number), range(requests)))


def belong_to(told: Told, spans: Sequence[ReceivedSpan], mode: str, prompts: dict[str, int]) -> bool:
    """Check the spans of a request's trace, the SERVER span first, against what its client was told."""
    request, *generations = spans
    assert (request.kind, request.parent_id, request.name) == ("SERVER", CALLER, f"{told.method} {told.path}")
    assert request.attributes["http.status_code"] == told.status
    assert request.status == ("ERROR" if told.status == BROKEN else "UNSET")
    if told.ended is None:
        return generations == []
    (generation,) = generations
    assert (generation.kind, generation.parent_id) == ("INTERNAL", request.span_id)
    assert generation.status == ("ERROR" if told.ended == "error" else "UNSET")
    assert (finish_reason(generation), generation.attributes["specdecode.mode"]) == (told.ended, mode)
    assert 0 <= seconds_waited(generation) <= told.seconds
    tokens = (generation.attributes.get(f"gen_ai.usage.{kind}_tokens") for kind in ("input", "output"))
    expected = (told.input_tokens or prompts.get(told.prompt), told.output_tokens)
    return all(each in (None, count) for each, count in zip(expected, tokens, strict=True))


def sum_of(server: Server, histogram: str) -> float:
    """Everything that a histogram has recorded, of all its series."""
    newest = server.received.requests["/v1/metrics"][-1]
    return sum(
        point.sum
        for resource in newest.resource_metrics
        for scoped in resource.scope_metrics
        for metric in scoped.metrics
        if metric.name == histogram
        for point in metric.histogram.data_points
    )


@pytest.mark.parametrize(
    ("mode", "options"), [("autoregressive", ()), ("speculative", LOOKUP)], ids=["plain", "drafting"]
)
def test_of_many_clients_each_request_has_its_span_and_each_completion_its_own_with_the_counts_that_were_told(
    mode: str, options: Sequence[str], tmp_path: Path
) -> None:
    with running(target(tmp_path), tmp_path, *QUEUEING, *options, variables=SELDOM) as server:
        told = by_clients(server, KINDS, REQUESTS)
        received, ran = server.received, [each for each in told if each.ended is not None]
        assert received.wait_for(lambda got: total(got, "http.server.duration") == REQUESTS)
        assert received.wait_for(lambda got: active(got) == 0)
        assert received.wait_for(lambda got: total(got, "specdecode.queue.duration") == len(ran))
        received.wait_for(lambda got: len(requests_and_generations(got)) >= REQUESTS + len(ran))

        traces = by_trace(requests_and_generations(received))
        assert traces.keys() == {each.trace_id for each in told}
        prompts = {each.prompt: each.input_tokens for each in told if each.input_tokens is not None}
        assert [each for each in told if not belong_to(each, traces[each.trace_id], mode, prompts)] == []
        assert sum(map(len, traces.values())) == REQUESTS + len(ran)
        assert Counter(each.ended for each in told).keys() == {"stop", "length", "closed", "error", None}

        statuses: Counter[int | None] = Counter()
        for labels, number in received.latest("http.server.duration"):
            statuses[labels["http.status_code"]] += round(number)
        assert statuses == Counter(each.status for each in told)
        assert received.wait_for(lambda got: total(got, "specdecode.request.started") == len(ran))

        generations = [spans[1] for spans in traces.values() if len(spans) > 1]
        assert any(each.attributes.get("gen_ai.usage.cache_read.input_tokens", 0) for each in generations)
        waited = sum(map(seconds_waited, generations))
        assert sum_of(server, "specdecode.queue.duration") == pytest.approx(waited)
        ran_for = sum(each.end - each.start for each in generations) / 1e9
        assert waited > (sum(each.seconds for each in ran) - ran_for) / 2, "clients waited for longer than it was told"
        assert breaks_the_contract(received) == []
        assert PROMPT_ONLY not in str(received.requests)
        assert stops_quietly(server, REFUSED_WITH)


def told_of(request: tuple[HTTPConnection, str]) -> str:
    """Read an answer to its end; return the trace of its request."""
    connection, trace_id = request
    try:
        connection.getresponse().read()
    finally:
        connection.close()
    return trace_id


def test_clients_that_give_up_while_they_wait_have_no_generation(tmp_path: Path) -> None:
    with running(target(tmp_path), tmp_path, *QUEUEING, "--n_ctx", "2048") as server:
        with server.stream(TEXT, {**ASKED[TEXT], **ENDLESS, "max_tokens": 1500}) as chunks:
            next(chunks.events())
            waiting = [server.send(path, {**ASKED[path], "stream": stream}) for path in ASKED for stream in (0, 1)]
            assert server.received.wait_for(lambda got: total(got, "http.server.active_requests") == 1 + len(waiting))
            for connection, _ in waiting:
                connection.close()
            last = server.send(TEXT, {**ASKED[TEXT], "max_tokens": 2})
            assert list(chunks.events())
        served = [chunks.trace_id, told_of(last)]

        received = server.received
        assert received.wait_for(lambda got: total(got, "http.server.duration") == len(served) + len(waiting))
        assert received.wait_for(lambda got: total(got, "specdecode.queue.duration") == len(served))
        assert received.wait_for(lambda got: len(requests_and_generations(got)) == 2 * len(served) + len(waiting))
        traces = by_trace(requests_and_generations(received))
        assert [len(traces[trace_id]) for trace_id in served] == [2] * len(served)
        assert [len(traces[trace_id]) for _, trace_id in waiting] == [1] * len(waiting)
        assert received.wait_for(lambda got: total(got, "specdecode.request.started") == len(served))
        assert stops_quietly(server)


def interrupted_or_whole(server: Server, number: int) -> tuple[str, int]:
    """Ask for something that others may interrupt; return its trace and the events of it that came."""
    path = (TEXT, CHAT)[number % 2]
    if number % 5 == 0:
        return server.post(path, {**ASKED[path], "max_tokens": 3}).trace_id, 0
    with server.stream(path, {**ASKED[path], **WITHOUT_END}) as chunks:
        return chunks.trace_id, len(list(chunks.events()))


@pytest.mark.parametrize("options", [(), LOOKUP], ids=["plain", "drafting"])
def test_streams_that_interrupt_each_other_all_end_and_are_all_counted(options: Sequence[str], tmp_path: Path) -> None:
    with running(target(tmp_path), tmp_path, *options, variables=SELDOM) as server:
        with ThreadPoolExecutor(CLIENTS) as clients:
            told = dict(clients.map(lambda number: interrupted_or_whole(server, number), range(INTERRUPTING)))
        received = server.received
        assert received.wait_for(lambda got: total(got, "http.server.duration") == INTERRUPTING)
        assert received.wait_for(lambda got: total(got, "specdecode.queue.duration") == INTERRUPTING)
        assert received.wait_for(lambda got: active(got) == 0)
        received.wait_for(lambda got: len(requests_and_generations(got)) >= 2 * INTERRUPTING)

        traces = by_trace(requests_and_generations(received))
        assert traces.keys() == told.keys()
        pairs = {trace_id: (request, generation) for trace_id, (request, generation) in traces.items()}
        assert all(generation.parent_id == request.span_id for request, generation in pairs.values())
        assert {generation.status for _, generation in pairs.values()} == {"UNSET"}
        reasons = Counter(finish_reason(generation) for _, generation in pairs.values())
        assert reasons.keys() <= {"closed", "length", "stop"}
        assert reasons["closed"] > INTERRUPTING // 2, f"streams did not interrupt each other: {reasons}"
        assert reasons["length"] + reasons["stop"] >= INTERRUPTING // 5
        for trace_id, (_, generation) in pairs.items():
            assert generation.attributes["gen_ai.usage.output_tokens"] >= told[trace_id] - 2
        assert received.wait_for(lambda got: total(got, "specdecode.request.started") == INTERRUPTING)
        assert breaks_the_contract(received) == []
        assert stops_quietly(server)
