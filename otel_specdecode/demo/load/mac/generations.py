"""Generations without an engine at the pace of a Mac, so that its readings have requests beside them."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from otel_specdecode.generation.observer import Observer
from otel_specdecode.generation.request import Request, Sampling
from otel_specdecode.testing.fake import FakeClock, FakeRound, Script, fake_request, fake_stream

TARGET, DRAFT = "synthetic-8b", "synthetic-1b"
K = 4

_TARGET_STEP, _DRAFT_STEP, _PREFILL = 26_000_000, 3_000_000, 120_000_000
_ACCEPTED = 0.85
_ALONE = 0.3
_GAP = (0.2, 0.8)


class PacedClock(FakeClock):
    """A clock of real time, on which work takes as long as it is said to, unless somebody calls a halt."""

    def __init__(self, stop: threading.Event) -> None:
        """Wait for work, but not once this is set."""
        super().__init__()
        self._stop = stop

    def __call__(self) -> int:
        """Return the reading."""
        return time.perf_counter_ns()

    def advance(self, nanoseconds: int) -> None:
        """Let so much time pass."""
        self._stop.wait(nanoseconds / 1e9)


def run(observer: Observer, slower: Callable[[], float], seed: int, stop: threading.Event) -> None:
    """Make one request after the other until somebody calls a halt.

    Args:
        observer: Who records.
        slower: Returns by how much each pass takes longer now.
        seed: Of prompts, lengths and what is accepted.
        stop: The halt.
    """
    chance = random.Random(seed)  # noqa: S311 - nothing secret
    clock = PacedClock(stop)
    while not stop.is_set():
        script = _script(chance, slower())
        stream = fake_stream(observer, script, clock, _request(script))
        for _ in stream:
            if stop.is_set():
                break
        stream.close()
        stop.wait(chance.uniform(*_GAP))


def _script(chance: random.Random, slower: float) -> Script:
    tokens = chance.randrange(16, 40)
    alone = chance.random() < _ALONE
    return Script(
        rounds=() if alone else tuple(_rounds(chance, tokens)),
        tokens=tokens if alone else 0,
        prompt_tokens=chance.randrange(40, 2_000),
        prefill=round(_PREFILL * slower),
        target_step=round(_TARGET_STEP * slower),
        draft_step=round(_DRAFT_STEP * slower),
    )


def _rounds(chance: random.Random, tokens: int) -> list[FakeRound]:
    rounds: list[FakeRound] = []
    left = tokens
    while left > 0:
        accepted = next((place for place in range(K) if chance.random() >= _ACCEPTED), K)
        rounds.append(FakeRound(K, accepted + 1))
        left -= accepted + 1
    return rounds


def _request(script: Script) -> Request:
    request = fake_request(script, model=TARGET, draft_model=DRAFT)
    tokens = script.tokens or sum(each.emitted for each in script.rounds)
    return replace(request, sampling=Sampling(max_tokens=tokens, temperature=0.0))
