"""The real MLX-LM on a pair whose every token is known, and a pass count taken at the models themselves."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from otel_specdecode.instrumentors import MLXLMInstrumentor
from otel_specdecode.testing.capture import Telemetry, capture

mlx_lm = pytest.importorskip("mlx_lm", reason="needs the [mlx] extra")

from otel_specdecode.tiny_pair import model_path  # noqa: E402
from otel_specdecode.tiny_pair.cycle import CyclePair, build  # noqa: E402
from tests.engines.mlx_lm.local_server import LocalServer, local_server  # noqa: E402
from tests.engines.mlx_lm.served import DRAFT  # noqa: E402

EOS = 2

SPLITS_PREFILL = tuple(map(int, mlx_lm.__version__.split(".")[:2])) >= (0, 31)
"""Whether a speculative run feeds the prompt before its first round: up to 0.30.7 a short prompt rides along in it."""


@dataclass(frozen=True)
class Pair:
    """A loaded target and draft.

    Attributes:
        target: MLX model.
        draft: MLX model.
        tokenizer: The target's.
        truth: What the pair is known to emit; None for a trained pair.
    """

    target: Any
    draft: Any
    tokenizer: Any
    truth: CyclePair | None


@pytest.fixture(scope="session")
def cycle(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """The cycle pair, agreeing on 70 % of words, EOS never."""
    return load_cycle(tmp_path_factory.mktemp("cycle"))


@pytest.fixture(scope="session")
def eos(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """EOS is the third token after a chat prompt, and the draft agrees up to it and on it."""
    return load_cycle(tmp_path_factory.mktemp("eos"), eos_after=2, pattern=[True] * 8)


@pytest.fixture(scope="session")
def tiny() -> Pair:
    """The trained pair that is shipped."""
    return _load(model_path("target"), model_path("draft"), None)


def load_cycle(folder: Path, **options: Any) -> Pair:
    """Build a cycle pair in a folder and load it."""
    truth = build(folder, **options)
    return _load(truth.target, truth.draft, truth)


def _load(target: Path, draft: Path, truth: CyclePair | None) -> Pair:
    watching = nullcontext() if MLXLMInstrumentor().is_instrumented_by_opentelemetry else capture()
    with watching:
        model, tokenizer = mlx_lm.load(str(target))
        draft_model, _ = mlx_lm.load(str(draft))
    return Pair(model, draft_model, tokenizer, truth)


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    """MLX-LM instrumented into memory for one test."""
    with capture() as captured:
        yield captured


@pytest.fixture(params=["batched", "speculative"])
def server(request: pytest.FixtureRequest, telemetry: Telemetry) -> Iterator[LocalServer]:
    """The server in each of the two ways that it runs requests: together, and with a draft one by one."""
    with local_server(*(DRAFT if request.param == "speculative" else ())) as running:
        yield running


@pytest.fixture
def batching(telemetry: Telemetry) -> Iterator[LocalServer]:
    """The server that runs requests together."""
    with local_server() as running:
        yield running


@pytest.fixture
def drafting(telemetry: Telemetry) -> Iterator[LocalServer]:
    """The server with a draft, which runs requests one by one."""
    with local_server(*DRAFT) as running:
        yield running


def step_functions() -> Any:
    """The module that holds them; the package attribute of that name is a function."""
    return importlib.import_module("mlx_lm.generate")


@dataclass
class Passes:
    """Input widths of the passes of each model, in order."""

    target: list[int] = field(default_factory=list)
    draft: list[int] = field(default_factory=list)


@contextmanager
def counted_passes(pair: Pair) -> Iterator[Passes]:
    """Count passes at the models' class, below everything the library under test does."""
    passes = Passes()
    kind = type(pair.target)
    original = kind.__call__

    def counting(self: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if self is pair.target:
            passes.target.append(inputs.shape[1])
        elif self is pair.draft:
            passes.draft.append(inputs.shape[1])
        return original(self, inputs, *args, **kwargs)

    kind.__call__ = counting
    try:
        yield passes
    finally:
        kind.__call__ = original
