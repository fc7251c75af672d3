"""A client that knows nothing of telemetry and measures what it gets, in a process of its own."""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any

ANSWER_S = 120.0


@dataclass(frozen=True)
class Question:
    """A request for a stream.

    Attributes:
        trace_id: The trace that it is sent in.
    """

    trace_id: str
    path: str
    body: dict[str, Any]

    @classmethod
    def of(cls, path: str, body: Mapping[str, Any]) -> Question:
        """Ask for a stream, in a trace of its own."""
        return cls(secrets.token_hex(16), path, {**body, "stream": True})


@dataclass(frozen=True)
class Heard:
    """What a client got, and when, in seconds since it began to connect.

    Attributes:
        trace_id: The trace that the request was sent in.
        texts: When each event with a piece of text came.
        ended: When the response was over.
        nothing: How long the same client took just before, for a page that the server does not have.
    """

    trace_id: str
    texts: tuple[float, ...]
    ended: float
    nothing: float

    def first_burst(self, most: int) -> int:
        """Return how many pieces came at once in the beginning: those before the first gap that is not a short one.

        Args:
            most: Pieces that a burst can have.
        """
        usual = (self.texts[-1] - self.texts[0]) / (len(self.texts) - 1)
        gaps = (after - before for before, after in zip(self.texts, self.texts[1:most], strict=False))
        return next((place for place, gap in enumerate(gaps, 1) if gap > usual), most)


def ask(port: int, questions: Sequence[Question], clients: int = 1) -> list[Heard]:
    """Ask a server on loopback, and return what was heard in the order of the questions.

    Args:
        port: The server's.
        questions: In the order in which they are asked.
        clients: How many ask at a time.

    Raises:
        subprocess.CalledProcessError: A question got no answer.
    """
    plan = {"port": port, "clients": clients, "questions": [vars(question) for question in questions]}
    command = [sys.executable, __file__]
    run = subprocess.run(command, input=json.dumps(plan), stdout=subprocess.PIPE, text=True, check=True)
    return [
        Heard(question.trace_id, tuple(at for at, line in lines if _has_text(line)), ended, nothing)
        for question, (lines, ended, nothing) in zip(questions, json.loads(run.stdout), strict=True)
    ]


def _has_text(line: str) -> bool:
    """Return whether a line of a response is an event with a piece of text, not a role, an end, or a comment."""
    if not line.startswith("data: {"):
        return False
    choices = json.loads(line.removeprefix("data: "))["choices"]
    return any(choice.get("text") or choice.get("delta", {}).get("content") for choice in choices)


def _question(port: int, question: Mapping[str, Any]) -> tuple[list[tuple[float, str]], float, float]:
    _, _, nothing = _exchange(port, "GET", "/nothing", None, {})
    headers = {"Content-Type": "application/json", "traceparent": f"00-{question['trace_id']}-00f067aa0ba902b7-01"}
    body = json.dumps(question["body"]).encode()
    status, lines, ended = _exchange(port, "POST", question["path"], body, headers)
    if status != 200:
        raise RuntimeError(f"the server answered {status}")
    return [(at, line.decode()) for at, line in lines], ended, nothing


def _exchange(
    port: int, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
) -> tuple[int, list[tuple[float, bytes]], float]:
    """Return status, lines with the time (s) at which each came, and the time at which the response was over."""
    lines = []
    connection = HTTPConnection("127.0.0.1", port, timeout=ANSWER_S)
    began = time.perf_counter()
    connection.connect()
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    while line := response.readline():
        lines.append((time.perf_counter() - began, line))
    ended = time.perf_counter() - began
    connection.close()
    return response.status, lines, ended


def _answer(plan: Mapping[str, Any]) -> list[tuple[list[tuple[float, str]], float, float]]:
    with ThreadPoolExecutor(plan["clients"]) as pool:
        return list(pool.map(lambda question: _question(plan["port"], question), plan["questions"]))


if __name__ == "__main__":
    json.dump(_answer(json.load(sys.stdin)), sys.stdout)
