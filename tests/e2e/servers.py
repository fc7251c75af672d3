"""An engine's own web server, started as a user does without a line of code, asked over HTTP, and stopped."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse, IncompleteRead, RemoteDisconnected
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.arrived import is_generation
from tests.otlp_receiver import Received, ReceivedSpan, otlp_receiver
from tests.ports import free_port, listens

START_S = 120.0
STOP_S = 30.0
ANSWER_S = 60.0
POLL_S = 0.02

CALLER = "00f067aa0ba902b7"
"""The span id that every request names as its parent."""

PROMPT_ONLY = "zanzibar"
"""A word that stands in prompts, and may stand nowhere else."""

TEXT, CHAT = "/v1/completions", "/v1/chat/completions"
ASKED: dict[str, dict[str, Any]] = {
    TEXT: {"prompt": f"Tell me a {PROMPT_ONLY} story"},
    CHAT: {"messages": [{"role": "user", "content": f"Tell me a {PROMPT_ONLY} story."}]},
}

TURNS: list[dict[str, str]] = [
    {"role": "user", "content": f"Tell me a {PROMPT_ONLY} story of a fox."},
    {"role": "assistant", "content": "Once upon a time there was a fox."},
    {"role": "user", "content": "And then?"},
    {"role": "assistant", "content": "It slept."},
    {"role": "user", "content": "And then?"},
]
"""A chat, each of whose prompts begins with the one before."""

ENDLESS = {"logit_bias": {"0": -100, "2": -100}}
"""Forbids the tokens that end a generation."""

JSON = {"Content-Type": "application/json"}

LAUNCHER = Path(sys.executable).parent / "opentelemetry-instrument"

SOON = {"OTEL_BSP_SCHEDULE_DELAY": "50", "OTEL_METRIC_EXPORT_INTERVAL": "200"}
"""Exports while the server runs, so that a test need not stop it."""

SELDOM = {"OTEL_BSP_SCHEDULE_DELAY": "200", "OTEL_METRIC_EXPORT_INTERVAL": "1000"}
"""Exports that leave the machine to the server."""


@dataclass(frozen=True)
class Answer:
    """What a request got.

    Attributes:
        trace_id: The trace that the request was sent in.
    """

    trace_id: str
    status: int
    body: dict[str, Any]


@dataclass(frozen=True)
class RawAnswer:
    """What a request got, as it came.

    Attributes:
        trace_id: The trace that the request was sent in.
        status: None where the connection was closed without an answer; the rest is empty then.
    """

    trace_id: str
    status: int | None
    headers: tuple[tuple[str, str], ...]
    body: bytes


@dataclass(frozen=True)
class Stream:
    """A response that comes as server-sent events.

    Attributes:
        trace_id: The trace that the request was sent in.
    """

    trace_id: str
    _connection: HTTPConnection
    _response: HTTPResponse

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the chunks, to the end or to where the server breaks the response off."""
        try:
            while line := self._response.readline():
                data = line.decode().removeprefix("data: ").strip()
                if data.startswith("{"):
                    yield json.loads(data)
        except IncompleteRead:
            return

    def drop(self) -> None:
        """Close the socket, as a client that goes away does."""
        self._response.close()
        self._connection.close()


