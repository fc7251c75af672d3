"""mlx_lm.server does not grow by being watched: a thousand requests beside the same thousand of a bare one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.e2e.arrived import active, total
from tests.e2e.growth import STEADY, growth
from tests.e2e.mlx_lm_server import DRAFT, WITHOUT_END, running, skip_unless_installed
from tests.e2e.servers import ASKED, CHAT, TEXT, Server

skip_unless_installed()

pytestmark = [pytest.mark.e2e, pytest.mark.mlx, pytest.mark.slow, pytest.mark.timeout(900)]

REQUESTS = 1_000

BYTES_PER_REQUEST = 1_500.0
"""More than a bare server's: a record of one generation that is kept, or a span, holds several thousand."""


def ask(server: Server, number: int) -> None:
    """One of a few kinds of request, as short as they can be; every 50th client goes away."""
    if number % 50 == 9:
        with server.stream(TEXT, {**ASKED[TEXT], **WITHOUT_END}) as chunks:
            assert next(chunks.events())
        return
    path = (TEXT, CHAT)[number % 2]
    refused = number % 10 == 3
    body = {**ASKED[path], "max_tokens": 0 if refused else 1, "stream": number % 3 == 0}
    if number % 7 == 0:
        body["seed"] = 7
    got = server.exchange("POST", path, json.dumps(body).encode())
    assert got.status == (400 if refused else 200)


@pytest.mark.parametrize("options", [(), DRAFT], ids=["batching", "drafting"])
def test_threads_files_and_memory_stay_those_of_a_bare_server_over_a_thousand_requests(
    options: Sequence[str], tmp_path: Path
) -> None:
    with (
        running(tmp_path / "bare", *options, variables=STEADY, instrumented=False) as bare,
        running(tmp_path / "instrumented", *options, variables=STEADY) as instrumented,
    ):
        without, watched = growth((bare, instrumented), ask, REQUESTS)
        received = instrumented.received
        assert received.wait_for(lambda got: total(got, "http.server.request.duration") == REQUESTS)
        assert received.wait_for(lambda got: active(got) == 0)
        assert bare.received.requests == {}

    assert watched.bytes_per_request() <= without.bytes_per_request() + BYTES_PER_REQUEST
    assert watched.added_threads() < 1
    assert watched.added_descriptors() < 2
