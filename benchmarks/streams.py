"""Synthetic token streams, and what may stand between one and its consumer."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from otel_specdecode.generation.observer import Observer
from otel_specdecode.generation.request import Request
from otel_specdecode.generation.running import Generation
from otel_specdecode.generation.stream import Outcome, watch
from otel_specdecode.testing.fake import WORKED_EXAMPLE, FakeClock

MODEL = "mlx-community/Llama-3.2-3B-Instruct-4bit"
DRAFT = "mlx-community/Llama-3.2-1B-Instruct-4bit"
K = 4

AUTOREGRESSIVE = Request("text_completion", "mlx", MODEL)
SPECULATIVE = Request(
    "text_completion",
    "mlx",
    MODEL,
    mode="speculative",
    requested_mode="speculative",
    method="draft_model",
    draft_model=DRAFT,
    draft_max_tokens=K,
)


@dataclass(frozen=True, slots=True)
class Token:
    """An emitted token; `own` if it is the target's (correction or bonus, or any of an autoregressive run)."""

    own: bool


OWN, ACCEPTED = Token(True), Token(False)

Stream = Generator[Token, Any, None]
Engine = Callable[[Generation | None], Stream]
"""Makes an endless stream; with a generation it also does what an adapter does: it keeps the ledger."""


def autoregressive(generation: Generation | None) -> Stream:
    """One token a pass, for ever."""
    if generation is None:
        while True:
            yield OWN
    ledger = generation.ledger
    while True:
        ledger.plain_passes += 1
        yield OWN


def speculative(generation: Generation | None) -> Stream:
    """Rounds of k = 4 with 3.25 tokens on average, for ever."""
    for accepted in cycle(WORKED_EXAMPLE):
        if generation is not None:
            ledger = generation.ledger
            ledger.draft_calls += 1
            ledger.draft_passes = (ledger.draft_passes or 0) + K
            ledger.open_pass(generation.timeline.emitted(), K)
        for _ in range(accepted):
            yield ACCEPTED
        yield OWN


def paced(engine: Engine, clock: FakeClock, nanoseconds: int, tokens: int) -> Engine:
    """Return an engine that ends after some tokens and on whose clock each of them takes a time."""

    def timed(generation: Generation | None) -> Stream:
        stream = engine(generation)
        for _ in range(tokens):
            clock.now += nanoseconds
            yield next(stream)

    return timed


def floor(stream: Generator[Any, Any, None]) -> Generator[Any, Any, None]:
    """The least that can be called timing: one clock reading and one append a token."""
    times: list[int] = []
    append, clock = times.append, time.perf_counter_ns
    for item in stream:
        append(clock())
        yield item


def watched(
    engine: Engine, observer: Observer, request: Request, clock: Callable[[], int] = time.perf_counter_ns
) -> Generator[Any, Any, None]:
    """Return an engine's stream as this library's adapters hand it out."""
    ticket = observer.admit()
    if ticket is None:
        return engine(None)
    generation = Generation(ticket, lambda _: request, clock)
    generation.input_tokens = 16
    return watch(engine(generation), generation, _outcome)


def _outcome(_: Generation, token: Token | None, exhausted: bool) -> Outcome:
    return Outcome("length" if exhausted else "closed", exhausted, token is not None and token.own)
