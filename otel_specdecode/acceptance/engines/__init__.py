"""The engines that runs are made on, one module each behind one small interface."""

from __future__ import annotations

from importlib import import_module

from otel_specdecode.acceptance.engines.interface import Engine

NAMES = ("mlx", "llama_cpp")
"""As `--engine` takes them."""


def engine_named(name: str) -> Engine:
    """Return the engine of one of the NAMES; what it needs of an installed engine is imported when it loads models."""
    engine: Engine = import_module(f"{__name__}.{name}").ENGINE
    return engine
