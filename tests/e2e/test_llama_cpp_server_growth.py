"""llama_cpp.server does not grow with the requests it serves, beside a bare one that serves the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.arrived import active, total
from tests.e2e.growth import STEADY, growth
from tests.e2e.llama_cpp_server import LOOKUP, running, skip_unless_installed, target
from tests.e2e.servers import CHAT, JSON, TEXT, Server

skip_unless_installed()

pytestmark = [pytest.mark.e2e, pytest.mark.llama_cpp, pytest.mark.slow, pytest.mark.timeout(900)]

REQUESTS = 1000
BYTES_PER_REQUEST = 1000.0
"""More than a bare server's: a span or a record that is kept for each request takes several thousand."""

SHORT = {"max_tokens": 1, "temperature": 0}
KINDS: tuple[tuple[int, str, bytes], ...] = tuple(
    (status, path, json.dumps({**SHORT, **body}).encode())
    for status, path, body in (
        (200, TEXT, {"prompt": "Once"}),
        (200, TEXT, {"prompt": "Once", "stream": True}),
        (200, CHAT, {"messages": [{"role": "user", "content": "Hi"}], "stream": True}),
        (400, TEXT, {"prompt": "once " * 600}),
        (200, TEXT, {"prompt": "Twice", "stream": True, "max_tokens": 9}),
    )
)
"""With the status. The fourth does not fit: what an exception's traceback holds would stay with it."""


def ask(server: Server, number: int) -> None:
    """Send one request and read its answer."""
    status, path, body = KINDS[number % len(KINDS)]
    assert server.exchange("POST", path, body, JSON).status == status


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
