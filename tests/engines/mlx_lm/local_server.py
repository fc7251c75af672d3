"""MLX-LM's own server in this process, on a free port of loopback, with a client."""

from __future__ import annotations

import importlib
import json
import secrets
import socket
import struct
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from http.server import ThreadingHTTPServer
from typing import Any
from unittest import mock

from otel_specdecode.tiny_pair import model_path

ANSWER_S = 60.0
CALLER = "00f067aa0ba902b7"
"""The span id that every request names as its parent."""


def server_module() -> Any:
    """`mlx_lm.server`."""
    return importlib.import_module("mlx_lm.server")


@dataclass(frozen=True)
class Answer:
    """What a request got; of a stream the last event is the body.

    Attributes:
        trace_id: The trace that the request was sent in.
    """

    trace_id: int
    status: int
    body: Any
    events: tuple[Any, ...] = ()

    @property
    def usage(self) -> tuple[int, int, int]:
        """Prompt tokens, those of them that were reused, and emitted tokens, as the response tells."""
        usage = self.body["usage"]
        cached = usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
        return usage["prompt_tokens"], cached, usage["completion_tokens"]

    @property
    def finish_reason(self) -> str:
        """Why it ended, as the response tells."""
        told = [choice["finish_reason"] for event in (*self.events, self.body) for choice in event["choices"]]
        return next(reason for reason in reversed(told) if reason)


@dataclass
class Sent:
    """A request on its way.

    Attributes:
        trace_id: The trace that it was sent in.
    """

    trace_id: int
    _connection: HTTPConnection
    _socket: socket.socket
    _response: HTTPResponse | None = None

    def response(self) -> HTTPResponse:
        """Wait for the head of the answer."""
        self._response = self._connection.getresponse()
        return self._response

    def answer(self) -> Answer:
        """Read all of the answer, and close the connection."""
        response = self.response()
        text = response.read().decode()
        self._connection.close()
        if "data: " not in text:
            return Answer(self.trace_id, response.status, json.loads(text) if text.startswith(("{", "[")) else text)
        lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")]
        *events, last = map(json.loads, lines)
        return Answer(self.trace_id, response.status, last, tuple(events))

    def go_away(self) -> None:
        """Leave at once, without reading what is on its way: the other end finds the connection broken."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if self._response is not None:
            self._response.close()
        self._socket.close()
        self._connection.close()


@dataclass(frozen=True)
class LocalServer:
    """A running server.

    Attributes:
        port: On loopback.
        generator: MLX-LM's object that generates for it.
    """

    port: int
    generator: Any

    def ask(self, path: str, body: Any = None, method: str = "", **headers: str) -> Answer:
        """Send a request and read all of its answer."""
        return self.send(path, body, method, **headers).answer()

    def send_raw(self, request: bytes) -> bytes:
        """Send bytes as they are, and read all that comes back."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=ANSWER_S) as connection:
            connection.sendall(request)
            with connection.makefile("rb") as answer:
                return answer.read()

    def send(self, path: str, body: Any = None, method: str = "", **headers: str) -> Sent:
        """Send a request without waiting."""
        trace_id = secrets.token_hex(16)
        connection = HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_S)
        text = body if isinstance(body, str | None) else json.dumps(body)
        sent = {"traceparent": f"00-{trace_id}-{CALLER}-01", **headers}
        connection.request(method or ("GET" if body is None else "POST"), path, text, sent)
        return Sent(int(trace_id, 16), connection, connection.sock)


@contextmanager
def local_server(*options: str, model: str | None = None) -> Iterator[LocalServer]:
    """Run the server for the length of a block.

    Args:
        options: Command line options beside the model.
        model: Folder of the target; that of the tiny pair if not given.
    """
    module = server_module()
    provider = _provider(("--model", model or str(model_path("target")), *options))
    generator = module.ResponseGenerator(provider, module.LRUPromptCache())

    def handle(*args: Any, **kwargs: Any) -> Any:
        return module.APIHandler(generator, *args, system_fingerprint="test", **kwargs)

    httpd = _Quiet(("127.0.0.1", 0), handle)  # type: ignore[arg-type]
    serving = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    try:
        yield LocalServer(httpd.server_address[1], generator)
    finally:
        httpd.shutdown()
        serving.join()
        httpd.server_close()
        generator.stop_and_join()


class _Quiet(ThreadingHTTPServer):
    daemon_threads = False

    def server_bind(self) -> None:
        """Say that it listens everywhere, as `--host 0.0.0.0` does; a client's connection has an address of its own."""
        super().server_bind()
        self.server_address = ("0.0.0.0", self.server_address[1])

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is part of the test."""


def _provider(command: tuple[str, ...]) -> Any:
    """What the command line makes of its options, whatever release it is of."""
    module, made = server_module(), []

    def run(host: str, port: int, provider: Any, *_: Any) -> None:
        made.append(provider)

    with mock.patch.object(module, "run", run), mock.patch.object(sys, "argv", ["mlx_lm.server", *command]):
        module.main()
    return made[0]


def without_identity(body: Mapping[str, Any]) -> dict[str, Any]:
    """A response less what differs from one to the next anyway."""
    return {key: value for key, value in body.items() if key not in ("id", "created")}
