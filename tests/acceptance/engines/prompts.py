"""Prompts that the tests of both engines ask, and how they run them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from otel_specdecode.acceptance.engines.interface import Session
from otel_specdecode.acceptance.prompts import Prompt
from otel_specdecode.acceptance.records import Arm

STORY = Prompt("story", messages=({"role": "user", "content": "Tell me a story about Nora the mouse."},), max_tokens=24)
OPENING = Prompt("opening", text="Once upon a time there was a fox named", max_tokens=16)


def answer(session: Session, arm: Arm, prompt: Prompt, *, seed: int = 0, thread: int = 0) -> str:
    """The whole text of one request."""
    with closing(session.stream(arm, prompt, seed, thread)) as stream:
        return "".join(stream)


def at_once(threads: int, work: Callable[[int], Any]) -> None:
    """Runs work(number) on so many threads at once; the first exception is raised here."""
    start, failures = threading.Barrier(threads), []

    def run(number: int) -> None:
        start.wait(timeout=60)
        try:
            work(number)
        except Exception as error:
            failures.append(error)

    running = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for each in running:
        each.start()
    for each in running:
        each.join()
    if failures:
        raise failures[0]


def answers_of_threads(session: Session, threads: int, arms: Sequence[Arm]) -> list[list[str]]:
    """What each of some threads gets, all asking at once: a story of each arm."""
    got: list[list[str]] = [[] for _ in range(threads)]

    def ask(number: int) -> None:
        got[number] = [answer(session, arm, STORY, seed=number, thread=number) for arm in arms]

    at_once(threads, ask)
    return got


def longer(prompt: Prompt, tokens: int) -> Prompt:
    """The same prompt with another limit, under a name of its own."""
    return replace(prompt, id=f"{prompt.id} of {tokens}", max_tokens=tokens)
