"""The tiny pair under a guard that runs: requests, what was told, and waiting for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import mlx_lm

from otel_specdecode.testing.capture import Telemetry, capture
from otel_specdecode.tiny_pair import PROMPTS, chat_tokens, model_path
from tests.guard.joined import run_until, transitions

K = 4
STORY = PROMPTS[0]
ALWAYS = 0.99
"""An accept rate that no window has: the first one trips."""


class Models:
    """The tiny pair."""

    def __init__(self) -> None:
        """Load it once."""
        with capture():
            self.target, self.tokenizer = mlx_lm.load(str(model_path("target")))
            self.draft = load("draft")

    def run(self, draft: Any = None, text: str = STORY, tokens: int = 24) -> list[int]:
        """Make one request."""
        return [int(each.token) for each in self.stream(draft, text, tokens)]

    def stream(self, draft: Any = None, text: str = STORY, tokens: int = 24) -> Iterator[Any]:
        """Ask for tokens."""
        asked = {} if draft is None else {"draft_model": draft, "num_draft_tokens": K}
        prompt = chat_tokens(self.tokenizer, text)
        running: Iterator[Any] = mlx_lm.stream_generate(self.target, self.tokenizer, prompt, max_tokens=tokens, **asked)
        return running


def load(name: Any) -> Any:
    """Load a draft."""
    return mlx_lm.load(str(model_path(name)))[0]


def opens(models: Models, telemetry: Telemetry) -> None:
    """Make requests until the guard lets none speculate any more."""
    run_until(lambda: bool(transitions(telemetry)), lambda: models.run(models.draft), 10)


def latest(telemetry: Telemetry, metric: str, key: str | None = None) -> dict[Any, float]:
    """A metric's points by one of their labels."""
    return {None if key is None else point.labels[key]: point.value for point in telemetry.points(metric)}


def wait_for(seen: Callable[[], bool]) -> None:
    """Wait for something that another thread does.

    Raises:
        AssertionError: It does not within 20 s.
    """
    ticks = threading.Event()
    run_until(seen, lambda: ticks.wait(0.02), 1000)
