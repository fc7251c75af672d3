"""The few low-level functions of llama-cpp-python that are asked, under the names its versions gave them."""

from __future__ import annotations

from typing import Any

from otel_specdecode.identity.gguf_header import tells_of_state

MOST_VOCABULARY_DIFFERENCE = 128
"""Ids, unused ones at the end, by which two models of a family may differ for llama.cpp's own speculative decoding
(common/speculative.cpp)."""


def synchronize(llama: Any) -> None:
    """Wait until the work handed to the device is done; the next sampling would."""
    import llama_cpp

    llama_cpp.llama_synchronize(llama.ctx)


def ends_generation(llama: Any, token: int) -> bool:
    """Return whether a token ends a generation (EOS, end of turn and the like)."""
    import llama_cpp

    if llama._model.model is None:  # closed meanwhile
        return False
    if hasattr(llama_cpp, "llama_vocab_is_eog"):
        return bool(llama_cpp.llama_vocab_is_eog(llama._model.vocab, token))
    return bool(llama_cpp.llama_token_is_eog(llama._model.model, token))


def keeps_all_logits(llama: Any) -> bool:
    """Return whether a Llama keeps the logits of every position of a pass, not of the last one alone."""
    kept = getattr(llama, "_logits_all", None)
    return bool(llama.context_params.logits_all if kept is None else kept)  # up to 0.3.7


def keeps_state(llama: Any) -> bool:
    """Return whether a model keeps a recurrent state, in all or some layers, which cannot be rewound token by token."""
    import llama_cpp

    model = llama._model.model
    if llama_cpp.llama_model_is_recurrent(model):
        return True
    if hasattr(llama_cpp, "llama_model_is_hybrid"):
        return bool(llama_cpp.llama_model_is_hybrid(model))
    return any(tells_of_state(key.encode()) for key in llama.metadata)  # releases that know nothing of hybrids
