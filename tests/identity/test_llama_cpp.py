"""What a loaded GGUF model tells of itself, on the real engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("llama_cpp", reason="needs the [llama-cpp] extra")
pytest.importorskip("safetensors", reason="needs the [mlx] extra")
pytest.importorskip("gguf", reason="needs the [demo] extra")

import llama_cpp

from otel_specdecode.identity.gguf import fingerprint, read_gguf
from otel_specdecode.identity.llama_cpp import loaded_model
from otel_specdecode.identity.models import LoadedModel, ModelIdentity, TokenizerIdentity
from otel_specdecode.tiny_pair import model_path
from otel_specdecode.tiny_pair.gguf import convert
from tests.identity.weight_files import in_hub

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
        common = {"model_path": str(file), "n_ctx": 512, "n_threads": 1, "n_threads_batch": 1, "verbose": False}
        loaded.append(llama_cpp.Llama(**{**common, **options}))
        return loaded[-1]

    yield load
    for llama in loaded:
        llama.close()


def told(llama: Any) -> ModelIdentity:
    return loaded_model(llama).identity()


def settings(llama: Any) -> dict[str, Any]:
    return dict(told(llama).settings)


def test_every_fact_of_a_loaded_model_is_told(file: Path, opened: Open) -> None:
    """As the file tells them to whoever has no engine, too."""
    in_file = read_gguf(file)
    assert told(opened()) == ModelIdentity(
        name="tiny-f16",
        fingerprint=fingerprint(file),
        architecture="llama",
        quantization="MOSTLY_F16",
        parameters=820_352,
        size_bytes=1_643_008,
        tokenizer=TokenizerIdentity("gpt2", "gpt-2", 1_024, in_file.tokenizer.vocabulary_sha256),
        chat_template_sha256=in_file.chat_template_sha256,
        settings=(
            ("chat_format", "chat_template.default"),
            ("flash_attention", False),
            ("logits_all", False),
            ("n_batch", 512),
            ("n_ctx", 512),
            ("n_gpu_layers", 0),
            ("n_ubatch", 512),
            ("type_k", "f16"),
            ("type_v", "f16"),
        ),
    )
    assert (in_file.architecture, in_file.file_type, in_file.parameters, in_file.size_bytes) == (
        "llama",
        "MOSTLY_F16",
        820_352,
        1_643_008,
    )
    assert in_file.tokenizer.vocabulary_size == 1_024


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
        logits_all=True,
    )
    assert llama.n_ctx() > 100
    assert settings(llama) == {
        "chat_format": "chatml",
        "flash_attention": True,
        "logits_all": True,
        "n_batch": 64,
        "n_ctx": llama.n_ctx(),
        "n_gpu_layers": -1,
        "n_ubatch": 32,
        "type_k": "f32",
        "type_v": "f16",
    }


def test_the_files_facts_wait_until_they_are_asked_for(file: Path, opened: Open) -> None:
    """By then the Llama may be closed and gone, and another thread asks."""
    llama = opened()
    whole, model = told(llama), loaded_model(llama)
    assert model._identity == replace(
        whole, fingerprint=None, tokenizer=replace(whole.tokenizer, vocabulary_sha256=None)
    )
    llama.close()
    found: list[ModelIdentity] = []
    thread = threading.Thread(target=lambda: found.append(model.identity()))
    thread.start()
    thread.join()
    assert found == [whole]


def test_the_file_is_found_from_another_folder_too(
    file: Path, opened: Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    llama = opened()
    monkeypatch.chdir(file.parent)
    llama.model_path = file.name
    model = loaded_model(llama)
    monkeypatch.chdir(tmp_path)
    assert model.identity().fingerprint == fingerprint(file)


def test_a_hub_caches_link_and_a_copy_of_another_name_are_one_model(file: Path, opened: Open, tmp_path: Path) -> None:
    """But for the name, and the sha256 that the cache has."""
    link = in_hub(tmp_path / "models--acme--Tiny", "acme-f16.gguf", file.read_bytes())
    here, there = told(opened()), told(opened(model_path=str(link)))
    assert (there.name, there.content_sha256) == ("acme-f16", link.resolve().name)
    assert replace(there, name=here.name, content_sha256=None) == here


def test_no_path_is_told(file: Path, opened: Open) -> None:
    assert str(file.parent) not in repr(told(opened()))
    assert "/" not in repr(told(opened()))


def test_what_the_engine_does_not_tell_comes_from_the_file(opened: Open) -> None:
    """The engine gives no metadata where it cannot read them."""
    llama = opened()
    whole = told(llama)
    llama.metadata = {}
    assert told(llama) == whole


def test_without_its_file_a_model_tells_what_the_engine_knows(opened: Open) -> None:
    llama = opened()
    whole = told(llama)
    llama.model_path = "gone.gguf"
    assert told(llama) == replace(
        whole, name="gone", fingerprint=None, tokenizer=replace(whole.tokenizer, vocabulary_sha256=None)
    )


def test_a_closed_model_tells_what_python_remembers(opened: Open) -> None:
    """The engine is not asked: it would end the process. The file still tells the rest, but for the context."""
    llama = opened()
    whole = told(llama)
    llama.close()
    assert told(llama) == replace(whole, settings=tuple(each for each in whole.settings if each[0] != "n_ctx"))


def test_what_is_no_model_tells_nothing() -> None:
    assert told(object()) == ModelIdentity()


def test_an_adapter_is_told_with_its_scale(file: Path, opened: Open, tmp_path: Path) -> None:
    """Its file's fingerprint. One that has gone leaves the model without, which else would pass for one without."""
    llama = opened()
    whole = told(llama)
    llama.lora_path, llama.lora_scale = str(file), 0.5
    with_adapter = replace(whole, settings=tuple(sorted([*whole.settings, ("lora_scale", 0.5)])))
    assert told(llama) == replace(with_adapter, adapter=fingerprint(file))
    llama.lora_path = str(tmp_path / "gone.gguf")
    assert told(llama) == replace(
        with_adapter, fingerprint=None, tokenizer=replace(whole.tokenizer, vocabulary_sha256=None)
    )


