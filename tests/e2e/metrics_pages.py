"""Servers that answer with the metrics page of another engine, for a collector to read."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

DATA = Path(__file__).parent / "data"
PLAIN = "text/plain; version=0.0.4"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=allow-utf-8"

_SAMPLE = re.compile(r"^(?P<name>[a-z_:]+)(?P<labels>\{.*\})? (?P<value>\S+)$")


@dataclass(frozen=True)
class Asked:
    """A request: its path with the query, and the key it brought."""

    path: str
    key: str


@dataclass
class Page:
    """What a server answers; may be changed while it runs.

    Attributes:
        text: Its body.
        content_type: How it says the body is written.
        status: Its HTTP status.
        address: Host and port that it listens on.
        asked: Every request so far.
    """

    text: str
    content_type: str = PLAIN
    status: int = 200
    address: str = ""
    asked: list[Asked] = field(default_factory=list)


def page(name: str) -> str:
    """Return a captured page, by the name of its file without the ending."""
    return (DATA / f"{name}.txt").read_text(encoding="utf-8")


def count(text: str, name: str, **labels: str) -> float:
    """Return what a page itself says: the sum over all its samples of a name that have these labels."""
    samples = filter(None, map(_SAMPLE.match, text.splitlines()))
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    found = [each for each in samples if each["name"] == name]
    return sum(float(each["value"]) for each in found if all(part in (each["labels"] or "") for part in wanted))


@contextmanager
def served(text: str, content_type: str = PLAIN) -> Iterator[Page]:
    """Serve a page on loopback for the length of a block."""
    made = Page(text, content_type)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.asked.append(Asked(self.path, self.headers.get("Authorization", "")))
            self.send_response(made.status)
            self.send_header("Content-Type", made.content_type)
            self.end_headers()
            self.wfile.write(made.text.encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.address = f"127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
