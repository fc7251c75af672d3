"""How the weights are made: a fixed corpus, a right gradient, a loss that falls."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy", reason="needs the [mlx] extra")
pytest.importorskip("tokenizers", reason="needs the [mlx] extra")
pytest.importorskip("safetensors", reason="needs the [mlx] extra")

import numpy as np

from otel_specdecode.tiny_pair import chat_tokens, model_path
from otel_specdecode.tiny_pair.folders import llama_config, read_config, read_weights
from otel_specdecode.tiny_pair.training.__main__ import main
from otel_specdecode.tiny_pair.training.corpus import fables
from otel_specdecode.tiny_pair.training.loop import Chats, evaluate, loss, rate_at, train
from otel_specdecode.tiny_pair.training.model import NumpyLlama
from otel_specdecode.tiny_pair.training.tokenizer import render, train_tokenizer

SMALL = llama_config(vocabulary=13, width=16, layers=2, heads=4, kv_heads=2, hidden=10)


def test_the_corpus_is_the_same_on_every_machine() -> None:
    """The first chat of seed 0 is known by heart."""
    assert fables(count=1) == [
        ('Repeat this: "That is my bag of seeds," said Rex.', '"That is my bag of seeds," said Rex.')
    ]


def test_the_shipped_tokenizer_comes_from_this_corpus() -> None:
    """Training a tokenizer again gives the shipped vocabulary."""
    made = json.loads(train_tokenizer([render(chat) for chat in fables()], 1024).to_str())
    shipped = json.loads((model_path("target") / "tokenizer.json").read_text(encoding="utf-8"))
    assert made["model"]["vocab"] == shipped["model"]["vocab"]


@pytest.mark.parametrize("distilled", [False, True], ids=["text", "teacher"])
def test_the_gradient_is_that_of_finite_differences(distilled: bool) -> None:
    """In float64, for several entries of every parameter, backward agrees with (loss(+h) - loss(-h)) / 2h."""
    random = np.random.default_rng(0)
    model = NumpyLlama(SMALL, dtype=np.float64)
    model.flat += 0.3 * random.standard_normal(model.flat.shape)
    inputs, wanted = random.integers(0, 13, (2, 3, 7))
    teacher = random.standard_normal((21, 13)) if distilled else None
    _, derivative = loss(model.forward(inputs), wanted, teacher)
    model.backward(derivative)
    found = {name: gradient.copy() for name, gradient in model.gradients.items()}

    def value() -> float:
        return loss(model.forward(inputs, keep=False), wanted, teacher)[0]

    step = 1e-5
    for name, parameter in model.parameters.items():
        for _ in range(4):
            place = tuple(random.integers(parameter.shape).tolist())
            kept = parameter[place]
            parameter[place] = kept + step
            above = value()
            parameter[place] = kept - step
            below = value()
            parameter[place] = kept
            assert found[name][place] == pytest.approx((above - below) / (2 * step), rel=1e-5, abs=1e-8), name


def test_a_few_steps_lower_the_loss() -> None:
    """Thirty small batches of fables take a fresh model well below where it began."""
    texts = [render(chat) for chat in fables(count=200)]
    tokenizer = train_tokenizer(texts, 300)
    config = llama_config(vocabulary=tokenizer.get_vocab_size(), width=32, layers=1, heads=1, kv_heads=1, hidden=48)
    model = NumpyLlama(config)
    losses: list[float] = []
    chats = Chats.of([encoding.ids for encoding in tokenizer.encode_batch(texts)])
    train(model, chats, steps=30, rate=1e-2, batch=4, length=48, progress=lambda step, value: losses.append(value))
    assert len(losses) == 30
    assert sum(losses[-5:]) / 5 < losses[0] - 1.0


def test_the_rate_warms_up_and_cools_down() -> None:
    """It starts at a thirtieth of the peak, nears it after the warm-up, and ends at a twentieth."""
    assert rate_at(0, 900, 1.0) == pytest.approx(1 / 30)
    assert rate_at(30, 900, 1.0) > 0.99
    assert rate_at(899, 900, 1.0) == pytest.approx(0.05, abs=1e-3)


def test_a_window_begins_with_a_chat() -> None:
    """Inputs start where a chat starts, and the wanted token is the next one."""
    chats = Chats.of([[1, 2, 3], [4, 5], [6, 7, 8, 9, 10, 11, 12, 13]])
    inputs, wanted = chats.sample(np.random.default_rng(0), 20, 4)
    assert set(inputs[:, 0]) == {1, 4, 6}
    assert (inputs[:, 1:] == wanted[:, :-1]).all()


def test_backward_without_forward_is_refused() -> None:
    """There is nothing to go back through."""
    with pytest.raises(RuntimeError, match="keep=True"):
        NumpyLlama(SMALL).backward(np.zeros((1, 13), np.float32))


def test_numpy_and_mlx_are_the_same_model(target: Any) -> None:
    """The shipped target has equal logits in the training code and in the engine, up to float16 rounding."""
    mx = pytest.importorskip("mlx.core", reason="needs the [mlx] extra")
    model, tokenizer = target
    ids = chat_tokens(tokenizer, "What is a crab?")
    folder = model_path("target")
    ours = NumpyLlama(read_config(folder), weights=read_weights(folder)).forward(np.array([ids]), keep=False)
    theirs = np.array(model(mx.array([ids])).astype(mx.float32))[0]
    assert np.abs(ours - theirs).max() < 0.2


def test_the_shipped_target_scores_as_recorded() -> None:
    """The share of right next tokens on held-out chats is that of its training record."""
    folder = model_path("target")
    record = json.loads((folder / "train.json").read_text(encoding="utf-8"))
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = [encoding.ids for encoding in tokenizer.encode_batch([render(chat) for chat in fables()[:240]])]
    model = NumpyLlama(read_config(folder), weights=read_weights(folder))
    value, top1 = evaluate(model, Chats.of(ids))
    assert value == pytest.approx(record["val_loss"], abs=0.005)
    assert top1 == pytest.approx(record["val_top1"], abs=0.005)


def test_the_command_line_writes_a_folder_that_loads(tmp_path: Path, load: Callable[..., Any]) -> None:
    """Two steps are enough to see that what comes out is a model of its preset."""
    main([str(tmp_path / "d"), "--preset", "draft", "--steps", "2", "--chats", "200", "--length", "32", "--batch", "2"])
    model, _ = load(tmp_path / "d")
    assert len(model.layers) == 1
    assert json.loads((tmp_path / "d" / "train.json").read_text(encoding="utf-8"))["teacher"] is None


def test_a_draft_learns_from_a_teacher(tmp_path: Path) -> None:
    """With a teacher and its tokenizer the record names the teacher's folder and nothing more."""
    teacher = str(model_path("target"))
    arguments = ["--preset", "draft", "--steps", "1", "--chats", "200", "--length", "32", "--batch", "2"]
    main([str(tmp_path), "--tokenizer", teacher, "--teacher", teacher, *arguments])
    assert json.loads((tmp_path / "train.json").read_text(encoding="utf-8"))["teacher"] == "target"
