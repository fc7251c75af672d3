"""Streams of MLX-LM: any number at a time share the models."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from opentelemetry.instrumentation.utils import suppress_instrumentation

from otel_specdecode.demo.load.driver import Stream
from otel_specdecode.demo.load.plan import DRAFT_LENGTHS, Arrival, Way
from otel_specdecode.demo.load.streams.prompts import BAD_NOISE, Prompts, prompts
from otel_specdecode.tiny_pair import chat_tokens, model_path

WAYS: tuple[Way, ...] = ("alone", *DRAFT_LENGTHS)

_FAILS_AT = 5


class MLXStreams:
    """The tiny pair in MLX-LM."""

    def __init__(self, scratch: Path, seed: int) -> None:
        """Load the models.

        Args:
            scratch: Folder for the bad draft.
            seed: Of its noise, and of sampling.
        """
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        import mlx.core as mx
        import mlx_lm

        from otel_specdecode.tiny_pair.dial import with_noise

        mx.random.seed(seed)
        self._model, self._tokenizer = mlx_lm.load(str(model_path("target")))[:2]
        self._draft = mlx_lm.load(str(model_path("draft-kd")))[0]
        # Under the good one's name, as a bad deployment would have it.
        bad = with_noise(model_path("draft-kd"), scratch / "bad" / "draft-kd", BAD_NOISE, seed=seed)
        self._bad = mlx_lm.load(str(bad))[0]
        self._prompts: Prompts = prompts(lambda text: chat_tokens(self._tokenizer, text))
        with suppress_instrumentation():
            for way in WAYS:
                for _ in self._generate(way, self._prompts.short[0], 8, 0.0):
                    pass

    def open(self, arrival: Arrival) -> Stream:
        """Return the stream of a request."""
        prompt = self._prompts.pick(arrival)
        more = {"logits_processors": [_Failing()]} if arrival.fails else {}
        return self._generate(arrival.way, prompt, arrival.tokens, arrival.temperature, **more)

    def release(self, arrival: Arrival, stream: Stream) -> None:
        """Nothing is taken back: a stream holds nothing for itself."""

    def close(self) -> None:
        """Drop the models."""
        self._model = self._draft = self._bad = None

    def _generate(self, way: Way, prompt: list[int], tokens: int, temperature: float, **more: Any) -> Stream:
        from mlx_lm import stream_generate
        from mlx_lm.sample_utils import make_sampler

        sampling: dict[str, Any] = {"top_p": 0.95, "top_k": 40} if temperature else {}
        if way != "alone":
            more["draft_model"] = self._bad if way == "bad draft" else self._draft
            more["num_draft_tokens"] = DRAFT_LENGTHS[way]
        stream: Stream = stream_generate(
            self._model,
            self._tokenizer,
            prompt,
            max_tokens=tokens,
            sampler=make_sampler(temp=temperature, **sampling),
            **more,
        )
        return stream


class _Failing:
    """A logits processor that raises after some tokens."""

    def __init__(self) -> None:
        self._calls = 0

    def __call__(self, _: Any, logits: Any) -> Any:
        self._calls += 1
        if self._calls >= _FAILS_AT:
            raise RuntimeError("this request is meant to fail")
        return logits
