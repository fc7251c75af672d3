"""What llama-cpp-python tells of a loaded model."""

from __future__ import annotations

import hashlib
import os.path
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from otel_specdecode.identity.gguf import file_type_name, fingerprint, gguf_name, read_gguf
from otel_specdecode.identity.models import LoadedModel, ModelIdentity, Setting, TokenizerIdentity, told
from otel_specdecode.identity.names import short_text

_ALL_LAYERS = 0x7FFFFFFF  # what Llama makes of n_gpu_layers=-1

# ggml.h's names of the types that llama.cpp keeps keys and values in, without GGML_TYPE_.
_CACHE_TYPES = {0: "f32", 1: "f16", 2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0", 20: "iq4_nl", 30: "bf16"}


def loaded_model(llama: Any) -> LoadedModel:
    """Return what a `llama_cpp.Llama` is.

    Takes about 0.1 ms on the calling thread; raises nothing. What is not told stays unknown: a closed model tells what
    Python remembers of it. Fingerprint and vocabulary come from the file, when they are asked for and on that thread;
    the Llama may be closed by then.
    """
    known = ModelIdentity(
        name=told(lambda: gguf_name(llama.model_path)),
        architecture=told(lambda: short_text(llama.metadata["general.architecture"])),
        quantization=told(lambda: file_type_name(int(llama.metadata["general.file_type"]))),
        parameters=told(lambda: int(_model(llama).n_params())),
        size_bytes=told(lambda: int(_model(llama).size())),
        tokenizer=TokenizerIdentity(
            kind=told(lambda: short_text(llama.metadata["tokenizer.ggml.model"])),
            pre=told(lambda: short_text(llama.metadata["tokenizer.ggml.pre"])),
            vocabulary_size=told(lambda: int(_model(llama).n_vocab())),
        ),
        chat_template_sha256=told(lambda: _template_digest(llama)),
        settings=_settings(llama),
    )
    path, adapter = (told(partial(_path, llama, name)) for name in ("model_path", "lora_path"))
    return LoadedModel(known, partial(_from_files, path, adapter))


def _path(llama: Any, name: str) -> str | None:
    """Return where a file lies, also for later, when the program may stand in another folder."""
    path = getattr(llama, name, None)
    return os.path.abspath(os.fspath(path)) if path else None


def _from_files(path: str | None, adapter: str | None, known: ModelIdentity) -> ModelIdentity:
    """Add what only the files tell; raises what read_gguf() does.

    A model without its adapter's fingerprint would pass for the one without an adapter.
    """
    if path is None:
        return known
    file = read_gguf(path)
    if known.parameters and file.parameters and known.parameters != file.parameters:
        raise ValueError("it is not the file that was loaded")
    return replace(
        known,
        fingerprint=file.fingerprint,
        content_sha256=file.content_sha256,
        adapter=None if adapter is None else fingerprint(adapter),
        architecture=known.architecture or file.architecture,
        quantization=known.quantization or file.file_type,
        parameters=known.parameters or file.parameters,
        size_bytes=known.size_bytes or file.size_bytes,
        tokenizer=replace(
            known.tokenizer,
            kind=known.tokenizer.kind or file.tokenizer.kind,
            pre=known.tokenizer.pre or file.tokenizer.pre,
            vocabulary_size=known.tokenizer.vocabulary_size or file.tokenizer.vocabulary_size,
            vocabulary_sha256=file.tokenizer.vocabulary_sha256,
        ),
        chat_template_sha256=known.chat_template_sha256 or file.chat_template_sha256,
    )


def _model(llama: Any) -> Any:
    """Return the engine's model. Asking a freed one anything would end the process."""
    if llama._model.model is None:
        raise LookupError("the model is closed")
    return llama._model


def _template_digest(llama: Any) -> str:
    return hashlib.sha256(llama.metadata["tokenizer.chat_template"].encode()).hexdigest()


def _settings(llama: Any) -> tuple[Setting, ...]:
    found = ((name, told(partial(read, llama))) for name, read in _SETTINGS.items())
    return tuple(sorted((name, value) for name, value in found if value is not None))


def _padded_context(llama: Any) -> int | None:
    """Return the context that there is: llama.cpp rounds up what was asked for."""
    return None if llama.ctx is None else int(llama.n_ctx())


def _flash_attention(llama: Any) -> bool | str | None:
    parameters = llama.context_params
    if hasattr(parameters, "flash_attn"):
        return bool(parameters.flash_attn)
    choices: dict[int, bool | str] = {-1: "auto", 0: False, 1: True}
    return choices.get(parameters.flash_attn_type)


def _gpu_layers(llama: Any) -> int:
    layers = int(llama.model_params.n_gpu_layers)
    return -1 if layers < 0 or layers == _ALL_LAYERS else layers


def _keeps_all_logits(llama: Any) -> bool:
    kept = getattr(llama, "_logits_all", None)
    return bool(llama.context_params.logits_all if kept is None else kept)  # up to 0.3.7


def _adapter_scale(llama: Any) -> float | None:
    return float(llama.lora_scale) if llama.lora_path else None


_SETTINGS: dict[str, Callable[[Any], str | int | float | bool | None]] = {
    "chat_format": lambda llama: short_text(llama.chat_format),
    "flash_attention": _flash_attention,
    "logits_all": _keeps_all_logits,
    "lora_scale": _adapter_scale,
    "n_batch": lambda llama: int(llama.n_batch),
    "n_ctx": _padded_context,
    "n_gpu_layers": _gpu_layers,
    "n_ubatch": lambda llama: int(llama.context_params.n_ubatch),
    "type_k": lambda llama: _CACHE_TYPES.get(llama.context_params.type_k),
    "type_v": lambda llama: _CACHE_TYPES.get(llama.context_params.type_v),
}
