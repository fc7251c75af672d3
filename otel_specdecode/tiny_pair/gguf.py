"""A tiny-pair folder as a GGUF file for llama.cpp, written without the `gguf` package or an engine.

Two things differ between the formats. llama.cpp's rotary embedding pairs neighbouring rows of the q and k matrices
where the Hugging Face layout pairs the two halves of a head, so those rows are permuted (as `LlamaModel.permute` in
llama.cpp's `convert_hf_to_gguf.py`). And the tokenizer becomes lists: byte-level BPE is model `gpt2` with
pre-tokenizer `gpt-2`.

The layout of the file is GGUF version 3, specified in `docs/gguf.md` of the ggml repository.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from .folders import Config, read_config, read_weights

_VERSION = 3
_ALIGNMENT = 32
_UINT32, _INT32, _FLOAT32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9
_TENSOR_TYPES = {"float32": 0, "float16": 1}
_FILE_TYPES = {"f32": 0, "f16": 1}
_NORMAL, _CONTROL = 1, 3

_TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
_BLOCK = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def convert(source: Path | str, out: Path | str, kind: Literal["f16", "f32"] = "f16") -> Path:
    """Write the llama folder `source` as the file `out` and return its path.

    Norms stay f32, as in llama.cpp's own converter. With `f32` the greedy text equals that of the folder in f32 on MLX.
    """
    source, out = Path(source), Path(out)
    config = read_config(source)
    tensors = {_tensor_name(name): _tensor(name, array, config, kind) for name, array in read_weights(source).items()}
    settings = [*_model_settings(source.name, config, kind), *_tokenizer_settings(source)]
    with out.open("wb") as file:
        file.write(struct.pack("<4sIQQ", b"GGUF", _VERSION, len(tensors), len(settings)))
        for key, kind_id, value in settings:
            file.write(_string(key) + struct.pack("<I", kind_id) + _value(kind_id, value))
        _write_tensors(file, tensors)
    return out


Setting = tuple[str, int, Any]
"""Key, GGUF value type, value. An array's value is (element type, elements)."""


def _model_settings(name: str, config: Config, kind: str) -> list[Setting]:
    return [
        ("general.architecture", _STRING, "llama"),
        ("general.name", _STRING, name),
        ("general.file_type", _UINT32, _FILE_TYPES[kind]),
        ("llama.context_length", _UINT32, config["max_position_embeddings"]),
        ("llama.embedding_length", _UINT32, config["hidden_size"]),
        ("llama.block_count", _UINT32, config["num_hidden_layers"]),
        ("llama.feed_forward_length", _UINT32, config["intermediate_size"]),
        ("llama.attention.head_count", _UINT32, config["num_attention_heads"]),
        ("llama.attention.head_count_kv", _UINT32, config["num_key_value_heads"]),
        ("llama.attention.layer_norm_rms_epsilon", _FLOAT32, config["rms_norm_eps"]),
        ("llama.rope.freq_base", _FLOAT32, config["rope_theta"]),
        ("llama.rope.dimension_count", _UINT32, config["head_dim"]),
        ("llama.vocab_size", _UINT32, config["vocab_size"]),
    ]


def _tokenizer_settings(source: Path) -> list[Setting]:
    tokenizer = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    settings = json.loads((source / "tokenizer_config.json").read_text(encoding="utf-8"))
    ids: dict[str, int] = tokenizer["model"]["vocab"]
    tokens = sorted(ids, key=lambda token: ids[token])
    control = {token["content"] for token in tokenizer["added_tokens"]}
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["model"]["merges"]]
    return [
        ("tokenizer.ggml.model", _STRING, "gpt2"),
        ("tokenizer.ggml.pre", _STRING, "gpt-2"),
        ("tokenizer.ggml.tokens", _ARRAY, (_STRING, tokens)),
        (
            "tokenizer.ggml.token_type",
            _ARRAY,
            (_INT32, [_CONTROL if token in control else _NORMAL for token in tokens]),
        ),
        ("tokenizer.ggml.merges", _ARRAY, (_STRING, merges)),
        ("tokenizer.ggml.bos_token_id", _UINT32, ids[settings["bos_token"]]),
        ("tokenizer.ggml.eos_token_id", _UINT32, ids[settings["eos_token"]]),
        ("tokenizer.ggml.padding_token_id", _UINT32, ids[settings["pad_token"]]),
        ("tokenizer.ggml.add_bos_token", _BOOL, False),
        ("tokenizer.chat_template", _STRING, settings["chat_template"]),
    ]


def _tensor_name(name: str) -> str:
    stem, suffix = name.rsplit(".", 1)
    if stem in _TOP:
        return f"{_TOP[stem]}.{suffix}"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{_BLOCK[part]}.{suffix}"


def _tensor(name: str, array: NDArray[Any], config: Config, kind: str) -> NDArray[Any]:
    if "q_proj" in name:
        array = _interleaved(array, config["num_attention_heads"])
    elif "k_proj" in name:
        array = _interleaved(array, config["num_key_value_heads"])
    return np.ascontiguousarray(array, dtype=np.float16 if kind == "f16" and array.ndim == 2 else np.float32)


def _interleaved(matrix: NDArray[Any], heads: int) -> NDArray[Any]:
    """Rows of each head from (first half, second half) to neighbouring pairs; shape (heads * head size, width)."""
    half = matrix.shape[0] // heads // 2
    pairs: NDArray[Any] = matrix.reshape(heads, 2, half, matrix.shape[1]).swapaxes(1, 2)
    return pairs.reshape(matrix.shape)


def _write_tensors(file: BinaryIO, tensors: dict[str, NDArray[Any]]) -> None:
    """The table of tensors (sizes innermost first, offsets from the start of the data), then the aligned data."""
    offset = 0
    for name, array in tensors.items():
        sizes = array.shape[::-1]
        file.write(_string(name) + struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes))
        file.write(struct.pack("<IQ", _TENSOR_TYPES[array.dtype.name], offset))
        offset += array.nbytes + -array.nbytes % _ALIGNMENT
    file.write(bytes(-file.tell() % _ALIGNMENT))
    for array in tensors.values():
        file.write(array.tobytes() + bytes(-array.nbytes % _ALIGNMENT))


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(kind: int, value: Any) -> bytes:
    if kind == _STRING:
        return _string(value)
    if kind == _ARRAY:
        element, items = value
        return struct.pack("<IQ", element, len(items)) + b"".join(_value(element, item) for item in items)
    return struct.pack({_UINT32: "<I", _INT32: "<i", _FLOAT32: "<f", _BOOL: "<?"}[kind], value)
