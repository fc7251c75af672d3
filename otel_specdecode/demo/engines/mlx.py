"""MLX-LM: requests through `mlx_lm.stream_generate`, which takes its draft with each call."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from otel_specdecode.demo.engines.interface import DRAFT_LENGTH, Engine, Generate, Mode, ModelChoice

_NOISE = 0.6
_BLOCKS_KEPT = 10


class MLXTarget:
    """A target of MLX-LM."""

    note = "MLX-LM runs through mlx_lm.stream_generate, on MLX's default device."

    def __init__(self, source: Path, scratch: Path) -> None:
        """Load a folder, or a GGUF file of SmolLM2."""
        self._scratch = scratch
        self._folder = self._as_folder(source)
        self._model, self._tokenizer = _load(self._folder)

    def tokenize(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def alone(self) -> Generate:
        """Return the model without a draft."""
        return partial(_generate, self._model, self._tokenizer, {})

    def with_draft(self, source: Path) -> Generate:
        """Return the model with another one as its draft."""
        draft = _load(self._as_folder(source))[0]
        return partial(
            _generate, self._model, self._tokenizer, {"draft_model": draft, "num_draft_tokens": DRAFT_LENGTH}
        )

    def poor_draft(self, model: ModelChoice, seed: int) -> Mode:
        """Return the model with a draft made of itself, as MLX-LM knows no other draft than a model."""
        from otel_specdecode.tiny_pair.dial import with_depth, with_noise

        if model == "smollm2":
            shallow = with_depth(self._folder, self._scratch / f"SmolLM2-first-{_BLOCKS_KEPT}-blocks", _BLOCKS_KEPT)
            return Mode(
                f"first {_BLOCKS_KEPT} blocks",
                f"the target's first {_BLOCKS_KEPT} of 30 blocks: faster than the target, and mostly wrong",
                self.with_draft(shallow),
            )
        noisy = with_noise(self._folder, self._scratch / "noisy-copy", _NOISE, seed=seed)
        about = "the target with noise in its weights: as slow, and mostly wrong"
        return Mode("noisy copy", about, self.with_draft(noisy))

    def _as_folder(self, source: Path) -> Path:
        if source.is_dir():
            return source
        from otel_specdecode.tiny_pair import smollm2

        folder = self._scratch / source.stem
        return folder if folder.is_dir() else smollm2.convert(source, folder)


ENGINE = Engine(
    name="mlx",
    title="MLX-LM",
    packages={"mlx_lm": "mlx-lm"},
    probe="mlx.core",
    extras="demo",
    load=MLXTarget,
)


def _load(folder: Path) -> tuple[Any, Any]:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import mlx_lm

    model, tokenizer = mlx_lm.load(str(folder))[:2]
    return model, tokenizer


def _generate(model: Any, tokenizer: Any, speculation: dict[str, Any], prompt: Sequence[int], tokens: int) -> str:
    from mlx_lm import stream_generate
    from mlx_lm.sample_utils import make_sampler

    stream = stream_generate(
        model, tokenizer, list(prompt), max_tokens=tokens, sampler=make_sampler(temp=0.0), **speculation
    )
    with closing(stream):
        return "".join(response.text for response in stream)
