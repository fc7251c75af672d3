"""The real pairs on llama.cpp, loaded once, and telemetry in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from otel_specdecode.testing.capture import Telemetry, capture

llama_cpp = pytest.importorskip("llama_cpp", reason="needs the [llama-cpp] extra")
pytest.importorskip("gguf", reason="needs the [demo] extra")

from otel_specdecode.tiny_pair import cycle as cycle_pair  # noqa: E402
from otel_specdecode.tiny_pair import model_path  # noqa: E402
from otel_specdecode.tiny_pair.cycle import CyclePair  # noqa: E402
from otel_specdecode.tiny_pair.gguf import convert  # noqa: E402

QUIET = {"n_threads": 1, "n_threads_batch": 1, "verbose": False}
"""Options of every Llama here: one thread, since outputs are to be the same from run to run, and no log."""


@dataclass(frozen=True)
class Pair:
    """GGUF files of a target and its draft, in f32.

    Attributes:
        target: The target's file.
        draft: The draft's file.
        truth: What both will say, where that is known beforehand.
    """

    target: Path
    draft: Path
    truth: CyclePair | None = None

    def llama(self, draft_model: Any = None, **options: Any) -> Any:
        """Return the target, with logits of every position where it gets a draft."""
        if draft_model is not None:
            options.setdefault("logits_all", True)
        return llama_cpp.Llama(str(self.target), draft_model=draft_model, **{"n_ctx": 1024, **QUIET, **options})

    def draft_llama(self, **options: Any) -> Any:
        """Return the draft's Llama."""
        return llama_cpp.Llama(str(self.draft), **{"n_ctx": 1024, **QUIET, **options})


@pytest.fixture(scope="session")
def cycle(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """The untrained pair whose every token is known."""
    folder = tmp_path_factory.mktemp("cycle")
    truth = cycle_pair.build(folder, agreement=0.7)
    return Pair(
        convert(truth.target, folder / "cycle-target.gguf", "f32"),
        convert(truth.draft, folder / "cycle-draft.gguf", "f32"),
        truth,
    )


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """The trained pair."""
    folder = tmp_path_factory.mktemp("tiny")
    return Pair(
        convert(model_path("target"), folder / "target.gguf", "f32"),
        convert(model_path("draft-kd"), folder / "draft-kd.gguf", "f32"),
    )


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    """The engines instrumented into memory."""
    with capture() as captured:
        yield captured
