"""A client that calls through OpenAI's SDK, both ends under `opentelemetry-instrument`: each call is one trace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

INSTRUMENTATIONS = ("opentelemetry-instrumentation-genai-openai", "opentelemetry-instrumentation-httpx")
for package in ("openai", *INSTRUMENTATIONS):  # looked up, not imported: only the client needs them, and they are large
    try:
        version(package)
    except PackageNotFoundError:
        pytest.skip(f"needs the {package} package", allow_module_level=True)

from tests.e2e import llama_cpp_server, mlx_lm_server  # noqa: E402
from tests.e2e.servers import ANSWER_S, LAUNCHER, PROMPT_ONLY, Server  # noqa: E402
from tests.otlp_receiver import Received, ReceivedSpan, otlp_receiver  # noqa: E402

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("openai_client.py")
OPENAI, HTTPX = "opentelemetry.instrumentation.genai.openai", "opentelemetry.instrumentation.httpx"
CHATS, TEXTS = ("chat", "chat, streamed"), ("text", "text, streamed")
CALLS = (*CHATS, *TEXTS)


@dataclass(frozen=True)
class Run:
    """What a client and a server exported of the client's calls.

    Attributes:
        engine: `mlx` or `llama_cpp`.
        client: What the client exported; it has ended.
        told: Prompt and completion tokens by call, as the client was told them; None where it was told nothing.
    """

    engine: str
    server: Server
    client: Received = field(repr=False)
    told: dict[str, list[int] | None]

    def ends(self, call: str) -> tuple[ReceivedSpan, ReceivedSpan]:
        """The SERVER span and the generation of a call, which is known by its session."""

        def generations(received: Received) -> list[ReceivedSpan]:
            return [span for span in received.spans() if span.attributes.get("specdecode.session.id") == call]

        found = self.server.received.wait_for(generations)
        assert len(found) == 1, f"of {call!r} there came {len(found)} generations with the client's session"
        return self.server.spans(found[0].trace_id)

    def chain(self, call: str) -> list[ReceivedSpan]:
        """The generation of a call and what is above it, from the root on."""
        spans = {span.span_id: span for span in self.client.spans()}
        found = list(reversed(self.ends(call)))
        while parent := spans.get(found[-1].parent_id):
            found.append(parent)
        return found[::-1]


@pytest.fixture(
    scope="module",
    params=[pytest.param("mlx", marks=pytest.mark.mlx), pytest.param("llama_cpp", marks=pytest.mark.llama_cpp)],
)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A server of each engine, and what a client of it sees."""
    folder = tmp_path_factory.mktemp("server")
    with started(request.param, folder) as server, otlp_receiver() as (url, received):
        yield Run(request.param, server, received, told_by(server, url))


def started(engine: str, folder: Path) -> AbstractContextManager[Server]:
    if engine == "mlx":
        mlx_lm_server.skip_unless_installed()
        return mlx_lm_server.running(folder)
    llama_cpp_server.skip_unless_installed()
    return llama_cpp_server.running(llama_cpp_server.target(folder), folder)


def told_by(server: Server, endpoint: str) -> dict[str, list[int] | None]:
    """Run the client to its end."""
    url, prompt = f"http://127.0.0.1:{server.port}/v1", f"Tell me a {PROMPT_ONLY} story."
    clean = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    done = subprocess.run(
        [str(LAUNCHER), sys.executable, str(PROGRAM), url, prompt, *CALLS],
        env={**clean, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
        capture_output=True,
        text=True,
        timeout=2 * ANSWER_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not any(words in done.stderr for words in ("Traceback", "Failed to detach")), done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["call"]: line["usage"] for line in lines}


def tokens(span: ReceivedSpan) -> list[Any]:
    return [span.attributes.get(f"gen_ai.usage.{kind}_tokens") for kind in ("input", "output")]


def seconds(span: ReceivedSpan) -> float:
    return (span.end - span.start) / 1e9


@pytest.mark.parametrize("call", CHATS)
def test_a_chat_is_one_trace_from_the_clients_call_to_the_generation(run: Run, call: str) -> None:
    root, http, request, generation = run.chain(call)
    assert (root.scope, root.kind, root.name, root.parent_id) == (OPENAI, "CLIENT", "chat default_model", "")
    assert (http.scope, http.kind, http.name) == (HTTPX, "CLIENT", "POST")
    assert (request.kind, request.name) == ("SERVER", "POST /v1/chat/completions")
    assert (generation.kind, generation.name) == ("INTERNAL", "chat target")
    assert {span.trace_id for span in (root, http, request)} == {generation.trace_id}
    assert {span.status for span in (root, http, request, generation)} == {"UNSET"}


@pytest.mark.parametrize("call", TEXTS)
def test_a_text_completion_has_the_http_clients_span_alone_above_the_servers(run: Run, call: str) -> None:
    http, request, generation = run.chain(call)
    assert (http.scope, http.kind, http.name, http.parent_id) == (HTTPX, "CLIENT", "POST", "")
    assert (request.kind, request.name) == ("SERVER", "POST /v1/completions")
    assert (generation.kind, generation.name) == ("INTERNAL", "text_completion target")


@pytest.mark.parametrize("call", CALLS)
def test_the_clients_tenant_reaches_the_generation(run: Run, call: str) -> None:
    _, generation = run.ends(call)
    assert generation.attributes["specdecode.tenant.id"] == "acme"


@pytest.mark.parametrize("call", CALLS)
def test_a_client_is_told_the_tokens_of_the_generation(run: Run, call: str) -> None:
    """llama_cpp.server tells none in a stream, and leaves out the token that ends a text."""
    _, generation = run.ends(call)
    counted, told = tokens(generation), run.told[call]
    if run.engine == "llama_cpp":
        counted[1] -= generation.attributes["gen_ai.response.finish_reasons"] == ["stop"]
    tells_none = run.engine == "llama_cpp" and call.endswith("streamed")
    assert told == (None if tells_none else counted)
    if call in CHATS:
        root, *_ = run.chain(call)
        assert tokens(root) == ([None, None] if tells_none else told)


@pytest.mark.parametrize("call", CHATS)
def test_what_the_client_measures_holds_what_the_server_measures(run: Run, call: str) -> None:
    root, *_, generation = run.chain(call)
    found = generation.attributes
    assert seconds(root) > seconds(generation)
    if call.endswith("streamed"):
        first = root.attributes["gen_ai.response.time_to_first_chunk"]
        assert first > found["specdecode.queue.duration"] + found["specdecode.time_to_first_token"]
        assert first > found["gen_ai.response.time_to_first_chunk"]


def test_metrics_that_both_ends_export_are_told_apart_by_the_provider(run: Run) -> None:
    def chats(received: Received) -> Counter[str]:
        """How many chats each provider has a duration of."""
        counts: Counter[str] = Counter()
        for labels, count in received.latest("gen_ai.client.operation.duration"):
            if labels["gen_ai.operation.name"] == "chat":
                counts[labels["gen_ai.provider.name"]] += int(count)
        return counts

    assert chats(run.client) == {"openai": len(CHATS)}
    of_server = {run.engine: len(CHATS)}
    assert run.server.received.wait_for(lambda received: chats(received) == of_server), chats(run.server.received)


def test_no_prompt_leaves_either_end(run: Run) -> None:
    assert PROMPT_ONLY not in str(run.client.requests)
    assert PROMPT_ONLY not in str(run.server.received.requests)
