"""What a loaded GGUF model tells of itself, on the real engine."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("llama_cpp", reason="needs the [llama-cpp] extra")
pytest.importorskip("safetensors", reason="needs the [mlx] extra")
pytest.importorskip("gguf", reason="needs the [demo] extra")

import llama_cpp

from otel_specdecode.identity.gguf import fingerprint
from otel_specdecode.identity.llama_cpp import LlamaCppIdentity, describe
from otel_specdecode.tiny_pair import model_path
from otel_specdecode.tiny_pair.gguf import convert

pytestmark = pytest.mark.llama_cpp

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped target in f16."""
    return convert(model_path("target"), tmp_path_factory.mktemp("gguf") / "tiny-f16.gguf")


@pytest.fixture
def opened(file: Path) -> Iterator[Open]:
    """Load it, to be closed after the test."""
    loaded: list[Any] = []

    def load(**options: Any) -> Any:
        loaded.append(
            llama_cpp.Llama(
                str(file), **{"n_ctx": 512, "n_threads": 1, "n_threads_batch": 1, "verbose": False, **options}
            )
        )
        return loaded[-1]

    yield load
    for llama in loaded:
        llama.close()


def test_every_fact_of_a_loaded_model_is_told(file: Path, opened: Open) -> None:
    template = json.loads((model_path("target") / "tokenizer_config.json").read_text())["chat_template"]
    assert describe(opened()) == LlamaCppIdentity(
        name="tiny-f16",
        architecture="llama",
        file_type="MOSTLY_F16",
        n_ctx=512,
        n_ctx_requested=512,
        n_batch=512,
        n_ubatch=512,
        flash_attention=False,
        type_k="f16",
        type_v="f16",
        n_gpu_layers=0,
        parameters=820_352,
        size_bytes=1_643_008,
        tokenizer_model="gpt2",
        tokenizer_pre="gpt-2",
        vocabulary_size=1_024,
        chat_template_sha256=hashlib.sha256(template.encode()).hexdigest(),
        chat_format="chat_template.default",
        fingerprint=fingerprint(file),
        engine_version=llama_cpp.__version__,
    )


def test_what_was_asked_for_at_loading_is_told(opened: Open) -> None:
    """A context of 100 is rounded up by llama.cpp."""
    llama = opened(
        n_ctx=100,
        n_batch=64,
        n_ubatch=32,
        flash_attn=True,
        type_k=llama_cpp.GGML_TYPE_F32,
        n_gpu_layers=-1,
        chat_format="chatml",
    )
    told = describe(llama)
    assert (told.n_ctx, told.n_ctx_requested) == (llama.n_ctx(), 100)
    assert llama.n_ctx() > 100
    assert (told.n_batch, told.n_ubatch, told.flash_attention) == (64, 32, True)
    assert (told.type_k, told.type_v) == ("f32", "f16")
    assert (told.n_gpu_layers, told.chat_format) == (-1, "chatml")


def test_the_trained_context_is_what_0_asks_for(opened: Open) -> None:
    told = describe(opened(n_ctx=0))
    assert (told.n_ctx, told.n_ctx_requested) == (1_024, 1_024)


def test_no_path_is_told(file: Path, opened: Open) -> None:
    assert str(file.parent) not in repr(describe(opened()))
    assert "/" not in repr(describe(opened()))


def test_one_fact_that_is_not_told_leaves_the_others(opened: Open) -> None:
    """The engine gives no metadata where it cannot read them, and the file may have gone."""
    llama = opened()
    whole = describe(llama)
    llama.metadata = {}
    llama.model_path = "gone.gguf"
    from_metadata = ("architecture", "file_type", "tokenizer_model", "tokenizer_pre", "chat_template_sha256")
    absent = dict.fromkeys((*from_metadata, "fingerprint"), None)
    assert describe(llama) == dataclasses.replace(whole, **absent, name="gone")


def test_a_closed_model_tells_what_python_remembers(opened: Open) -> None:
    """The engine is not asked: it would end the process."""
    llama = opened()
    whole = describe(llama)
    llama.close()
    absent = dict.fromkeys(("n_ctx", "parameters", "size_bytes", "vocabulary_size"), None)
    assert describe(llama) == dataclasses.replace(whole, **absent)


def test_what_is_no_model_tells_nothing() -> None:
    """But the engine is there."""
    told = dataclasses.asdict(describe(object()))
    assert told.pop("engine_version") == llama_cpp.__version__
    assert set(told.values()) == {None}


@pytest.mark.parametrize(
    ("number", "name"),
    [("0", "ALL_F32"), ("7", "MOSTLY_Q8_0"), ("15", "MOSTLY_Q4_K_M"), ("999", None), ("many", None)],
)
def test_a_file_type_has_llama_hs_name(number: str, name: str | None) -> None:
    assert describe(SimpleNamespace(metadata={"general.file_type": number})).file_type == name


@pytest.mark.parametrize(("value", "name"), [(8, "q8_0"), (llama_cpp.GGML_TYPE_COUNT, None), (999, None)])
def test_a_cache_type_has_ggml_hs_name(value: int, name: str | None) -> None:
    told = describe(SimpleNamespace(context_params=SimpleNamespace(type_k=value, type_v=value)))
    assert (told.type_k, told.type_v) == (name, name)


@pytest.mark.parametrize(("value", "layers"), [(12, 12), (0, 0), (0x7FFFFFFF, -1), (-2, -1)])
def test_all_layers_are_minus_1(value: int, layers: int) -> None:
    """However a release writes it down."""
    assert describe(SimpleNamespace(model_params=SimpleNamespace(n_gpu_layers=value))).n_gpu_layers == layers


@pytest.mark.parametrize(
    ("parameters", "on"),
    [
        ({"flash_attn": True}, True),
        ({"flash_attn": False}, False),
        ({"flash_attn_type": 1}, True),
        ({"flash_attn_type": 0}, False),
        ({"flash_attn_type": -1}, None),
    ],
)
def test_flash_attention_is_read_from_every_release(parameters: dict[str, Any], on: bool | None) -> None:
    """A flag in older ones, a choice in newer ones, of which one is to let llama.cpp decide."""
    assert describe(SimpleNamespace(context_params=SimpleNamespace(**parameters))).flash_attention is on
