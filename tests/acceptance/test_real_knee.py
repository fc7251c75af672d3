"""The knee of real sweeps: with drafts dialled from good to bad, where speculation pays and where it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("msgspec", reason="needs the [acceptance] extra")
pytest.importorskip("scipy", reason="needs the [acceptance] extra")
pytest.importorskip("jsonschema", reason="needs the [acceptance] extra")
pytest.importorskip("safetensors", reason="dials the weights of the tiny pair")

from otel_specdecode.acceptance.engines import engine_named
from otel_specdecode.acceptance.engines.interface import Models
from otel_specdecode.acceptance.knee import Knee, knee
from otel_specdecode.acceptance.prompts import Prompt
from otel_specdecode.acceptance.records import Arm, Run
from otel_specdecode.acceptance.running import Setting, sweep
from otel_specdecode.acceptance.storage import read_run
from otel_specdecode.acceptance.sweep import Levers
from otel_specdecode.tiny_pair import PROMPTS, model_path
from otel_specdecode.tiny_pair.dial import padded, with_noise

pytestmark = pytest.mark.slow

LEVERS = Levers((2, 4), repeats=2)
ASKED = tuple(
    Prompt(f"p{number}", messages=({"role": "user", "content": text},), max_tokens=32)
    for number, text in enumerate(PROMPTS[:6])
)


def swept(engine: str, target: str, draft: str, folder: Path, **options: int) -> tuple[Run, Knee]:
    setting = Setting(engine_named(engine), Models(target, {"": draft}, options), ASKED, folder, "dialled")
    assert sweep(setting, LEVERS)
    run = read_run(folder)
    return run, knee(run)


def tokens_a_microsecond(run: Run, arm: Arm) -> float:
    """By brute force: all tokens of all recorded passes over all their time."""
    passes = [each.passes for each in run.of(arm)]
    return sum(sum(each.tokens) for each in passes) / sum(sum(each.microseconds) for each in passes)


@pytest.mark.llama_cpp
def test_with_dialled_drafts_as_slow_as_the_target_it_says_to_stay(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp", reason="needs the [llama-cpp] extra")
    gguf = pytest.importorskip("otel_specdecode.tiny_pair.gguf", reason="needs the [demo] extra")
    rates = []
    for sigma in (0.1, 0.3, 0.6):
        noisy = with_noise(model_path("target"), tmp_path / f"noisy-{sigma}", sigma)
        draft = gguf.convert(noisy, tmp_path / f"noisy-{sigma}.gguf", "f16")
        run, found = swept("llama_cpp", "tiny", str(draft), tmp_path / f"run-{sigma}", n_threads=1, n_ctx=512)

        assert found.best is not None
        by_hand = max((arm for arm in run.head.arms if arm.speculative), key=lambda arm: tokens_a_microsecond(run, arm))
        assert tokens_a_microsecond(run, found.best.arm) >= 0.95 * tokens_a_microsecond(run, by_hand)
        assert found.stay
        assert found.why.startswith("Stay on autoregressive decoding: the best arm, ")
        requests = [each for arm in run.head.arms if arm.speculative for each in run.of(arm)]
        rates.append(sum(each.accepted for each in requests) / sum(each.compared for each in requests))
    assert rates == sorted(rates, reverse=True)


@pytest.mark.mlx
def test_where_the_target_is_slow_and_the_draft_good_it_says_to_take_it(tmp_path: Path) -> None:
    pytest.importorskip("mlx_lm", reason="needs the [mlx] extra")
    target = padded(model_path("target"), tmp_path / "target-padded", 28)
    run, found = swept("mlx", str(target), "tiny:draft-kd", tmp_path / "run")

    assert found.best is not None
    by_hand = max((arm for arm in run.head.arms if arm.speculative), key=lambda arm: tokens_a_microsecond(run, arm))
    assert tokens_a_microsecond(run, found.best.arm) >= 0.95 * tokens_a_microsecond(run, by_hand)
    assert not found.stay, found.why
    assert found.why.startswith(f"Take {found.best.arm.name}: ")
    assert found.best.speed_up.value > 1.2
