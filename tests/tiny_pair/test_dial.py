"""Derived pairs: noise lowers the accept rate, depth cuts blocks, padding changes nothing but the work."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy", reason="needs the [mlx] extra")
pytest.importorskip("safetensors", reason="needs the [mlx] extra")

from otel_specdecode.tiny_pair import PROMPTS, chat_tokens, model_path
from otel_specdecode.tiny_pair.dial import PADDED_BLOCKS_KEY, padded, with_depth, with_noise
from otel_specdecode.tiny_pair.folders import read_config, read_weights


def test_more_noise_means_a_lower_accept_rate(
    tmp_path: Path, target: Any, load: Callable[..., Any], accept_rate: Callable[..., float]
) -> None:
    """Sigma .02, .3 and .6 give drafts that are nearly always, mostly and hardly ever right."""
    model, tokenizer = target
    prompts = [chat_tokens(tokenizer, prompt) for prompt in PROMPTS[4:7]]
    rates = []
    for sigma in (0.02, 0.3, 0.6):
        draft, _ = load(with_noise(model_path("target"), tmp_path / str(sigma), sigma))
        rates.append(accept_rate(model, draft, prompts, k=3, n=30))
    assert rates[0] > 0.9
    assert 0.35 < rates[1] < 0.95
    assert rates[2] < 0.3


def test_the_same_seed_gives_the_same_noise(tmp_path: Path) -> None:
    """A derived draft can be named by source, sigma and seed."""
    made = [with_noise(model_path("draft"), tmp_path / str(turn), 0.1, seed=5) for turn in range(2)]
    first, second = (read_weights(folder) for folder in made)
    assert all((first[name] == second[name]).all() for name in first)


def test_depth_keeps_the_first_blocks(tmp_path: Path, load: Callable[..., Any]) -> None:
    """Two of the target's four blocks make a draft with its vocabulary."""
    model, _ = load(with_depth(model_path("target"), tmp_path, 2))
    assert len(model.layers) == 2


@pytest.mark.parametrize("layers", [0, 5])
def test_depth_beyond_the_source_is_refused(tmp_path: Path, layers: int) -> None:
    """The target has four blocks."""
    with pytest.raises(ValueError, match=r"1\.\.4"):
        with_depth(model_path("target"), tmp_path, layers)


def test_a_padded_target_says_the_same_and_says_that_it_is_padded(
    tmp_path: Path, target: Any, load: Callable[..., Any], autoregressive: Callable[..., list[int]]
) -> None:
    """Eight blocks more, not one token other, and the number in `config.json`."""
    model, tokenizer = target
    slower, _ = load(padded(model_path("target"), tmp_path, 8))
    assert len(slower.layers) == 12
    assert json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))[PADDED_BLOCKS_KEY] == 8
    for prompt in PROMPTS[5:8]:
        ids = chat_tokens(tokenizer, prompt)
        assert autoregressive(slower, ids, 30) == autoregressive(model, ids, 30)


def test_padding_twice_adds_up(tmp_path: Path) -> None:
    """The number in `config.json` counts all no-op blocks."""
    once = padded(model_path("draft"), tmp_path / "once", 2)
    assert read_config(padded(once, tmp_path / "twice", 3))[PADDED_BLOCKS_KEY] == 5