@pytest.mark.parametrize("type_", [0, 1, 2, 3, 6, 7, 8, 20, 30])
def test_a_cache_type_has_ggml_hs_name(type_: int) -> None:
    names = {value: name for name, value in vars(llama_cpp).items() if name.startswith("GGML_TYPE_")}
    told_types = settings(SimpleNamespace(context_params=SimpleNamespace(type_k=type_, type_v=999)))
    assert "type_v" not in told_types
    if type_ in names and not names[type_].endswith("_COUNT"):  # releases without bf16 have its number for that
        assert f"GGML_TYPE_{told_types['type_k'].upper()}" == names[type_]


@pytest.mark.parametrize(("value", "layers"), [(12, 12), (0, 0), (0x7FFFFFFF, -1), (-2, -1)])
def test_all_layers_are_minus_1(value: int, layers: int) -> None:
    """However a release writes it down."""
    llama = SimpleNamespace(model_params=SimpleNamespace(n_gpu_layers=value))
    assert settings(llama) == {"n_gpu_layers": layers}


@pytest.mark.parametrize(
    ("parameters", "on"),
    [
        ({"flash_attn": True}, True),
        ({"flash_attn": False}, False),
        ({"flash_attn_type": 1}, True),
        ({"flash_attn_type": 0}, False),
        ({"flash_attn_type": -1}, "auto"),
    ],
)
def test_flash_attention_is_read_from_every_release(parameters: dict[str, Any], on: bool | str) -> None:
    """A flag in older ones, a choice in newer ones, of which one is to let llama.cpp decide."""
    assert settings(SimpleNamespace(context_params=SimpleNamespace(**parameters))) == {"flash_attention": on}


@pytest.mark.parametrize(
    ("llama", "kept"),
    [
        (SimpleNamespace(_logits_all=True), True),
        (SimpleNamespace(_logits_all=False, context_params=SimpleNamespace(logits_all=True)), False),
        (SimpleNamespace(context_params=SimpleNamespace(logits_all=True)), True),
    ],
)
def test_whether_all_logits_are_kept_is_read_from_every_release(llama: Any, kept: bool) -> None:
    assert settings(llama)["logits_all"] is kept


def test_a_model_is_told_once(opened: Open) -> None:
    model = loaded_model(opened())
    assert isinstance(model, LoadedModel)
    assert model.identity() is model.identity()
