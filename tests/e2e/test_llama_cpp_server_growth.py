"""llama_cpp.server does not grow with the requests it serves, beside a bare one that serves the same."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.e2e.growth import growth
from tests.e2e.llama_cpp_server import (
    CHAT,
    COMPLETION,
    JSON,
    LOOKUP,
    Server,
    active,
    running,
    skip_unless_installed,
    target,
    total,
)
from tests.e2e.servers import ANSWER_S, SOON

skip_unless_installed()

pytestmark = [pytest.mark.e2e, pytest.mark.llama_cpp, pytest.mark.slow, pytest.mark.timeout(900)]

REQUESTS = 1000
BYTES_PER_REQUEST = 1000.0
"""More than a bare server's: a span or a record that is kept for each request takes several thousand."""

STEADY = {**SOON, "MALLOC_ARENA_MAX": "1"}
"""Several threads serve requests; with several arenas memory depends on which thread came when."""

SHORT = {"max_tokens": 1, "temperature": 0}
KINDS: tuple[tuple[str, bytes], ...] = tuple(
    (path, json.dumps({**body, **SHORT}).encode())
    for path, body in (
        (COMPLETION, {"prompt": "Once"}),
        (COMPLETION, {"prompt": "Once", "stream": True}),
        (CHAT, {"messages": [{"role": "user", "content": "Hi"}], "stream": True}),
        (COMPLETION, {"prompt": "once " * 600}),
        (COMPLETION, {"prompt": "Twice", "stream": True, "max_tokens": 9}),
    )
)
"""The fourth is refused: what an exception's traceback holds would stay with it."""


def ask(server: Server, number: int) -> None:
    """Send one request and read its answer."""
    path, body = KINDS[number % len(KINDS)]
    connection = HTTPConnection("127.0.0.1", server.port, timeout=ANSWER_S)
    try:
        connection.request("POST", path, body, JSON)
        connection.getresponse().read()
    finally:
        connection.close()


def test_threads_descriptors_and_memory_stay_as_they_are_over_a_thousand_requests(tmp_path: Path) -> None:
    model = target(tmp_path)
    with (
        running(model, tmp_path / "bare", *LOOKUP, variables=STEADY, instrumented=False) as bare,
        running(model, tmp_path / "instrumented", *LOOKUP, variables=STEADY) as instrumented,
    ):
        without, watched = growth((bare, instrumented), ask, REQUESTS)
        assert instrumented.received.wait_for(lambda got: total(got, "specdecode.request.started") == REQUESTS)
        assert instrumented.received.wait_for(lambda got: active(got) == 0)

    assert watched.bytes_per_request() <= without.bytes_per_request() + BYTES_PER_REQUEST
    assert watched.added_threads() < 1
    assert watched.added_descriptors() < 2
