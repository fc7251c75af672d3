"""mlx_lm.server under many clients that ask for all kinds of things: a SERVER span each, and what belongs under it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
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
from tests.e2e.mlx_lm_server import (
    DRAFT,
    WITH_USAGE,
    WITHOUT_END,
    running,
    skip_unless_installed,
    stops_quietly,
    usage_in,
    usage_of,
)
from tests.e2e.servers import ASKED, CALLER, CHAT, PROMPT_ONLY, SELDOM, TEXT, TURNS, RawAnswer, Server
from tests.otlp_receiver import ReceivedSpan

skip_unless_installed()

pytestmark = [pytest.mark.e2e, pytest.mark.mlx, pytest.mark.slow, pytest.mark.timeout(900)]

CLIENTS, REQUESTS = 8, 200
BATCHING, DRAFTING = "batching", "drafting"


@dataclass(frozen=True)
class Told:
    """What a client was told.

    Attributes:
        trace_id: The trace that the request was sent in.
        method: Of the request.
        path: Of the request.
        status: None where the connection was closed without an answer.
        ended: Finish reason that the generation has to have; None where the request makes none.
        usage: Prompt, cached and emitted tokens; None where the client was told none.
    """

    trace_id: str
    method: str
    path: str
    status: int | None
    ended: str | None = None
    usage: tuple[int, int, int] | None = None


Kind = Callable[[Server, int], Told]


def whole(path: str, **more: Any) -> Kind:
    """A completion that comes in one piece."""

    def ask(server: Server, number: int) -> Told:
        got = raw(server, path, {**ASKED[path], "max_tokens": 2 + number % 5, **more})
        body = json.loads(got.body)
        return Told(got.trace_id, "POST", path, got.status, body["choices"][0]["finish_reason"], usage_in(body))

    return ask


def streamed(path: str, **more: Any) -> Kind:
    """A completion that comes as a stream, read to its end."""

    def ask(server: Server, number: int) -> Told:
        with server.stream(path, {**ASKED[path], "max_tokens": 2 + number % 5, **WITH_USAGE, **more}) as chunks:
            *_, end, last = chunks.events()
        return Told(chunks.trace_id, "POST", path, 200, end["choices"][0]["finish_reason"], usage_in(last))

    return ask


def dropped(path: str, after: int) -> Kind:
    """A stream whose client goes away after some events."""

    def ask(server: Server, number: int) -> Told:
        with server.stream(path, {**ASKED[path], **WITHOUT_END}) as chunks:
            assert len(list(islice(chunks.events(), after))) == after
        return Told(chunks.trace_id, "POST", path, 200, "closed")

    return ask


def refused(status: int | None, path: str, body: object, method: str = "POST", ended: str | None = None) -> Kind:
    """Something that the server does not do, or that is no completion."""

    def ask(server: Server, number: int) -> Told:
        got = raw(server, path, body, method)
        assert got.status == status, f"{method} {path}: {got.status}, expected {status}"
        return Told(got.trace_id, method, path, status, ended)

    return ask


def turn(server: Server, number: int) -> Told:
    """A turn of a chat that several clients are at: its prompt begins with those of the turns before."""
    return whole(CHAT, messages=TURNS[: 1 + number // 20 % 3 * 2])(server, number)


def raw(server: Server, path: str, body: object, method: str = "POST") -> RawAnswer:
    text = body if isinstance(body, str) else json.dumps(body)
    return server.exchange(method, path, None if body is None else text.encode())


ANY_MODE: tuple[Kind, ...] = (
    whole(TEXT),
    whole(CHAT),
    streamed(TEXT),
    streamed(CHAT),
    turn,
    turn,
    whole(TEXT, max_tokens=1),
    streamed(CHAT, max_tokens=1),
    whole(TEXT, stop=[" a", " the", "."], max_tokens=12),
    streamed(TEXT, seed=7, temperature=0.9),
    whole(CHAT, seed=3, temperature=0.7, top_p=0.9, top_k=20),
    streamed(CHAT, temperature=0.8, logprobs=True, top_logprobs=2),
    dropped(TEXT, after=2),
    dropped(CHAT, after=1),
    refused(400, TEXT, "{" + PROMPT_ONLY),
    refused(400, CHAT, {**ASKED[CHAT], "temperature": PROMPT_ONLY}),
    refused(200, "/health", None, "GET"),
)

KINDS: dict[str, tuple[Kind, ...]] = {
    BATCHING: (*ANY_MODE, refused(404, CHAT, {"messages": []})),
    DRAFTING: (*ANY_MODE, refused(None, TEXT, {"prompt": ""}, ended="error")),
}
"""An empty prompt fails in the engine: with a draft for the request alone; a batch, and the server, end with it."""


RARE = {
    REQUESTS // 4: refused(404, CHAT, {**ASKED[CHAT], "model": "/nowhere/at-all"}),
    REQUESTS // 2: whole(TEXT, prompt=f"{PROMPT_ONLY} " * 150, max_tokens=2),
}
"""By number, what takes long: after an unknown model the server loads its own again; and a prompt of more tokens than
the model was made for, which the server takes all the same.
"""


def by_clients(server: Server, kinds: Sequence[Kind]) -> list[Told]:
    asked = [RARE.get(number, kinds[number % len(kinds)]) for number in range(REQUESTS)]
    with ThreadPoolExecutor(CLIENTS) as clients:
        return list(clients.map(lambda number, kind: kind(server, number), range(REQUESTS), asked))


def belong_to(told: Told, spans: Sequence[ReceivedSpan]) -> bool:
    """Check the spans of a request's trace, the SERVER span first, against what its client was told."""
    request, *generations = spans
    assert (request.kind, request.parent_id, request.name) == ("SERVER", CALLER, f"{told.method} {told.path}")
    assert request.attributes.get("http.response.status_code") == told.status
    assert request.status == ("ERROR" if told.status is None else "UNSET")
    if told.ended is None:
        return generations == []
    (generation,) = generations
    assert (generation.kind, generation.parent_id) == ("INTERNAL", request.span_id)
    assert generation.status == ("ERROR" if told.ended == "error" else "UNSET")
    assert finish_reason(generation) == told.ended
    return told.usage in (None, usage_of(generation))


