"""What the demo says of names is worked out from what it was given."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy", reason="needs the [demo] extra")
pytest.importorskip("opentelemetry.exporter.otlp.proto.common", reason="needs the [demo] extra")

from otel_specdecode.demo.sharing import claim, claims
from otel_specdecode.telemetry.names import Attr
from tests.demo.made import LLAMA_CPP, MLX, made_lineup, made_result


def test_names_that_all_kinds_have_are_counted() -> None:
    assert claim("fields", {"A": {"x", "y"}, "B": {"y", "x"}}) == (
        "The same 2 fields were seen on A and B requests, and no other."
    )


def test_names_that_some_kinds_lack_are_listed_with_those_that_have_them() -> None:
    seen = {"A": {"x"}, "B": {"x", "y", "z"}, "C": {"x", "y", "v"}}
    assert claim("fields", seen) == (
        "The same 1 fields were seen on A, B and C requests. Besides: v only on C; y only on B and C; z only on B."
    )


def test_an_attribute_that_one_engine_alone_emits_is_told() -> None:
    results = [
        made_result(made_lineup(engine=MLX)),
        made_result(made_lineup(engine=LLAMA_CPP), **{Attr.SPECDECODE_DRAFT_DURATION: 0.1}),
    ]
    of_spans, of_metrics = claims(
        results, {("mlx", "speculative"): {"specdecode.rollbacks"}, ("llama_cpp", "speculative"): set()}
    )
    assert "The same 1 span attributes were seen on MLX-LM autoregressive, MLX-LM speculative, llama.cpp" in of_spans
    assert "specdecode.draft.duration only on llama.cpp autoregressive and llama.cpp speculative" in of_spans
    assert "The same 0 metrics" in of_metrics
    assert "specdecode.rollbacks only on MLX-LM speculative" in of_metrics
