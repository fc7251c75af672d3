"""Imports one engine, puts the hooks in and looks whether they took. Run as a program, as the import may crash."""

from __future__ import annotations

import importlib
import logging
import pkgutil
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import otel_specdecode
from otel_specdecode.doctor.children import answer

HOOKED: dict[str, tuple[str, ...]] = {
    "mlx_lm": (
        "mlx_lm.utils:load",
        "mlx_lm.generate:stream_generate",
        "mlx_lm.generate:generate_step",
        "mlx_lm.generate:speculative_generate_step",
    ),
    "llama_cpp": (
        "llama_cpp.llama:Llama.create_completion",
        "llama_cpp.llama:Llama.generate",
        "llama_cpp.llama:Llama.eval",
    ),
}
"""Functions of each engine that must have been replaced."""


class _Warnings(logging.Handler):
    """Keeps the texts of warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def probe(module: str) -> dict[str, Any]:
    """Return what an engine tells once it is imported, and what of it is not hooked."""
    try:
        importlib.import_module(module)
    except BaseException as error:
        return {"import_error": type(error).__name__, "import_text": str(error)[:300]}
    found: dict[str, Any] = {"facts": _facts(module)}
    warnings = _Warnings()
    loggers = [logging.getLogger(name) for name in ("otel_specdecode", "opentelemetry.instrumentation")]
    for logger in loggers:
        logger.addHandler(warnings)
    otel_specdecode.uninstrument()  # the environment may have instrumented this process already
    before = {name: _resolved(name) for name in HOOKED[module]}
    otel_specdecode.instrument()
    found["unhooked"] = [name for name, function in before.items() if function is None or _resolved(name) is function]
    found["warnings"] = warnings.texts
    return found


def _resolved(name: str) -> Any:
    try:
        return pkgutil.resolve_name(name)
    except (AttributeError, ImportError):
        return None


def _facts(module: str) -> dict[str, Any]:
    try:
        return _FACTS[module]()
    except Exception:
        return {}


def _mlx_facts() -> dict[str, Any]:
    import mlx.core as mx

    facts: dict[str, Any] = {"metal": bool(mx.metal.is_available()), "device": str(mx.default_device())}
    with suppress(Exception):  # older builds for the CPU alone do not tell
        facts |= mx.device_info() if hasattr(mx, "device_info") else mx.metal.device_info()
    return facts


def _llama_facts() -> dict[str, Any]:
    import llama_cpp

    return {
        "gpu_offload": bool(llama_cpp.llama_supports_gpu_offload()),
        "system_info": llama_cpp.llama_print_system_info().decode("utf-8", "replace").strip(),
    }


_FACTS: dict[str, Callable[[], dict[str, Any]]] = {"mlx_lm": _mlx_facts, "llama_cpp": _llama_facts}


if __name__ == "__main__":
    answer(lambda: probe(sys.argv[1]))
