"""What a client of an engine's own server measures itself, held against the spans of its requests."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from otel_specdecode.tiny_pair import PROMPTS
from tests.e2e import llama_cpp_server, mlx_lm_server
from tests.e2e.arrived import is_generation
from tests.e2e.llama_cpp_server import LOOKUP, QUEUEING
from tests.e2e.measuring_client import Heard, Question, ask
from tests.e2e.servers import CHAT, ENDLESS, TEXT, Server
from tests.otlp_receiver import Received, ReceivedSpan

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]

DRAFT_LENGTH = 3
TOKENS, STREAMS = 48, 14
SHORT_TOKENS, CLIENTS, SHORT_STREAMS = 8, 2, 18
"""So few tokens that 2 % of a client's wait is below 5 ms, and so few clients that they leave the server a core."""

RELATIVE, ABSOLUTE_S = 0.02, 0.005
WAY_S = 0.005
"""How much of the way there and back is granted at most, however long it took."""

BUSY = 0.25
"""Seconds that a server's threads wait for a core, for each second: above, times say what else the machine does."""

TOO_BUSY = "the machine is too busy to hold times to milliseconds; that no span is late was held"

SELDOM = {"OTEL_BSP_SCHEDULE_DELAY": "1000"}
"""Exports between the requests rather than in each of them."""


@dataclass(frozen=True)
class Kind:
    """One of the servers, in one of its modes.

    Attributes:
        engine: `mlx` or `llama.cpp`.
        options: Beside the model.
        burst: Tokens that can come at once in the beginning: more than one where the first round emits the first token.
        in_turn: It runs requests one by one.
    """

    engine: str
    options: tuple[str, ...] = ()
    burst: int = 1
    in_turn: bool = True


KINDS = {
    "batching": Kind("mlx", in_turn=False),
    "drafting": Kind("mlx", (*mlx_lm_server.DRAFT, "--num-draft-tokens", str(DRAFT_LENGTH)), burst=DRAFT_LENGTH + 1),
    "plain": Kind("llama.cpp", QUEUEING),
    "lookup": Kind("llama.cpp", (*QUEUEING, *LOOKUP)),
}


def of_engine(name: str) -> Any:
    kind = KINDS[name]
    return pytest.param(kind, id=f"{kind.engine} {name}", marks=getattr(pytest.mark, kind.engine.replace(".", "_")))


def started(kind: Kind, folder: Path) -> AbstractContextManager[Server]:
    if kind.engine == "mlx":
        mlx_lm_server.skip_unless_installed()
        return mlx_lm_server.running(folder, *kind.options, variables=SELDOM)
    llama_cpp_server.skip_unless_installed()
    return llama_cpp_server.running(llama_cpp_server.target(folder), folder, *kind.options, variables=SELDOM)


