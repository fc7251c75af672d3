"""The public peer for llama.cpp, genai-otel-instrument, as its own `instrument()` sets it up; its exporters discard.

Of that set-up everything is here that takes part in a call of llama.cpp: default configuration, span processors, the
exporter that adds prices, exemplars switched off, the collector of running requests. What it does for other libraries
and for the host (HTTP, databases, GPUs) is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from benchmarks.sdk import RESOURCE, DiscardedMetrics, DiscardedSpans


class Peer:
    """The peer's instrumentor with providers of its own."""

    def __init__(self) -> None:
        from genai_otel import server_metrics
        from genai_otel.config import OTelConfig
        from genai_otel.cost_enriching_exporter import CostEnrichingSpanExporter
        from genai_otel.cost_enrichment_processor import CostEnrichmentSpanProcessor
        from genai_otel.instrumentors import base
        from genai_otel.instrumentors.llamacpp_instrumentor import LlamaCppInstrumentor

        prices = base._get_default_cost_calculator()
        self.tracer_provider = TracerProvider(resource=RESOURCE)
        self.tracer_provider.add_span_processor(base.UsageHolderSpanProcessor())
        self.tracer_provider.add_span_processor(CostEnrichmentSpanProcessor(prices))
        exporter = CostEnrichingSpanExporter(DiscardedSpans(), prices)
        self.tracer_provider.add_span_processor(BatchSpanProcessor(exporter))
        reader = PeriodicExportingMetricReader(DiscardedMetrics())
        self.meter_provider = MeterProvider([reader], RESOURCE, exemplar_filter=AlwaysOffExemplarFilter())
        server_metrics.initialize_server_metrics(self.meter_provider.get_meter("genai.server"))
        # It takes the global providers, and makes its instruments once a process.
        with (
            patch.object(trace, "get_tracer", self.tracer_provider.get_tracer),
            patch.object(metrics, "get_meter", self.meter_provider.get_meter),
            patch.object(base, "_SHARED_METRICS_CREATED", False),
        ):
            self._instrumentor: Any = LlamaCppInstrumentor()  # type: ignore[no-untyped-call]
        self._config = OTelConfig()

    def instrument(self, llama_class: Any) -> Callable[[], None]:
        """Wrap a class's methods; return what restores them."""
        instrumentor = self._instrumentor
        instrumentor._llamacpp_module = SimpleNamespace(Llama=llama_class)
        instrumentor._originals = {}
        instrumentor.instrument(self._config)
        originals = dict(instrumentor._originals)

        def restore() -> None:
            for name, original in originals.items():
                setattr(llama_class, name, original)
            del llama_class._genai_otel_llamacpp_instrumented

        return restore

    def shutdown(self) -> None:
        self.tracer_provider.shutdown()
        self.meter_provider.shutdown()


@contextmanager
def peer() -> Iterator[Peer]:
    """Give a peer for the length of a block."""
    running = Peer()
    try:
        yield running
    finally:
        running.shutdown()