@dataclass(frozen=True)
class Server:
    """A running server and what it has exported.

    Attributes:
        port: On loopback.
    """

    port: int
    received: Received = field(repr=False)
    process: subprocess.Popen[bytes]
    log: Path

    def post(self, path: str, body: Mapping[str, Any]) -> Answer:
        """Ask for a whole answer."""
        connection, trace_id = self.send(path, body)
        return answer(connection, trace_id)

    def exchange(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> RawAnswer:
        """Send any request; return whatever comes back."""
        trace_id = secrets.token_hex(16)
        connection = HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_S)
        try:
            connection.request(method, path, body, {"traceparent": f"00-{trace_id}-{CALLER}-01", **(headers or {})})
            response = connection.getresponse()
            return RawAnswer(trace_id, response.status, tuple(response.getheaders()), response.read())
        except RemoteDisconnected:
            return RawAnswer(trace_id, None, (), b"")
        finally:
            connection.close()

    def send(self, path: str, body: Mapping[str, Any]) -> tuple[HTTPConnection, str]:
        """Send a request without waiting for its answer; return the connection and the request's trace."""
        trace_id = secrets.token_hex(16)
        headers = {**JSON, "traceparent": f"00-{trace_id}-{CALLER}-01"}
        connection = HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_S)
        connection.request("POST", path, json.dumps(body), headers)
        return connection, trace_id

    @contextmanager
    def stream(self, path: str, body: Mapping[str, Any]) -> Iterator[Stream]:
        """Ask for a stream, which is dropped at the end of the block unless it was before."""
        connection, trace_id = self.send(path, {**body, "stream": True})
        stream = Stream(trace_id, connection, connection.getresponse())
        try:
            yield stream
        finally:
            stream.drop()

    def spans(self, trace_id: str, timeout: float = 20.0) -> tuple[ReceivedSpan, ReceivedSpan]:
        """Return the HTTP span of a request and the generation's, once both have arrived."""

        def both(received: Received) -> tuple[list[ReceivedSpan], list[ReceivedSpan]]:
            spans = [span for span in received.spans() if span.trace_id == trace_id]
            return (
                [span for span in spans if span.kind == "SERVER"],
                [span for span in spans if is_generation(span)],
            )

        self.received.wait_for(lambda received: all(both(received)), timeout)
        requests, generations = both(self.received)
        assert len(requests) == len(generations) == 1, (
            f"of one request there came {len(requests)} server spans and {len(generations)} generations in {timeout} s"
        )
        return requests[0], generations[0]

    def stop(self, number: signal.Signals) -> int:
        """Send a signal; return the exit code.

        Raises:
            subprocess.TimeoutExpired: The server does not stop.
        """
        self.process.send_signal(number)
        return self.process.wait(STOP_S)


def answer(connection: HTTPConnection, trace_id: str) -> Answer:
    """Wait for the answer to a request that was sent."""
    try:
        response = connection.getresponse()
        return Answer(trace_id, response.status, json.loads(response.read()))
    finally:
        connection.close()


def skip_unless_installed(needs: Mapping[str, str]) -> None:
    """Skip a test where modules of a server, or what instruments it, are absent.

    Args:
        needs: What has to be installed, by module.
    """
    for module, need in {**needs, **_ZERO_CODE}.items():
        pytest.importorskip(module, reason=f"needs the {need}")


_ZERO_CODE = dict.fromkeys(("opentelemetry.distro", "opentelemetry.exporter.otlp.proto.http"), "[zero-code] extra")


@contextmanager
def running(
    command: Callable[[int], Sequence[str]],
    folder: Path,
    variables: Mapping[str, str] = SOON,
    instrumented: bool = True,
) -> Iterator[Server]:
    """Run a server under `opentelemetry-instrument` for the length of a block.

    Args:
        command: What runs it on a port.
        folder: Where the server's output goes.
        variables: Environment variables beside those that name the receiver.
        instrumented: Otherwise the command runs as it is.

    Raises:
        RuntimeError: It did not start; the message ends with the last of its log.
    """
    launcher = (str(LAUNCHER),) if instrumented else ()
    port, log = free_port(), folder / "server.log"
    with otlp_receiver() as (url, received), log.open("wb") as output:
        process = subprocess.Popen(
            [*launcher, *command(port)],
            env=_environment(url, variables),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait(process, port, log)
            yield Server(port, received, process, log)
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _environment(url: str, variables: Mapping[str, str]) -> dict[str, str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    exporter = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
    return {**clean, **exporter, **variables}


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    for _ in range(round(START_S / POLL_S)):
        try:
            process.wait(POLL_S)
        except subprocess.TimeoutExpired:
            if listens(port):
                return
        else:
            break
    raise RuntimeError("the server did not start: " + log.read_text(errors="replace")[-2000:])
