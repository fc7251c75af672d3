"""GGUF files of the tiny pair: well formed, and the same model on llama.cpp."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy", reason="needs the [mlx] extra")
pytest.importorskip("safetensors", reason="needs the [mlx] extra")
pytest.importorskip("gguf", reason="needs the [demo] extra")

from otel_specdecode.tiny_pair import PROMPTS, chat_tokens, model_path
from otel_specdecode.tiny_pair.gguf import convert

EOS = 2


def llama(path: Path) -> Any:
    """The file on one thread of llama.cpp."""
    llama_cpp = pytest.importorskip("llama_cpp", reason="needs the [llama-cpp] extra")
    return llama_cpp.Llama(str(path), n_ctx=512, n_threads=1, n_threads_batch=1, verbose=False)


def greedy(model: Any, prompt: list[int], n: int) -> list[int]:
    """`n` tokens from a fresh state."""
    model.reset()
    return [token for token, _ in zip(model.generate(prompt, temp=0.0, repeat_penalty=1.0), range(n), strict=False)]


def test_the_header_counts_tensors_and_settings(tmp_path: Path) -> None:
    """A file of version 3 with nine tensors a block, the embedding, and the final norm."""
    data = convert(model_path("target"), tmp_path / "target.gguf").read_bytes()
    magic, version, tensors, settings = struct.unpack_from("<4sIQQ", data)
    assert (magic, version, tensors) == (b"GGUF", 3, 4 * 9 + 2)
    assert settings > 20


def test_mlx_reads_back_the_embedding(tmp_path: Path) -> None:
    """An independent reader finds names, shapes and values where they belong."""
    mx = pytest.importorskip("mlx.core", reason="needs the [mlx] extra")
    arrays = mx.load(str(convert(model_path("draft"), tmp_path / "draft.gguf")))
    original = mx.load(str(model_path("draft") / "model.safetensors"))
    assert len(arrays) == len(original)
    assert mx.array_equal(arrays["token_embd.weight"], original["model.embed_tokens.weight"])


def test_llama_cpp_says_what_mlx_says(
    tmp_path: Path, load: Callable[..., Any], autoregressive: Callable[..., list[int]]
) -> None:
    """In f32 both engines give the same prompt ids and the same greedy tokens."""
    engine = llama(convert(model_path("target"), tmp_path / "target.gguf", "f32"))
    model, tokenizer = load(model_path("target"))
    model.set_dtype(pytest.importorskip("mlx.core").float32)
    for prompt in PROMPTS[:6]:
        text = f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
        ids = engine.tokenize(text.encode(), add_bos=False, special=True)
        assert ids == chat_tokens(tokenizer, prompt)
        tokens, reference = greedy(engine, ids, 40), autoregressive(model, ids, 40)
        end = reference.index(EOS) + 1 if EOS in reference else len(reference)
        assert tokens[:end] == reference[:end]


def test_the_cycle_pair_walks_its_cycle_on_llama_cpp(tmp_path: Path) -> None:
    """Predictions hold on the second engine: the untied head is carried over."""
    pytest.importorskip("tokenizers", reason="needs the [mlx] extra")
    from otel_specdecode.tiny_pair.cycle import build

    pair = build(tmp_path, eos_after=9)
    assert greedy(llama(convert(pair.target, tmp_path / "t.gguf", "f32")), [pair.chat_end], 40) == pair.tokens(
        pair.chat_end, 40
    )
    assert greedy(llama(convert(pair.draft, tmp_path / "d.gguf", "f32")), [pair.chat_end], 40) == pair.drafted(
        pair.chat_end, 40
    )
