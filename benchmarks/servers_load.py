"""Clients of a completion server: one block of requests over a few connections, timed."""

from __future__ import annotations

import json
import random
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse

from otel_specdecode.tiny_pair import PROMPTS

PATH = "/v1/chat/completions"
HEADERS = {"Content-Type": "application/json"}
ANSWER_SECONDS = 60.0
SEED = 7

STORIES = PROMPTS[:3]
"""Asked as chats their answers have some 115 tokens, if `max_tokens` does not cut them."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What the requests of a block look like.

    Attributes:
        name: In a few words.
        requests: How many a block has.
        tokens: Fewest and most tokens that a request asks for.
        streamed: Every second one is a stream.
    """

    name: str
    requests: int
    tokens: tuple[int, int]
    streamed: bool = False

    def bodies(self) -> list[bytes]:
        """Return the requests of a block, the same at every call."""
        chance = random.Random(SEED)
        return [
            json.dumps(
                {
                    "messages": [{"role": "user", "content": chance.choice(STORIES)}],
                    "max_tokens": chance.randint(*self.tokens),
                    "temperature": 0.0,
                    **(_STREAM if self.streamed and place % 2 else {}),
                }
            ).encode()
            for place in range(self.requests)
        ]


_STREAM = {"stream": True, "stream_options": {"include_usage": True}}


def ask(port: int, bodies: Sequence[bytes], clients: int) -> tuple[float, int]:
    """Send requests over so many connections, each as soon as a connection is free.

    Returns:
        Wall time in seconds from the first request to the last answer, and tokens generated.

    Raises:
        RuntimeError: If a request is not answered with 200.
    """
    waiting = deque(bodies)
    with ThreadPoolExecutor(clients) as pool:
        began = time.perf_counter()
        tokens = sum(pool.map(lambda _: _client(port, waiting), range(clients)))
        return time.perf_counter() - began, tokens


def _client(port: int, waiting: deque[bytes]) -> int:
    tokens = 0
    with closing(HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS)) as connection:
        while True:
            try:
                body = waiting.popleft()
            except IndexError:
                return tokens
            connection.request("POST", PATH, body, HEADERS)
            response = connection.getresponse()
            if response.status != 200:
                raise RuntimeError(f"a completion was answered with {response.status}")
            tokens += _tokens_of(response)


def _tokens_of(response: HTTPResponse) -> int:
    """Return how many tokens an answer has; in a stream without usage each has an event."""
    if not (response.getheader("Content-Type") or "").startswith("text/event-stream"):
        return int(json.loads(response.read())["usage"]["completion_tokens"])
    events, last = 0, b"{}"
    for line in response:
        if line.startswith(b"data: {"):
            events, last = events + (b'"content"' in line), line
    usage = json.loads(last.removeprefix(b"data: ")).get("usage")
    return events if usage is None else int(usage["completion_tokens"])
