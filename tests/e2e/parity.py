"""Whether an instrumented server answers byte for byte as a bare one does."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.e2e.servers import RawAnswer, Server

_OF_THE_MOMENT = (
    (re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), rb"<id>"),
    (re.compile(rb'("created": ?)\d+'), rb"\1<time>"),
)
"""Ids of answers, and of what is in them, and when they were made."""


@dataclass(frozen=True)
class Question:
    """A request, sent to both servers.

    Attributes:
        path: Of its URL.
        body: JSON, or bytes that are none; None where there is no body.
        method: Of HTTP.
        headers: Beside those that every request has.
    """

    path: str
    body: Mapping[str, Any] | bytes | None
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})


@dataclass(frozen=True)
class Difference:
    """An answer that the two servers gave differently, without what is of the moment."""

    question: Question
    bare: RawAnswer
    instrumented: RawAnswer


def differences(
    bare: Server, instrumented: Server, questions: Sequence[Question], of_the_moment: Collection[str] = ()
) -> list[Difference]:
    """Ask both servers, one question after another, and compare status, headers and the raw body.

    Args:
        bare: The server without instrumentation.
        instrumented: The same server with it.
        questions: Whose answers are the same each time, but for ids of answers and times.
        of_the_moment: Headers, beside `date`, whose values are times or ids; that they are there counts.
    """
    found = []
    for question in questions:
        answers = [_ask(server, question, {"date", *of_the_moment}) for server in (bare, instrumented)]
        if answers[0] != answers[1]:
            found.append(Difference(question, *answers))
    return found


def _ask(server: Server, question: Question, of_the_moment: Collection[str]) -> RawAnswer:
    body = question.body
    content = json.dumps(body).encode() if isinstance(body, Mapping) else body
    got = server.exchange(question.method, question.path, content, question.headers)
    text = got.body
    for pattern, stand_in in _OF_THE_MOMENT:
        text = pattern.sub(stand_in, text)
    headers = ((name, "" if name.lower() in of_the_moment else value) for name, value in got.headers)
    return RawAnswer("", got.status, tuple(headers), text)
