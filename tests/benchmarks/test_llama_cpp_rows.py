"""The rows of llama.cpp: the synthetic engine is recorded as the real one is, and the peer as the page says."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

llama_cpp = pytest.importorskip("llama_cpp", reason="needs the [llama-cpp] extra")

from opentelemetry.sdk.metrics.export import InMemoryMetricReader  # noqa: E402
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402

from benchmarks import installed  # noqa: E402
from benchmarks import peer as peer_module  # noqa: E402
from benchmarks.in_the_loop import in_the_loop  # noqa: E402
from benchmarks.outside_the_loop import outside_the_loop  # noqa: E402
from benchmarks.peer import peer  # noqa: E402
from benchmarks.real_engine import real_engine  # noqa: E402
from benchmarks.results import Row, Section  # noqa: E402
from benchmarks.sdk import NOBODY  # noqa: E402
from benchmarks.synthetic_llama_cpp import (  # noqa: E402
    PROMPT,
    WATCHED,
    made,
    own_class,
    real_handles,
    watched_class,
)
from otel_specdecode.testing.capture import Telemetry  # noqa: E402

pytestmark = [pytest.mark.source, pytest.mark.llama_cpp]

BOTH_MODES = pytest.mark.parametrize("speculates", [False, True], ids=["AR", "speculative"])
NEEDS_PEER = pytest.mark.skipif(find_spec("genai_otel") is None, reason="genai-otel-instrument is not there")


@pytest.fixture(scope="module")
def real() -> Iterator[Any]:
    with real_handles() as llama:
        yield llama


def of_llama_cpp(section: Section) -> list[Row]:
    return [row for row in section.rows if "llama.cpp" in row.case]


@BOTH_MODES
def test_a_synthetic_completion_is_recorded_through_the_real_hooks(real: Any, speculates: bool) -> None:
    telemetry = Telemetry()
    bare = made(own_class(), real, speculates=speculates)
    ours = made(watched_class(telemetry.listener()), real, speculates=speculates)
    texts = [
        [chunk["choices"] for chunk in llama.create_completion(PROMPT, max_tokens=60, stream=True)]
        for llama in (bare, ours)
    ]
    assert texts[0] == texts[1]
    attributes = dict(telemetry.span().attributes or {})
    assert attributes["gen_ai.usage.input_tokens"] == 16
    assert attributes["gen_ai.usage.output_tokens"] == 60
    assert attributes["gen_ai.response.finish_reasons"] == ("length",)
    if speculates:
        assert attributes["specdecode.method"] == "draft_model"
        assert attributes["specdecode.accept_rate"] == pytest.approx(18 / 32, abs=0.05)
        assert attributes["specdecode.draft.passes"] == attributes["specdecode.draft.proposed_tokens"]
    else:
        assert attributes["specdecode.decode.passes"] == 59
    telemetry.shutdown()


@BOTH_MODES
def test_a_synthetic_token_loop_is_recorded_through_the_real_hooks(real: Any, speculates: bool) -> None:
    telemetry = Telemetry()
    loops = [
        made(each, real, speculates=speculates).generate(PROMPT)
        for each in (own_class(), watched_class(telemetry.listener()))
    ]
    tokens = [[next(loop) for _ in range(60)] for loop in loops]
    for loop in loops:
        loop.close()
    assert tokens[0] == tokens[1]
    assert dict(telemetry.span().attributes or {})["gen_ai.usage.output_tokens"] == 60
    telemetry.shutdown()


def test_a_class_of_its_own_is_written_to_alone(real: Any) -> None:
    untouched, watched = own_class(), watched_class(NOBODY)
    assert all(vars(untouched)[name] is not vars(watched)[name] for name in WATCHED)


@pytest.mark.parametrize("benchmark", [in_the_loop, outside_the_loop])
def test_without_the_peer_its_rows_are_left_out_and_the_note_says_so(
    benchmark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed, "find_spec", lambda module: None if module == "genai_otel" else find_spec(module))
    section = benchmark(repetitions=1)
    assert "no rows for the peer: genai-otel-instrument is not installed" in section.note
    assert {row.variant for row in of_llama_cpp(section)} >= {"bare", "ours, with an SDK", "ours, without"}
    assert not [row for row in section.rows if row.variant.startswith("peer")]


@NEEDS_PEER
def test_the_peer_stands_beside_ours_in_every_completion() -> None:
    loop = of_llama_cpp(in_the_loop(tokens=5, repetitions=1))
    request = of_llama_cpp(outside_the_loop(requests=1, repetitions=1))
    with_peer = {row.case for row in (*loop, *request) if row.variant == "peer, with an SDK"}
    assert with_peer == {row.case for row in (*loop, *request) if "generate" not in row.case}


def test_the_real_llama_cpp_runs_in_every_mode_and_is_left_as_it_was() -> None:
    before = dict(vars(llama_cpp.Llama))
    rows = of_llama_cpp(real_engine(tokens=4, repetitions=1))
    assert {row.case for row in rows} == {
        f"llama.cpp, {mode}, {what}"
        for mode in ("AR", "prompt lookup", "draft model")
        for what in ("speed", "CPU time")
    }
    assert {row.variant for row in rows} >= {"bare", "ours"}
    assert dict(vars(llama_cpp.Llama)) == before


@NEEDS_PEER
def test_the_peer_records_what_the_page_says(real: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, metrics = InMemorySpanExporter(), InMemoryMetricReader()
    monkeypatch.setattr(peer_module, "PeriodicExportingMetricReader", lambda _: metrics)

    def recorded() -> list[dict[str, Any]]:
        spans = [dict(span.attributes or {}) for span in kept.get_finished_spans()]
        kept.clear()
        return spans

    def metric_names() -> set[str]:
        """All but the gauges of requests that run at the moment."""
        resources = getattr(metrics.get_metrics_data(), "resource_metrics", ())
        names = {each.name for resource in resources for scope in resource.scope_metrics for each in scope.metrics}
        return {name for name in names if not name.startswith("gen_ai.server.")}

    with peer() as theirs:
        theirs.tracer_provider.add_span_processor(SimpleSpanProcessor(kept))
        theirs.instrument(llama_class := own_class())
        llama = made(llama_class, real, speculates=True)
        llama.model_path = "some-folder/model.gguf"

        list(llama.create_completion(PROMPT, max_tokens=5, stream=True))
        (stream,) = recorded()
        assert stream["gen_ai.response.finish_reasons"] == ("length",)
        assert stream["gen_ai.request.model"] == "some-folder/model.gguf"
        assert not [name for name in stream if "usage" in name or "time" in name or "draft" in name]
        assert not metric_names()

        for dropped in (llama.create_completion(PROMPT, max_tokens=5, stream=True), llama.generate(PROMPT)):
            next(dropped)
            dropped.close()
        assert not recorded()

        llama.create_completion(PROMPT, max_tokens=5)
        (whole,) = recorded()
        assert (whole["gen_ai.usage.input_tokens"], whole["gen_ai.usage.output_tokens"]) == (16, 5)
        assert "gen_ai.usage.cost.pricing_source" in whole
        assert not [name for name in whole if "draft" in name]
        assert metric_names() >= {"gen_ai.requests", "gen_ai.client.operation.duration", "gen_ai.client.token.usage"}
