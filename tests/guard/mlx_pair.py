"""The tiny pair under MLX-LM, with drafts that are weak, and that turn bad while they are in use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx_lm

from otel_specdecode.testing.capture import capture
from otel_specdecode.tiny_pair import PROMPTS, chat_tokens, model_path
from otel_specdecode.tiny_pair.dial import with_noise

K = 4
TOKENS = 40
EASY, HARD = "Explain what an owl is.", PROMPTS[9]
"""Of the weak draft: a prompt of which it guesses most tokens, and one of which it guesses few."""

Item = tuple[int, str, bool, str | None]


class Pair:
    """The tiny pair, whose draft can be made good and bad while it is in use."""

    def __init__(self, folder: Path) -> None:
        """Load everything once."""
        with capture():
            self.target, self.tokenizer = mlx_lm.load(str(model_path("target")))
            self.draft, _ = mlx_lm.load(str(model_path("draft-kd")))
            self.weak, _ = mlx_lm.load(str(model_path("draft-weak")))
            self.dialled, _ = mlx_lm.load(str(model_path("draft-kd")))
        self._good = str(model_path("draft-kd") / "model.safetensors")
        self._bad = str(with_noise(model_path("draft-kd"), folder / "bad", 1.0) / "model.safetensors")

    def turn(self, good: bool) -> None:
        """Give the dialled draft other weights."""
        self.dialled.load_weights(self._good if good else self._bad)

    def stream(self, prompt: Any = EASY, *, draft: Any = None, tokens: int = TOKENS, **options: Any) -> Iterator[Any]:
        """Ask for tokens, with a draft if there is one."""
        if isinstance(prompt, str):
            prompt = chat_tokens(self.tokenizer, prompt)
        if draft is not None:
            options = {"num_draft_tokens": K, **options, "draft_model": draft}
        running: Iterator[Any] = mlx_lm.stream_generate(
            self.target, self.tokenizer, prompt, max_tokens=tokens, **options
        )
        return running

    def run(self, prompt: Any = EASY, **options: Any) -> list[Item]:
        """All that a caller sees of a request."""
        return seen(self.stream(prompt, **options))


def seen(stream: Iterator[Any]) -> list[Item]:
    """What a caller sees of a stream."""
    return [(int(each.token), each.text, bool(each.from_draft), each.finish_reason) for each in stream]
