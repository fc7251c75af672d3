"""The official GenAI stream wrapper (opentelemetry-util-genai), used as its own instrumentations use it."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from opentelemetry.util.genai.handler import TelemetryHandler
from opentelemetry.util.genai.stream import SyncStreamWrapper

from benchmarks.streams import MODEL


class OfficialStream(SyncStreamWrapper[Any]):
    """Counts tokens, and tells the invocation how the stream ended."""

    def __init__(self, stream: Generator[Any, Any, None], invocation: Any) -> None:
        super().__init__(stream, invocation)
        self._self_call = invocation
        self._self_tokens = 0
        invocation.suspend()

    def _process_chunk(self, chunk: Any) -> None:  # noqa: ARG002
        self._self_tokens += 1

    def _on_stream_end(self) -> None:
        invocation = self._self_call
        invocation.output_tokens, invocation.finish_reasons = self._self_tokens, ["length"]
        invocation.stop()

    def _on_stream_error(self, error: BaseException) -> None:
        self._self_call.fail(error)


def handler_of(tracer_provider: Any = None, meter_provider: Any = None) -> TelemetryHandler:
    """Return a handler for the given providers, for the global ones where not given."""
    return TelemetryHandler(tracer_provider=tracer_provider, meter_provider=meter_provider)


def official(stream: Generator[Any, Any, None], handler: TelemetryHandler) -> OfficialStream:
    """Return a stream in the official wrapper, with the attributes that MLX-LM's calls make known."""
    invocation = handler.inference("mlx", request_model=MODEL, operation_name="text_completion")
    invocation.input_tokens, invocation.max_tokens = 16, 1_000
    return OfficialStream(stream, invocation)
