"""Where hooks and telemetry are joined: one OpenTelemetry instrumentor an engine."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]

from otel_specdecode.engines.llama_cpp.hooks import LlamaCppHooks
from otel_specdecode.engines.mlx_lm.calls import PROVIDER as MLX
from otel_specdecode.engines.mlx_lm.hooks import MLXLMHooks
from otel_specdecode.engines.mlx_lm.memory import allocator_memory
from otel_specdecode.guard_from_environment import start_guard_from_environment
from otel_specdecode.telemetry.host_metrics import watch
from otel_specdecode.telemetry.listener import Listener
from otel_specdecode.telemetry.sigterm import flush_at_sigterm, leave_sigterm

_mlx_lm = MLXLMHooks()
_llama_cpp = LlamaCppHooks()

watch.read_allocator(MLX, allocator_memory)


class _EngineInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Instruments an engine, whether it is imported already or later.

    `instrument()` takes `tracer_provider`, `meter_provider` and `logger_provider`; for those not given the global
    ones count, also if they are set later.
    """

    _hooks: MLXLMHooks | LlamaCppHooks
    _listener: Listener

    def _instrument(self, **kwargs: Any) -> None:
        listener = Listener(kwargs.get("tracer_provider"), kwargs.get("meter_provider"), kwargs.get("logger_provider"))
        self._listener = listener
        self._hooks.install(listener)
        flush_at_sigterm()
        start_guard_from_environment()

    def _uninstrument(self, **_: Any) -> None:
        self._hooks.remove()
        self._listener.close()
        others = (each for each in instrumentors().values() if each is not self)
        if not any(each.is_instrumented_by_opentelemetry for each in others):
            leave_sigterm()


class MLXLMInstrumentor(_EngineInstrumentor):
    """Instruments mlx-lm's generate calls and its HTTP server."""

    _hooks = _mlx_lm

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return the versions of mlx-lm that are supported."""
        return ("mlx-lm >= 0.28.4",)


class LlamaCppInstrumentor(_EngineInstrumentor):
    """Instruments llama-cpp-python's `Llama`."""

    _hooks = _llama_cpp

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return the versions of llama-cpp-python that are supported."""
        return ("llama-cpp-python >= 0.3.2",)


def instrumentors() -> dict[str, BaseInstrumentor]:
    """Return the instrumentor of each engine by the module it is imported as."""
    return {"mlx_lm": MLXLMInstrumentor(), "llama_cpp": LlamaCppInstrumentor()}
