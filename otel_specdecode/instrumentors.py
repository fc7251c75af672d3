"""Where hooks and telemetry are joined: one OpenTelemetry instrumentor an engine."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]

from otel_specdecode.engines.mlx_lm.hooks import MLXLMHooks
from otel_specdecode.telemetry.listener import Listener

_mlx_lm = MLXLMHooks()


class MLXLMInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Instruments mlx-lm's generate calls, whether it is imported already or later.

    `instrument()` takes `tracer_provider`, `meter_provider` and `logger_provider`; for those not given the global
    ones count, also if they are set later.
    """

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return the versions of mlx-lm that are supported."""
        return ("mlx-lm >= 0.28.4",)

    def _instrument(self, **kwargs: Any) -> None:
        listener = Listener(kwargs.get("tracer_provider"), kwargs.get("meter_provider"), kwargs.get("logger_provider"))
        _mlx_lm.install(listener)

    def _uninstrument(self, **_: Any) -> None:
        _mlx_lm.remove()