@pytest.mark.parametrize(("mode", "options"), [(BATCHING, ()), (DRAFTING, DRAFT)], ids=[BATCHING, DRAFTING])
def test_of_many_clients_each_request_has_its_span_and_each_completion_its_own_with_the_counts_that_were_told(
    mode: str, options: Sequence[str], tmp_path: Path
) -> None:
    with running(tmp_path, *options, variables=SELDOM) as server:
        told = by_clients(server, KINDS[mode])
        received, ran = server.received, sum(each.ended is not None for each in told)
        assert received.wait_for(lambda got: total(got, "http.server.request.duration") == REQUESTS)
        assert received.wait_for(lambda got: active(got) == 0)
        assert received.wait_for(lambda got: total(got, "specdecode.queue.duration") == ran)
        received.wait_for(lambda got: len(requests_and_generations(got)) >= REQUESTS + ran)

        traces = by_trace(requests_and_generations(received))
        assert traces.keys() == {each.trace_id for each in told}
        assert [each for each in told if not belong_to(each, traces[each.trace_id])] == []
        assert sum(map(len, traces.values())) == REQUESTS + ran
        assert any(each.usage and each.usage[1] for each in told), "no prompt was taken from the cache"
        assert Counter(each.ended for each in told).keys() >= {"stop", "length", "closed", None}

        statuses: Counter[int | None] = Counter()
        for labels, number in received.latest("http.server.request.duration"):
            statuses[labels.get("http.response.status_code")] += round(number)
        assert statuses == Counter(each.status for each in told)
        assert received.wait_for(lambda got: total(got, "specdecode.request.started") == ran)
        assert breaks_the_contract(received) == []
        assert PROMPT_ONLY not in str(received.requests)
        assert stops_quietly(server, failed=sum(each.status is None for each in told))
