"""Engine helpers for the tiny pair's tests. What needs MLX skips without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_specdecode.tiny_pair import model_path

Loaded = tuple[Any, Any]
EOS = 2


@pytest.fixture(scope="session")
def load() -> Callable[[Path], Loaded]:
    """Load a folder as (model, tokenizer) with mlx-lm."""
    mlx_lm = pytest.importorskip("mlx_lm", reason="needs the [mlx] extra")

    def loaded(folder: Path) -> Loaded:
        model, tokenizer = mlx_lm.load(str(folder))
        return model, tokenizer

    return loaded


@pytest.fixture(scope="session")
def target(load: Callable[[Path], Loaded]) -> Loaded:
    """The shipped target."""
    return load(model_path("target"))


@pytest.fixture(scope="session")
def autoregressive() -> Callable[..., list[int]]:
    """Greedy tokens from mlx-lm's `generate_step`, which does not stop at EOS."""
    pytest.importorskip("mlx_lm", reason="needs the [mlx] extra")
    import mlx.core as mx
    from mlx_lm.generate import generate_step

    def run(model: Any, prompt: list[int], n: int) -> list[int]:
        return [int(token) for token, _ in generate_step(mx.array(prompt), model, max_tokens=n)]

    return run


@pytest.fixture(scope="session")
def speculative() -> Callable[..., tuple[list[int], list[bool]]]:
    """Greedy tokens and from-draft flags of mlx-lm's `speculative_generate_step`, which does not stop at EOS."""
    pytest.importorskip("mlx_lm", reason="needs the [mlx] extra")
    import mlx.core as mx
    from mlx_lm.generate import speculative_generate_step

    def run(model: Any, draft: Any, prompt: list[int], n: int, k: int) -> tuple[list[int], list[bool]]:
        stream = speculative_generate_step(mx.array(prompt), model, draft, num_draft_tokens=k, max_tokens=n)
        steps = [(int(token), bool(from_draft)) for token, _, from_draft in stream]
        return [token for token, _ in steps], [flag for _, flag in steps]

    return run


@pytest.fixture(scope="session")
def accept_rate(speculative: Callable[..., tuple[list[int], list[bool]]]) -> Callable[..., float]:
    """Accepted / compared draft tokens over several prompts up to EOS, read from the flags."""

    def compared(flags: list[bool], n: int, k: int) -> Iterator[tuple[int, int]]:
        start = 0
        while start < len(flags):
            proposed = min(k, n - start)
            ahead = flags[start : start + proposed]
            accepted = ahead.index(False) if False in ahead else len(ahead)
            finished = start + accepted < len(flags)
            yield accepted, proposed if finished else accepted
            start += accepted + finished

    def run(model: Any, draft: Any, prompts: list[list[int]], k: int, n: int = 100) -> float:
        accepted = total = 0
        for prompt in prompts:
            tokens, flags = speculative(model, draft, prompt, n, k)
            end = tokens.index(EOS) + 1 if EOS in tokens else len(tokens)
            for good, seen in compared(flags[:end], n, k):
                accepted, total = accepted + good, total + seen
        return accepted / total

    return run
