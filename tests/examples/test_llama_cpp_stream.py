"""llama.cpp: a stream that is closed early."""

from __future__ import annotations

import pytest

pytest.importorskip("llama_cpp", reason="needs the [llama-cpp] extra")
pytest.importorskip("gguf", reason="needs the [demo] extra")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs the [otlp] extra")

from tests.examples.running import each, finish_reasons, run

pytestmark = pytest.mark.llama_cpp


def test_the_span_ends_where_the_stream_is_closed() -> None:
    printed, received = run("llama_cpp_stream.py")
    assert printed.strip().endswith(".")
    assert finish_reasons(received) == ["closed"]
    assert each(received, "specdecode.mode") == ["autoregressive"]
    assert each(received, "gen_ai.request.stream") == [True]
