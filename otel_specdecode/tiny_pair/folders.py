"""Model folders in the Hugging Face layout that mlx-lm loads: configuration, tokenizer, weights by name.

Everything here is the llama architecture with full names (`model.layers.0.self_attn.q_proj.weight`), matrices as
(rows out, columns in), and a ChatML template over three control tokens.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Weights = dict[str, NDArray[Any]]
"""Arrays by their Hugging Face names."""

Config = dict[str, Any]
"""The content of `config.json`."""

CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
"""Ids 0, 1 and 2: beginning and padding, start of a turn, end of a turn."""

END_OF_TURN = CONTROL_TOKENS.index("<|im_end|>")
"""The EOS token's id."""

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def llama_config(
    *,
    vocabulary: int,
    width: int,
    layers: int,
    heads: int,
    kv_heads: int,
    hidden: int,
    context: int = 1024,
    tied: bool = True,
) -> Config:
    """`config.json` of a llama model: `width` is the embedding size, `hidden` the MLP's, `context` in tokens."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": width,
        "num_hidden_layers": layers,
        "intermediate_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": width // heads,
        "rms_norm_eps": 1e-5,
        "vocab_size": vocabulary,
        "max_position_embeddings": context,
        "rope_theta": 10000.0,
        "tie_word_embeddings": tied,
        "attention_bias": False,
        "mlp_bias": False,
        "hidden_act": "silu",
        "bos_token_id": 0,
        "eos_token_id": END_OF_TURN,
        "pad_token_id": 0,
    }


def parameter_shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Name and shape of every parameter but an untied head, in the order of the forward pass.

    q, k, v follow each other, and so do gate and up: a flat store in this order has them as one fused matrix.
    """
    width, hidden, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    query, key = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config["vocab_size"], width)}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        shapes[prefix + "self_attn.q_proj.weight"] = (query, width)
        shapes[prefix + "self_attn.k_proj.weight"] = (key, width)
        shapes[prefix + "self_attn.v_proj.weight"] = (key, width)
        shapes[prefix + "self_attn.o_proj.weight"] = (width, query)
        shapes[prefix + "mlp.gate_proj.weight"] = (hidden, width)
        shapes[prefix + "mlp.up_proj.weight"] = (hidden, width)
        shapes[prefix + "mlp.down_proj.weight"] = (width, hidden)
        shapes[prefix + "input_layernorm.weight"] = (width,)
        shapes[prefix + "post_attention_layernorm.weight"] = (width,)
    shapes["model.norm.weight"] = (width,)
    return shapes


def read_config(folder: Path) -> Config:
    """The folder's `config.json`."""
    config: Config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return config


def read_weights(folder: Path) -> Weights:
    """The folder's `model.safetensors`, in the type it is stored in."""
    return dict(load_file(folder / "model.safetensors"))


def write_json(path: Path, content: dict[str, Any]) -> None:
    """One JSON file, indented, with a final newline."""
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def write_model(folder: Path, config: Config, weights: Weights, *, dtype: str | None = None) -> None:
    """`config.json` and `model.safetensors`; with `dtype` every array is cast to it, else each keeps its own."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {name: np.ascontiguousarray(array, dtype=dtype) for name, array in weights.items()}
    save_file(arrays, folder / "model.safetensors", metadata={"format": "pt"})
    write_json(folder / "config.json", {**config, "torch_dtype": dtype} if dtype else config)


def write_tokenizer(folder: Path, tokenizer: Tokenizer, *, context: int) -> None:
    """`tokenizer.json`, its settings with the chat template, and `generation_config.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(folder / "generation_config.json", {"bos_token_id": 0, "eos_token_id": END_OF_TURN, "pad_token_id": 0})
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": context,
            "bos_token": CONTROL_TOKENS[0],
            "eos_token": CONTROL_TOKENS[END_OF_TURN],
            "pad_token": CONTROL_TOKENS[0],
            "add_bos_token": False,
            "clean_up_tokenization_spaces": False,
            "chat_template": CHAT_TEMPLATE,
        },
    )
