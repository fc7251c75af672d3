"""The models and prompts of the demo, loaded on the real engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

pytest.importorskip("numpy", reason="needs the [demo] extra")
pytest.importorskip("gguf", reason="needs the [demo] extra")
pytest.importorskip("jinja2", reason="needs the [demo] extra")
pytest.importorskip("safetensors", reason="needs the [demo] extra")
pytest.importorskip("opentelemetry.sdk", reason="needs the [demo] extra")

from otel_specdecode.demo.engines import ENGINES
from otel_specdecode.demo.engines.interface import Engine
from otel_specdecode.demo.lineups import Lineup, Size, build
from otel_specdecode.tiny_pair import PROMPTS, chat_tokens, model_path, smollm2
from tests.demo.made import LLAMA_CPP, MLX

REASONS: Mapping[str, str] = {"mlx_lm": "needs the [mlx] extra", "llama_cpp": "needs the [llama-cpp] extra"}

pytestmark = pytest.mark.slow

Build = Callable[..., Lineup]


@pytest.fixture(
    params=[pytest.param(MLX, marks=pytest.mark.mlx), pytest.param(LLAMA_CPP, marks=pytest.mark.llama_cpp)],
    ids=lambda engine: engine.name,
)
def engine(request: pytest.FixtureRequest) -> Engine:
    chosen: Engine = request.param
    for module in chosen.packages:
        pytest.importorskip(module, reason=REASONS[module])
    return chosen


def texts(lineup: Lineup) -> dict[str, list[str]]:
    """What each mode makes of each prompt."""
    return {
        mode.name: [mode.generate(prompt.tokens, lineup.tokens) for prompt in lineup.prompts] for mode in lineup.modes
    }


def test_no_draft_changes_the_text(engine: Engine, tmp_path: Path) -> None:
    emitted = texts(build(engine, "tiny", Size(tokens=24, prompts=3), tmp_path))
    assert len(emitted) == 5
    assert set(emitted["autoregressive"][0].split()) & {"fox", "a", "the"}
    assert all(each == emitted["autoregressive"] for each in emitted.values())


def test_the_slower_target_emits_the_same_text_and_says_that_it_is_padded(engine: Engine, tmp_path: Path) -> None:
    lineup = build(engine, "tiny", Size(tokens=8, prompts=1), tmp_path)
    assert lineup.slower is not None
    slower = lineup.slower()
    assert slower.padded_blocks == 28
    assert "padded" in slower.about
    assert texts(slower)["autoregressive, padded"] == texts(lineup)["autoregressive"]


def test_smollm2_goes_on_with_a_fact(engine: Engine, tmp_path: Path) -> None:
    try:
        smollm2.find_gguf()
    except FileNotFoundError as absent:
        pytest.skip(str(absent))
    lineup = build(engine, "smollm2", Size(tokens=8, prompts=1), tmp_path)
    assert len(lineup.drafts) == 2
    assert all("Paris" in text for text, *_ in texts(lineup).values())


@pytest.mark.mlx
@pytest.mark.llama_cpp
def test_both_engines_get_the_same_tokens(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp", reason=REASONS["llama_cpp"])
    mlx_lm = pytest.importorskip("mlx_lm", reason=REASONS["mlx_lm"])
    tokenizer = mlx_lm.load(str(model_path("target")))[1]
    prompts = [
        [prompt.tokens for prompt in build(engine, "tiny", Size(), tmp_path / engine.name).prompts]
        for engine in ENGINES
    ]
    assert prompts == [[chat_tokens(tokenizer, text) for text in PROMPTS]] * len(ENGINES)


@pytest.mark.llama_cpp
def test_llama_cpp_has_a_baseline_without_what_only_a_draft_needs(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp", reason=REASONS["llama_cpp"])
    lineup = build(LLAMA_CPP, "tiny", Size(prompts=1), tmp_path)
    llamas = {mode.name: mode.generate.args[0] for mode in lineup.modes}  # type: ignore[attr-defined]
    assert {name: llama._logits_all for name, llama in llamas.items()} == {
        mode.name: mode is not lineup.baseline for mode in lineup.modes
    }
    assert llamas["autoregressive"].draft_model is None
