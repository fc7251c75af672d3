"""What of the optional engines and peers is installed: rows that need what is not there are left out."""

from __future__ import annotations

from importlib.util import find_spec


def has_mlx() -> bool:
    """Return whether MLX-LM can run."""
    return there("mlx_lm")


def has_llama_cpp() -> bool:
    """Return whether llama-cpp-python can run the tiny pair, which gguf writes."""
    return there("llama_cpp", "gguf")


def has_peer() -> bool:
    """Return whether the peer for llama.cpp is there."""
    return there("genai_otel")


def left_out(*, mlx: bool = False) -> str:
    """Return the end of a section's note: which rows are missing and why, nothing if none is.

    Args:
        mlx: Whether the section has rows that need the real MLX-LM.
    """
    missing = []
    if mlx and not has_mlx():
        missing.append("no rows for MLX-LM: mlx-lm is not installed")
    if not has_llama_cpp():
        missing.append("no rows for llama.cpp: llama-cpp-python or gguf is not installed")
    elif not has_peer():
        missing.append("no rows for the peer: genai-otel-instrument is not installed")
    return "".join(f"; {each}" for each in missing)


def there(*modules: str) -> bool:
    """Return whether modules can be imported, without importing them."""
    try:
        return all(find_spec(module) is not None for module in modules)
    except ModuleNotFoundError:  # of the package that a module would be in
        return False
