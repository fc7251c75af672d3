"""The engines that the demo runs on, one module each behind one small interface; the rest of the demo knows none."""

from __future__ import annotations

from otel_specdecode.demo.engines import llama_cpp, mlx
from otel_specdecode.demo.engines.interface import Engine

ENGINES: tuple[Engine, ...] = (mlx.ENGINE, llama_cpp.ENGINE)
"""In the order in which they run and are shown."""
