"""A tiny-pair folder as a GGUF file for llama.cpp.

Two things differ between the formats. llama.cpp's rotary embedding pairs neighbouring rows of the q and k matrices
where the Hugging Face layout pairs the two halves of a head, so those rows are permuted (as `LlamaModel.permute` in
llama.cpp's `convert_hf_to_gguf.py`). And the tokenizer becomes lists: byte-level BPE is model `gpt2` with
pre-tokenizer `gpt-2`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
from gguf import GGUFWriter, LlamaFileType, TokenType
from numpy.typing import NDArray

from .folders import Config, read_config, read_weights

_FILE_TYPES = {"f32": LlamaFileType.ALL_F32, "f16": LlamaFileType.MOSTLY_F16}

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
    writer = GGUFWriter(out, "llama")
    _add_model(writer, source.name, config, kind)
    _add_tokenizer(writer, source)
    for name, array in read_weights(source).items():
        writer.add_tensor(_tensor_name(name), _tensor(name, array, config, kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


def _add_model(writer: GGUFWriter, name: str, config: Config, kind: str) -> None:
    writer.add_name(name)
    writer.add_file_type(_FILE_TYPES[kind])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_vocab_size(config["vocab_size"])


def _add_tokenizer(writer: GGUFWriter, source: Path) -> None:
    tokenizer = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    settings = json.loads((source / "tokenizer_config.json").read_text(encoding="utf-8"))
    ids: dict[str, int] = tokenizer["model"]["vocab"]
    tokens = sorted(ids, key=lambda token: ids[token])
    control = {token["content"] for token in tokenizer["added_tokens"]}
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL if token in control else TokenType.NORMAL for token in tokens])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(ids[settings["bos_token"]])
    writer.add_eos_token_id(ids[settings["eos_token"]])
    writer.add_pad_token_id(ids[settings["pad_token"]])
    writer.add_add_bos_token(False)
    writer.add_chat_template(settings["chat_template"])


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