@pytest.fixture(scope="module", params=[of_engine(name) for name in KINDS])
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture(scope="module")
def server(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with started(kind, tmp_path_factory.mktemp("server")) as server:
        seen(server, 2, 2 * CLIENTS, CLIENTS)  # what a process does once is done when their spans have arrived
        yield server


def question(number: int, tokens: int) -> Question:
    """Completions and chats in turn."""
    prompt = PROMPTS[number % len(PROMPTS)]
    body = {"max_tokens": tokens, "temperature": 0, **ENDLESS}  # so it is known how many tokens a client got
    if number % 2:
        return Question.of(CHAT, {**body, "messages": [{"role": "user", "content": prompt}]})
    return Question.of(TEXT, {**body, "prompt": prompt})


@dataclass(frozen=True)
class Pair:
    """What a client measured of one thing and what the spans say, in seconds.

    Attributes:
        way: What of the client's is the way there and back, as it took just before.
    """

    client: float
    spans: float
    way: float = 0.0

    @property
    def difference(self) -> float:
        return self.client - self.spans


@dataclass(frozen=True)
class Seen:
    """One request from both sides."""

    heard: Heard
    request: ReceivedSpan
    generation: ReceivedSpan

    def of(self, field: str) -> float:
        return float(self.generation.attributes[f"specdecode.{field}"])

    def first_token(self) -> Pair:
        return Pair(self.heard.texts[0], self.of("queue.duration") + self.of("time_to_first_token"), self.heard.nothing)

    def whole(self) -> Pair:
        return Pair(self.heard.ended, (self.request.end - self.request.start) / 1e9, self.heard.nothing)

    def after_first_burst(self, kind: Kind, tokens: int) -> Pair:
        """The time of the tokens after the first burst: their number over their rate, and what the server held them."""
        burst = self.heard.first_burst(kind.burst)
        decoding = (tokens - burst) / self.of("decode.tokens_per_second")
        return Pair(self.heard.texts[-1] - self.heard.texts[burst - 1], decoding + self.of("consumer.duration"))


def seen(server: Server, tokens: int, streams: int, clients: int = 1) -> list[Seen]:
    heard = ask(server.port, [question(number, tokens) for number in range(streams)], clients)
    wanted = {each.trace_id for each in heard}

    def both(received: Received) -> tuple[Mapping[str, ReceivedSpan], Mapping[str, ReceivedSpan]] | None:
        spans = [span for span in received.spans() if span.trace_id in wanted]
        requests = {span.trace_id: span for span in spans if span.kind == "SERVER"}
        generations = {span.trace_id: span for span in spans if is_generation(span)}
        return (requests, generations) if requests.keys() == generations.keys() == wanted else None

    found = server.received.wait_for(both)
    assert found is not None, "not every request has both of its spans"
    requests, generations = found
    return [Seen(each, requests[each.trace_id], generations[each.trace_id]) for each in heard]


def waited_for_a_core(server: Server) -> float:
    """Return the seconds that a server's threads could run and did not; 0 where the system does not tell."""
    nanoseconds = 0
    for thread in Path(f"/proc/{server.process.pid}/task").glob("*/schedstat"):
        with suppress(OSError):  # it has ended meanwhile
            nanoseconds += int(thread.read_text().split()[1])
    return nanoseconds / 1e9


def seen_and_busy(server: Server, tokens: int, streams: int, clients: int = 1) -> tuple[list[Seen], bool]:
    """Return what both sides saw, and whether the machine was too busy meanwhile to hold it to milliseconds."""
    waited, began = waited_for_a_core(server), time.perf_counter()
    each = seen(server, tokens, streams, clients)
    return each, waited_for_a_core(server) - waited > BUSY * (time.perf_counter() - began)


def told(pairs: Sequence[Pair]) -> str:
    """What a failing test says."""
    middle = statistics.median(pair.client for pair in pairs), statistics.median(pair.spans for pair in pairs)
    differences = sorted(pair.difference for pair in pairs)
    values = {
        "client": middle[0],
        "spans": middle[1],
        "least difference": differences[0],
        "median difference": statistics.median(differences),
        "nine of ten below": differences[round(0.9 * (len(differences) - 1))],
        "median way there and back": statistics.median(pair.way for pair in pairs),
    }
    return ", ".join(f"{name} {1000 * value:.2f} ms" for name, value in values.items())


def agree(pairs: Sequence[Pair]) -> bool:
    """Tell whether the median of the differences is small; a client's time has its way there and back in it."""
    way = min(WAY_S, statistics.median(pair.way for pair in pairs))
    allowed = max(ABSOLUTE_S, RELATIVE * statistics.median(pair.client for pair in pairs)) + way
    return abs(statistics.median(pair.difference for pair in pairs)) <= allowed


def lies_within(pairs: Sequence[Pair]) -> bool:
    """Tell whether the client began before the server did and heard after it spoke, however busy the machine was.

    It holds of a first token only: a SERVER span may end after its client has all of the answer.
    """
    return all(pair.difference > 0 for pair in pairs)


def disagreements(things: Mapping[str, Sequence[Pair]]) -> list[str]:
    return [f"{name}: {told(pairs)}" for name, pairs in things.items() if not agree(pairs)]


def test_the_spans_say_what_a_client_measures(kind: Kind, server: Server) -> None:
    each, busy = seen_and_busy(server, TOKENS, STREAMS)
    assert {one.generation.attributes["gen_ai.usage.output_tokens"] for one in each} == {TOKENS}
    first = [one.first_token() for one in each]
    after = [one.after_first_burst(kind, TOKENS) for one in each]
    whole = [one.whole() for one in each]
    assert lies_within(first), told(first)
    if busy:
        pytest.skip(TOO_BUSY)
    assert disagreements({"first token": first, "tokens after the first burst": after, "whole": whole}) == []


def test_the_spans_say_how_long_a_client_waits_for_its_turn(kind: Kind, server: Server) -> None:
    each, busy = seen_and_busy(server, SHORT_TOKENS, SHORT_STREAMS, CLIENTS)
    first, whole = [one.first_token() for one in each], [one.whole() for one in each]
    assert lies_within(first), told(first)
    if kind.in_turn:
        waited = statistics.median(one.of("queue.duration") for one in each)
        assert waited > statistics.median(one.of("decode.duration") for one in each), "most wait for another"
    if busy:
        pytest.skip(TOO_BUSY)
    assert disagreements({"first token": first, "whole": whole}) == []
