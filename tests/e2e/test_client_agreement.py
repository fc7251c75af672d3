"""What a client of an engine's own server measures itself, held against the spans of its requests."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

for module in ("opentelemetry.distro", "opentelemetry.exporter.otlp.proto.http"):
    pytest.importorskip(module, reason="needs the [zero-code] extra")

from otel_specdecode.tiny_pair import PROMPTS, model_path  # noqa: E402
from tests.e2e import llama_cpp_server, mlx_lm_server  # noqa: E402
from tests.e2e.measuring_client import Heard, Question, ask  # noqa: E402
from tests.e2e.servers import Server  # noqa: E402
from tests.otlp_receiver import Received, ReceivedSpan  # noqa: E402

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]

TEXT, CHAT = "/v1/completions", "/v1/chat/completions"

DRAFT_LENGTH = 3
TOKENS, STREAMS = 48, 14
SHORT_TOKENS, CLIENTS, SHORT_STREAMS = 8, 3, 18
"""Short enough for the last of the clients that wait to wait for less than 2 % makes 10 ms of."""

WITHOUT_END = {"0": -100, "2": -100}
"""Forbids the tokens that end a generation: a client then knows how many tokens it got."""

RELATIVE, ABSOLUTE_S = 0.02, 0.005
ATTEMPTS = 4
"""On a machine that is disturbed for a while; a clock that is read at the wrong moment is so in every attempt."""

SELDOM = {"OTEL_BSP_SCHEDULE_DELAY": "1000"}
"""Exports between the requests rather than in each of them."""


@dataclass(frozen=True)
class Kind:
    """One of the servers, in one of its modes.

    Attributes:
        needs: Module that it takes.
        options: Beside the model.
        burst: Tokens that can come at once in the beginning: more than one where the first round emits the first token.
        in_turn: It runs requests one by one.
    """

    needs: str
    options: tuple[str, ...] = ()
    burst: int = 1
    in_turn: bool = True


IN_TURN = ("--interrupt_requests", "false")
LOOKUP = ("--draft_model", "prompt-lookup-decoding")
KINDS = {
    "mlx batching": Kind("mlx_lm", in_turn=False),
    "mlx drafting": Kind(
        "mlx_lm", (*mlx_lm_server.DRAFT, "--num-draft-tokens", str(DRAFT_LENGTH)), burst=DRAFT_LENGTH + 1
    ),
    "llama.cpp plain": Kind("llama_cpp", IN_TURN),
    "llama.cpp lookup": Kind("llama_cpp", (*IN_TURN, *LOOKUP)),
}


def of_engine(name: str) -> Any:
    return pytest.param(KINDS[name], id=name, marks=getattr(pytest.mark, name.split(maxsplit=1)[0].replace(".", "_")))


def started(kind: Kind, folder: Path) -> AbstractContextManager[Server]:
    if kind.needs == "mlx_lm":
        return mlx_lm_server.running(folder, *kind.options, variables=SELDOM)
    for module in ("fastapi", "pydantic_settings", "sse_starlette", "starlette_context", "uvicorn"):
        pytest.importorskip(module, reason=f"needs the {module} package")
    pytest.importorskip("opentelemetry.instrumentation.fastapi", reason="needs the FastAPI instrumentation")
    pytest.importorskip("gguf", reason="needs the [demo] extra")
    from otel_specdecode.tiny_pair.gguf import convert

    model = convert(model_path("target"), folder / "target.gguf", "f32")
    return llama_cpp_server.running(model, folder, *kind.options, variables=SELDOM)


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
    body = {"max_tokens": tokens, "temperature": 0, "logit_bias": WITHOUT_END}
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
        generations = {
            span.trace_id: span for span in spans if span.scope == "otel_specdecode" and span.kind == "INTERNAL"
        }
        return (requests, generations) if requests.keys() == generations.keys() == wanted else None

    found = server.received.wait_for(both)
    assert found is not None, "not every request has both of its spans"
    requests, generations = found
    return [Seen(each, requests[each.trace_id], generations[each.trace_id]) for each in heard]


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
        "median without it": statistics.median(pair.difference - pair.way for pair in pairs),
    }
    return ", ".join(f"{name} {1000 * value:.2f} ms" for name, value in values.items())


def agree(pairs: Sequence[Pair]) -> bool:
    """Tell whether the median of the differences is small.

    What a client measures holds its way to the server and back. On a machine that does other things too that alone can
    take longer than what is allowed: then the differences must be small without it.
    """
    allowed = max(ABSOLUTE_S, RELATIVE * statistics.median(pair.client for pair in pairs))
    with_it = statistics.median(pair.difference for pair in pairs)
    without = statistics.median(pair.difference - pair.way for pair in pairs)
    return min(abs(with_it), abs(without)) <= allowed


def lies_within(pairs: Sequence[Pair]) -> bool:
    """Tell whether the client began before the server did and heard after it spoke, however busy the machine was."""
    return all(pair.difference > 0 for pair in pairs)


def disagreements(things: Mapping[str, Sequence[Pair]]) -> list[str]:
    return [f"{name}: {told(pairs)}" for name, pairs in things.items() if not agree(pairs)]


def test_the_spans_say_what_a_client_measures(kind: Kind, server: Server) -> None:
    found: list[str] = []
    for _ in range(ATTEMPTS):
        each = seen(server, TOKENS, STREAMS)
        assert {one.generation.attributes["gen_ai.usage.output_tokens"] for one in each} == {TOKENS}
        first = [one.first_token() for one in each]
        assert lies_within(first), told(first)
        after = [one.after_first_burst(kind, TOKENS) for one in each]
        found = disagreements(
            {"first token": first, "tokens after the first burst": after, "whole": [one.whole() for one in each]}
        )
        if not found:
            break
    assert not found


def test_the_spans_say_how_long_a_client_waits_for_its_turn(kind: Kind, server: Server) -> None:
    found: list[str] = []
    for _ in range(ATTEMPTS):
        each = seen(server, SHORT_TOKENS, SHORT_STREAMS, CLIENTS)
        first = [one.first_token() for one in each]
        assert lies_within(first), told(first)
        found = disagreements({"first token": first, "whole": [one.whole() for one in each]})
        if kind.in_turn:
            waited = statistics.median(one.of("queue.duration") for one in each)
            assert waited > statistics.median(one.of("decode.duration") for one in each), "most wait for another"
        if not found:
            break
    assert not found
