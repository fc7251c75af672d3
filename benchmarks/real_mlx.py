"""The real MLX-LM on the tiny pair."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from benchmarks.installed import has_mlx
from benchmarks.real_runs import Run, timed, watched
from benchmarks.sdk import SDK
from benchmarks.streams import K
from otel_specdecode.engines.mlx_lm.hooks import MLXLMHooks
from otel_specdecode.tiny_pair import PROMPTS, model_path


@contextmanager
def mlx_runs(running: SDK, tokens: int) -> Iterator[dict[str, dict[str, Run]]]:
    """Give what to run by case and variant; nothing where MLX-LM is not installed."""
    if not has_mlx():
        yield {}
        return
    import mlx_lm

    model, tokenizer = mlx_lm.load(str(model_path("target")))[:2]
    draft = mlx_lm.load(str(model_path("draft")))[0]
    cases: dict[str, dict[str, Any]] = {
        "MLX-LM, AR": {},
        "MLX-LM, draft model": {"draft_model": draft, "num_draft_tokens": K},
    }
    hooks = MLXLMHooks()
    found: dict[str, dict[str, Run]] = {}
    for case, options in cases.items():
        bare: Run = partial(timed, partial(_generate, model, tokenizer, max_tokens=tokens, **options))
        found[case] = {"bare": bare, "ours": partial(watched, hooks, running.listener, bare)}
    yield found


def _generate(model: Any, tokenizer: Any, **options: Any) -> int:
    import mlx_lm

    return sum(1 for prompt in PROMPTS[:3] for _ in mlx_lm.stream_generate(model, tokenizer, prompt, **options))
