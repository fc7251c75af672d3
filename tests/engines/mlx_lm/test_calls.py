"""What a call says of itself: names of models, sampling parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import pytest
from mlx_lm import sample_utils

from otel_specdecode.telemetry.names import Attr
from otel_specdecode.testing.capture import Telemetry, capture
from otel_specdecode.tiny_pair import model_path
from tests.engines.mlx_lm.conftest import Pair, step_functions

pytestmark = pytest.mark.mlx


def run(pair: Pair, **options: Any) -> None:
    """Stream three tokens to their end."""
    list(mlx_lm.stream_generate(pair.target, pair.tokenizer, [301], max_tokens=3, **options))


def test_names_come_from_where_a_model_was_loaded(telemetry: Telemetry, tmp_path: Path) -> None:
    """A folder's own name, or the repository of a hub snapshot; never the path to it."""
    snapshot = tmp_path / "models--acme--Tiny-1M" / "snapshots" / "0123abc"
    snapshot.parent.mkdir(parents=True)
    snapshot.symlink_to(model_path("target"))
    for location, name in ((model_path("target"), "target"), (snapshot, "acme/Tiny-1M")):
        telemetry.clear()
        target, tokenizer = mlx_lm.load(str(location))
        list(mlx_lm.stream_generate(target, tokenizer, "hi", max_tokens=2))
        assert telemetry.span().name == f"text_completion {name}"
        assert str(tmp_path) not in telemetry.span().to_json()


def test_names_without_a_load_hook(tmp_path: Path) -> None:
    """A model loaded before instrumentation has its tokenizer's name; without either it has none."""
    target, tokenizer = mlx_lm.load(str(model_path("target")))
    with capture() as telemetry:
        list(mlx_lm.stream_generate(target, tokenizer, "hi", max_tokens=2))
        assert telemetry.span().name == "text_completion target"
        telemetry.clear()
        list(step_functions().generate_step(mx.array([301]), target, max_tokens=2))
        assert telemetry.span().name == "text_completion"
        (point,) = [
            point for point in telemetry.points("specdecode.request.started") if "_OTHER" in point.labels.values()
        ]
        assert point.value == 1


def test_sampling_parameters_come_from_the_sampler(telemetry: Telemetry, cycle: Pair) -> None:
    """A sampler that `make_sampler` built tells its temperature, top-p and top-k; another tells nothing."""
    run(cycle, sampler=sample_utils.make_sampler(temp=0.7, top_p=0.9, top_k=20))
    run(cycle, sampler=sample_utils.make_sampler(temp=0.0, top_p=0.9))
    run(cycle, sampler=lambda logprobs: logprobs.argmax(axis=-1))
    keys = (Attr.GEN_AI_REQUEST_TEMPERATURE, Attr.GEN_AI_REQUEST_TOP_P, Attr.GEN_AI_REQUEST_TOP_K)
    found = [tuple(dict(span.attributes or {}).get(key) for key in keys) for span in telemetry.spans()]
    assert found == [(0.7, 0.9, 20.0), (0.0, None, None), (None, None, None)]
