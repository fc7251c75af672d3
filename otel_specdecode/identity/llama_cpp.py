"""What llama-cpp-python tells of a loaded model."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from otel_specdecode.identity.gguf import Fingerprint, fingerprint, gguf_name

_ALL_LAYERS = 0x7FFFFFFF  # what Llama makes of n_gpu_layers=-1


@dataclass(frozen=True, slots=True)
class LlamaCppIdentity:
    """Facts of a loaded GGUF model; each is None where the engine does not tell.

    Attributes:
        name: The file's name without its suffix; never a path.
        architecture: `general.architecture`, such as `llama`.
        file_type: How the weights are quantised, by llama.h's name: `MOSTLY_Q4_K_M`, `MOSTLY_F16`, `ALL_F32`.
        n_ctx: Tokens of context there are; llama.cpp rounds up what was asked for.
        n_ctx_requested: Tokens of context that were asked for.
        n_batch: Most tokens of one `llama_decode`.
        n_ubatch: Most tokens computed at once.
        flash_attention: Whether flash attention is on; None where llama.cpp decides.
        type_k: Type of the cached keys, such as `f16`.
        type_v: Type of the cached values.
        n_gpu_layers: Layers asked for on the GPU, -1 for all.
        parameters: Number of weights.
        size_bytes: Bytes of all tensors.
        tokenizer_model: `tokenizer.ggml.model`, such as `gpt2`.
        tokenizer_pre: `tokenizer.ggml.pre`, the rules that split text before the tokenizer.
        vocabulary_size: Tokens there are.
        chat_template_sha256: Of the file's default chat template in UTF-8.
        chat_format: What `create_chat_completion` uses.
        fingerprint: Of the file or all its shards.
        engine_version: Version of llama-cpp-python.
    """

    name: str | None
    architecture: str | None
    file_type: str | None
    n_ctx: int | None
    n_ctx_requested: int | None
    n_batch: int | None
    n_ubatch: int | None
    flash_attention: bool | None
    type_k: str | None
    type_v: str | None
    n_gpu_layers: int | None
    parameters: int | None
    size_bytes: int | None
    tokenizer_model: str | None
    tokenizer_pre: str | None
    vocabulary_size: int | None
    chat_template_sha256: str | None
    chat_format: str | None
    fingerprint: Fingerprint | None
    engine_version: str | None


def describe(llama: Any) -> LlamaCppIdentity:
    """Describe a `llama_cpp.Llama`. Reads a few MB of the model's file, and raises nothing.

    A closed model still tells what Python remembers of it.
    """
    facts = {field: _told(read, llama) for field, read in _READERS.items()}
    return LlamaCppIdentity(**facts)


def _told(read: Callable[[Any], Any], llama: Any) -> Any:
    try:
        return read(llama)
    except Exception:
        return None


def _model(llama: Any) -> Any:
    """Return the engine's model. Asking a freed one anything would end the process."""
    if llama._model.model is None:
        raise LookupError("the model is closed")
    return llama._model


def _padded_context(llama: Any) -> int | None:
    return None if llama.ctx is None else int(llama.n_ctx())


def _constant(prefix: str, value: int) -> str | None:
    """Return the name of one of the engine's constants, without its prefix."""
    import llama_cpp

    names = (name for name, each in vars(llama_cpp).items() if name.startswith(prefix) and each == value)
    # A release that does not know the newest type yet has its number for COUNT.
    return next((name.removeprefix(prefix) for name in names if not name.endswith("_COUNT")), None)


def _cache_type(value: int) -> str | None:
    name = _constant("GGML_TYPE_", value)
    return name.lower() if name else None


def _flash_attention(llama: Any) -> bool | None:
    parameters = llama.context_params
    if hasattr(parameters, "flash_attn"):
        return bool(parameters.flash_attn)
    return {0: False, 1: True}.get(parameters.flash_attn_type)


def _gpu_layers(llama: Any) -> int:
    layers = int(llama.model_params.n_gpu_layers)
    return -1 if layers < 0 or layers == _ALL_LAYERS else layers


def _template_digest(llama: Any) -> str:
    return hashlib.sha256(llama.metadata["tokenizer.chat_template"].encode()).hexdigest()


def _engine_version(_: Any) -> str:
    import llama_cpp

    return str(llama_cpp.__version__)


_READERS: dict[str, Callable[[Any], Any]] = {
    "name": lambda llama: gguf_name(llama.model_path),
    "architecture": lambda llama: llama.metadata["general.architecture"],
    # llama_ftype_name() would give another text, and only in the newest releases.
    "file_type": lambda llama: _constant("LLAMA_FTYPE_", int(llama.metadata["general.file_type"])),
    "n_ctx": _padded_context,
    "n_ctx_requested": lambda llama: int(llama.context_params.n_ctx),
    "n_batch": lambda llama: int(llama.n_batch),
    "n_ubatch": lambda llama: int(llama.context_params.n_ubatch),
    "flash_attention": _flash_attention,
    "type_k": lambda llama: _cache_type(llama.context_params.type_k),
    "type_v": lambda llama: _cache_type(llama.context_params.type_v),
    "n_gpu_layers": _gpu_layers,
    "parameters": lambda llama: int(_model(llama).n_params()),
    "size_bytes": lambda llama: int(_model(llama).size()),
    "tokenizer_model": lambda llama: llama.metadata["tokenizer.ggml.model"],
    "tokenizer_pre": lambda llama: llama.metadata["tokenizer.ggml.pre"],
    "vocabulary_size": lambda llama: int(_model(llama).n_vocab()),
    "chat_template_sha256": _template_digest,
    "chat_format": lambda llama: llama.chat_format,
    "fingerprint": lambda llama: fingerprint(llama.model_path),
    "engine_version": _engine_version,
}
