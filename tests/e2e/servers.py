"""An engine's own web server, started as a user does without a line of code, asked over HTTP, and stopped."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse, IncompleteRead, RemoteDisconnected
from pathlib import Path
from typing import Any

from tests.otlp_receiver import Received, ReceivedSpan, otlp_receiver

START_S = 120.0
STOP_S = 30.0
ANSWER_S = 60.0
POLL_S = 0.02

CALLER = "00f067aa0ba902b7"
"""The span id that every request names as its parent."""

PROMPT_ONLY = "zanzibar"
"""A word that stands in prompts, and may stand nowhere else."""

LAUNCHER = Path(sys.executable).parent / "opentelemetry-instrument"

SOON = {"OTEL_BSP_SCHEDULE_DELAY": "50", "OTEL_METRIC_EXPORT_INTERVAL": "200"}
"""Exports while the server runs, so that a test need not stop it."""


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
        headers = {"Content-Type": "application/json", "traceparent": f"00-{trace_id}-{CALLER}-01"}
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
                [span for span in spans if span.scope == "otel_specdecode" and span.kind == "INTERNAL"],
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
    port, log = _free_port(), folder / "server.log"
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
            if _listens(port):
                return
        else:
            break
    raise RuntimeError("the server did not start: " + log.read_text(errors="replace")[-2000:])


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
