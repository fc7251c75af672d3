"""Real servers on loopback: OTLP over gRPC, and HTTP servers that are not what was expected."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Asked:
    """What a server was asked.

    Attributes:
        paths: Methods and paths, in order.
        headers: Of each request.
        bodies: Bytes of each request.
    """

    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)


@contextmanager
def grpc_server(answer: Callable[[Any], None] = lambda _: None) -> Iterator[tuple[int, Asked]]:
    """OTLP over gRPC, all three services; gives the port. `answer` is handed each call's context and may abort it."""
    import grpc

    asked = Asked()

    class Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, details: Any) -> Any:
            if not details.method.startswith("/opentelemetry.proto.collector."):
                return None

            def export(request: bytes, context: Any) -> bytes:
                asked.paths.append(details.method)
                asked.headers.append(dict(context.invocation_metadata()))
                asked.bodies.append(request)
                answer(context)
                return b""

            return grpc.unary_unary_rpc_method_handler(export)

    with ThreadPoolExecutor(max_workers=3) as pool:
        server = grpc.server(pool, handlers=[Handler()])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield port, asked
        finally:
            server.stop(None).wait()


@contextmanager
def http_server(
    answers: Mapping[str, Any], *, status: int = 404, headers: Mapping[str, str] | None = None
) -> Iterator[tuple[int, Asked]]:
    """An HTTP server; gives the port.

    Args:
        answers: JSON document of each path, sent with status 200.
        status: Of every other path.
        headers: Sent with every other path.
    """
    asked = Asked()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            asked.paths.append(f"{self.command} {self.path}")
            asked.headers.append({name.lower(): value for name, value in self.headers.items()})
            asked.bodies.append(self.rfile.read(int(self.headers.get("Content-Length", 0))))
            document = answers.get(self.path)
            self.send_response(status if document is None else 200)
            for name, value in (headers or {}).items() if document is None else ():
                self.send_header(name, value)
            body = b"" if document is None else json.dumps(document).encode()
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = _answer  # noqa: N815 - names of the base class

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_port, asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def raw_server(*parts: bytes, again: bytes = b"") -> Iterator[tuple[int, list[bytes]]]:
    """A server that sends these parts to whoever asks and goes on with `again` until the end; gives port and requests.

    Between two parts it waits a little, as a server does that keeps a client busy.
    """
    import socket

    asked: list[bytes] = []
    over = threading.Event()

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            asked.append(connection.recv(65536))
            for part in parts:
                connection.sendall(part)
            while again and not over.wait(0.02):
                connection.sendall(again)
            over.wait()

    def accept() -> None:
        with suppress(OSError):
            while not over.is_set():
                connection = listening.accept()[0]
                threads.append(threading.Thread(target=serve, args=(connection,)))
                threads[-1].start()

    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threads.append(threading.Thread(target=accept))
        threads[0].start()
        try:
            yield listening.getsockname()[1], asked
        finally:
            over.set()
            with suppress(OSError):
                socket.create_connection(listening.getsockname(), 1).close()
            for thread in threads:
                thread.join()


@contextmanager
def free_port() -> Iterator[int]:
    """A port on which nothing listens, and nothing else begins to."""
    import socket

    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]
