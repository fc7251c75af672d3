"""Models of MLX-LM that a manifest tells of: those loaded under instrumentation, whose load is as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import pytest

from otel_specdecode.telemetry.names import Attr, Event, Metrics
from otel_specdecode.testing.capture import Telemetry, capture
from otel_specdecode.testing.checker import assert_conformant
from otel_specdecode.tiny_pair import model_path
from tests.engines.spans import attributes

pytestmark = pytest.mark.mlx

TARGET, DRAFT = model_path("target"), model_path("draft")


def run(model: Any, tokenizer: Any, draft: Any = None) -> None:
    """Stream to the end."""
    options = {} if draft is None else {"draft_model": draft, "num_draft_tokens": 3}
    list(mlx_lm.stream_generate(model, tokenizer, [301, 302], max_tokens=8, **options))


def manifest_ids(telemetry: Telemetry) -> list[str | None]:
    """The manifest id of every span."""
    return [attributes(span).get(Attr.SPECDECODE_MANIFEST_ID) for span in telemetry.spans()]


def write_adapter(folder: Path, *, scale: float = 1.0, layers: int = 1, value: float | None = None) -> Path:
    """Write a LoRA adapter; without a value it trains nothing."""
    folder.mkdir()
    lora = {"rank": 2, "scale": scale, "dropout": 0.0}
    config = {"fine_tune_type": "lora", "num_layers": layers, "lora_parameters": lora}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    weights = {} if value is None else {"model.layers.0.self_attn.q_proj.lora_b": mx.full((2, 1), value)}
    mx.save_safetensors(str(folder / "adapters.safetensors"), weights)
    return folder


@pytest.mark.parametrize("drafts", [False, True], ids=["autoregressive", "speculative"])
def test_a_model_loaded_before_has_no_manifest_and_all_else_of_its_spans(drafts: bool) -> None:
    model, tokenizer = mlx_lm.load(str(TARGET))[:2]
    draft = mlx_lm.load(str(DRAFT))[0] if drafts else None
    with capture() as telemetry:
        run(model, tokenizer, draft)
        found = attributes(telemetry.span())
        assert Attr.SPECDECODE_MANIFEST_ID not in found
        assert found[Attr.SPECDECODE_PROCESS_PEAK_RSS] > 0
        assert found[Attr.SPECDECODE_MACHINE_PROFILE]
        assert found[Attr.GEN_AI_USAGE_OUTPUT_TOKENS] == 8
        assert telemetry.events(Event.SPECDECODE_MANIFEST) == []
        assert telemetry.points(Metrics.SPECDECODE_CONFIG_INFO.name) == []
        assert_conformant(spans=telemetry.spans(), metrics=telemetry.metrics_data())


def test_a_draft_loaded_before_leaves_the_pair_without_a_manifest(telemetry: Telemetry) -> None:
    """An id of the target alone would be that of any other draft too."""
    model, tokenizer = mlx_lm.load(str(TARGET))[:2]
    run(model, tokenizer, mlx_lm.utils.load_model(DRAFT)[0])
    run(model, tokenizer)
    with_draft, alone = manifest_ids(telemetry)
    assert with_draft is None
    assert alone is not None
    (told,) = telemetry.events(Event.SPECDECODE_MANIFEST)
    assert told.attributes[Attr.SPECDECODE_MANIFEST_ID] == alone


def test_an_adapter_and_how_it_is_put_on_make_another_id(telemetry: Telemetry, tmp_path: Path) -> None:
    """None, one, the same in another folder, one that counts twice as much."""
    adapters = [
        None,
        write_adapter(tmp_path / "one"),
        write_adapter(tmp_path / "same"),
        write_adapter(tmp_path / "twice", scale=2.0),
    ]
    for adapter in adapters:
        model, tokenizer = mlx_lm.load(str(DRAFT), adapter_path=None if adapter is None else str(adapter))[:2]
        run(model, tokenizer)
    none, one, same, twice = manifest_ids(telemetry)
    assert one == same
    assert len({none, one, twice}) == 3


@pytest.mark.parametrize("options", [{}, {"return_config": True}, {"lazy": True}], ids=str)
def test_a_load_returns_what_it_returns_without_instrumentation(options: dict[str, Any]) -> None:
    bare = mlx_lm.load(str(TARGET), **options)
    with capture():
        watched = mlx_lm.load(str(TARGET), **options)
    assert [type(each) for each in watched] == [type(each) for each in bare]
    assert list(watched[2:]) == list(bare[2:])
    assert vars(watched[1]).keys() == vars(bare[1]).keys()
    assert watched[1].get_vocab() == bare[1].get_vocab()
    assert str(watched[0]) == str(bare[0])
    assert vars(watched[0]).keys() == vars(bare[0]).keys()


def test_what_a_load_raises_is_what_it_raises_without_instrumentation(tmp_path: Path) -> None:
    with pytest.raises(Exception) as bare:  # noqa: PT011 -- whatever it is
        mlx_lm.load(str(tmp_path))
    with capture(), pytest.raises(bare.type) as watched:
        mlx_lm.load(str(tmp_path))
    assert str(watched.value) == str(bare.value)
