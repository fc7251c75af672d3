"""What a model folder tells, and what MLX-LM loaded from one, on the real engine."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otel_specdecode.identity.mlx_lm import describe_folder, loaded_model
from otel_specdecode.identity.models import ModelIdentity, TokenizerIdentity
from otel_specdecode.identity.safetensors import read_safetensors
from otel_specdecode.tiny_pair import model_path

Folder = Callable[..., Path]


def sha256(content: str | bytes) -> str:
    return hashlib.sha256(content if isinstance(content, bytes) else content.encode()).hexdigest()


def template(folder: Path) -> str:
    return str(json.loads((folder / "tokenizer_config.json").read_text())["chat_template"])


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Make a folder without weights: a configuration, and other files by name."""

    def make(config: dict[str, Any] | str = "", **files: Any) -> Path:
        path = tmp_path / f"model-{len(list(tmp_path.iterdir()))}"
        path.mkdir()
        for name, content in {"config.json": config, **files}.items():
            (path / name).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    return make


def test_a_shipped_folder_is_told_in_full() -> None:
    """Its vocabulary's digest is of the tokens in order, as a list in JSON."""
    path = model_path("target")
    tokenizer = (path / "tokenizer.json").read_bytes()
    ids = json.loads(tokenizer)["model"]["vocab"]
    assert describe_folder(path) == ModelIdentity(
        name="target",
        fingerprint=read_safetensors([path / "model.safetensors"]).fingerprint,
        architecture="llama",
        quantization="float16",
        parameters=820_352,
        size_bytes=2 * 820_352,
        tokenizer=TokenizerIdentity(
            kind="BPE",
            vocabulary_size=1_024,
            vocabulary_sha256=sha256(json.dumps(sorted(ids, key=ids.__getitem__))),
            content_sha256=sha256(tokenizer),
        ),
        chat_template_sha256=sha256(template(path)),
        settings=(("max_position_embeddings", 1_024), ("model_type", "llama"), ("vocab_size", 1_024)),
    )


@pytest.mark.mlx
@pytest.mark.parametrize("name", ["target", "draft"])
def test_what_mlx_lm_loaded_is_told_as_its_folder_is(name: Any) -> None:
    import mlx_lm

    path = model_path(name)
    _, tokenizer = mlx_lm.load(str(path))[:2]
    assert loaded_model(str(path), tokenizer, None).identity() == describe_folder(path)


@pytest.mark.mlx
def test_what_was_loaded_from_a_repository_lies_where_its_tokenizer_says() -> None:
    """Under the repository's name. The template is the one that was loaded, whatever the folder has."""
    import mlx_lm

    path = model_path("draft")
    _, tokenizer = mlx_lm.load(str(path), tokenizer_config={"chat_template": "{{ other }}"})[:2]
    told = loaded_model("acme/Tiny-1M", tokenizer, None).identity()
    assert told == replace(describe_folder(path), name="acme/Tiny-1M", chat_template_sha256=sha256("{{ other }}"))


@pytest.mark.mlx
def test_files_wait_until_they_are_asked_for_and_nothing_of_the_engine_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vocabulary is known at once, because a tokenizer is not kept. The program may then stand elsewhere."""
    import mlx_lm

    shutil.copytree(model_path("draft"), tmp_path / "draft")
    monkeypatch.chdir(tmp_path)
    _, tokenizer = mlx_lm.load("draft")[:2]
    held = loaded_model("draft", tokenizer, None)
    whole = describe_folder(tmp_path / "draft")
    assert held._identity == ModelIdentity(
        name="draft",
        tokenizer=replace(whole.tokenizer, content_sha256=None),
        chat_template_sha256=whole.chat_template_sha256,
    )
    monkeypatch.chdir("/")
    assert held.identity() == whole


@pytest.mark.mlx
def test_an_adapter_is_known_by_its_weights_and_how_they_are_put_on_top(tmp_path: Path) -> None:
    """One that mlx-lm trained nothing for, but put on top. Where it is gone, the model would pass for one without."""
    import mlx.core as mx
    import mlx_lm

    path, adapter = model_path("draft"), tmp_path / "adapter"
    adapter.mkdir()
    config = {"fine_tune_type": "lora", "num_layers": 1, "lora_parameters": {"rank": 2, "scale": 1.0, "dropout": 0.0}}
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    mx.save_safetensors(str(adapter / "adapters.safetensors"), {})
    _, tokenizer = mlx_lm.load(str(path), adapter_path=str(adapter))[:2]
    told = loaded_model(str(path), tokenizer, str(adapter)).identity()
    assert told.adapter is not None
    assert replace(told, adapter=None) == describe_folder(path)
    (adapter / "adapter_config.json").write_text(json.dumps({**config, "num_layers": 2}))
    other = loaded_model(str(path), tokenizer, adapter).identity().adapter
    assert other is not None
    assert other != told.adapter
    (adapter / "adapters.safetensors").unlink()
    assert loaded_model(str(path), tokenizer, adapter).identity().fingerprint is None


def test_what_is_no_model_tells_its_name() -> None:
    assert loaded_model("acme/Tiny-1M", None, None).identity() == ModelIdentity(name="acme/Tiny-1M")
    assert describe_folder("acme/Tiny-1M") == ModelIdentity(name="acme/Tiny-1M")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"quantization": {"bits": 4, "group_size": 64}}, "4 bits, group 64"),
        ({"quantization": {"bits": 4, "group_size": 64, "mode": "affine"}, "torch_dtype": "x"}, "4 bits, group 64"),
        ({"quantization": {"bits": 4, "group_size": 32, "mode": "mxfp4"}}, "4 bits, group 32, mxfp4"),
        ({"quantization": {"bits": 4, "group_size": 64, "head": {"bits": 4, "group_size": 64}}}, "4 bits, group 64"),
        (
            {"quantization": {"bits": 4, "group_size": 64, "head": {"bits": 8, "group_size": 64}}},
            "4 bits, group 64, mixed",
        ),
        ({"quantization": {"bits": 4, "group_size": 64, "head": False}}, "4 bits, group 64, mixed"),
        ({"quantization_config": {"bits": 8, "group_size": 32}}, "8 bits, group 32"),
        ({"quantization_config": {"quant_method": "awq"}}, "awq"),
        ({"torch_dtype": "bfloat16"}, "bfloat16"),
        ({"dtype": "float32"}, "float32"),
        ({"quantization": 4, "torch_dtype": ["x"]}, None),
        ({}, None),
    ],
)
def test_quantisation_is_said_in_a_few_words(folder: Folder, config: dict[str, Any], said: str | None) -> None:
    assert describe_folder(folder(config)).quantization == said


def test_weights_that_are_packed_are_not_counted(tmp_path: Path) -> None:
    """Where the configuration says nothing of types, the tensors do."""
    shutil.copytree(model_path("draft"), tmp_path / "draft")
    (tmp_path / "draft" / "config.json").write_text('{"quantization": {"bits": 4, "group_size": 64}}')
    assert describe_folder(tmp_path / "draft").parameters is None
    (tmp_path / "draft" / "config.json").write_text("{}")
    told = describe_folder(tmp_path / "draft")
    assert told.parameters is not None
    assert told.quantization == "float16"


@pytest.mark.parametrize(
    ("config", "settings"),
    [
        ({"sliding_window": 512, "model_type": "x"}, {"sliding_window": 512, "model_type": "x"}),
        ({"sliding_window": 512, "use_sliding_window": False}, {}),
        ({"sliding_window": None, "vocab_size": 8}, {"vocab_size": 8}),
        (
            {"model_type": "gemma3", "text_config": {"model_type": "t", "sliding_window": 512, "vocab_size": 9}},
            {"model_type": "gemma3", "sliding_window": 512, "vocab_size": 9},
        ),
        ({"vocab_size": "8", "sliding_window": True, "model_type": "x" * 129}, {}),
    ],
)
def test_settings_are_what_hazards_are_foreseen_by(
    folder: Folder, config: dict[str, Any], settings: dict[str, Any]
) -> None:
    assert dict(describe_folder(folder(config)).settings) == settings


@pytest.mark.parametrize("config", ["", "[]", "{", "[" * 100_000, '{"model_type": "a\\nb"}'])
def test_a_bad_configuration_tells_nothing(folder: Folder, config: str) -> None:
    path = folder(config)
    assert describe_folder(path) == ModelIdentity(name=path.name)


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({"tokenizer_config.json": {"chat_template": "a"}}, "a"),
        ({"tokenizer_config.json": {"chat_template": "a"}, "chat_template.jinja": "b\u00e9"}, "b\u00e9"),
        (
            {
                "tokenizer_config.json": {
                    "chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]
                }
            },
            "d",
        ),
        ({"tokenizer_config.json": {}}, None),
        ({"tokenizer_config.json": {"chat_template": [1]}}, None),
    ],
)
def test_the_chat_template_is_found_where_it_is_kept(folder: Folder, files: Any, text: str | None) -> None:
    assert describe_folder(folder({}, **files)).chat_template_sha256 == (None if text is None else sha256(text))


@pytest.mark.parametrize(
    ("model", "added", "kind", "tokens"),
    [
        ({"type": "BPE", "vocab": {"b": 1, "a": 0}}, [], "BPE", ["a", "b"]),
        ({"type": "Unigram", "vocab": [["a", -1.0], ["b", -2.0]]}, [], "Unigram", ["a", "b"]),
        ({"vocab": {"a": 0, "b": 1}}, [{"id": 2, "content": "<s>"}], None, ["a", "b"]),
        ({"vocab": {"a": 1, "b": 2}}, [{"id": 0, "content": "<s>"}], None, ["<s>", "a"]),
        ({"vocab": {"a": 7, "b": 0}}, [], None, ["b", None]),
    ],
)
def test_a_vocabulary_is_read_from_every_kind_of_file(
    folder: Folder, model: Any, added: Any, kind: str | None, tokens: list[str | None]
) -> None:
    """Tokens above its size are those of a fine-tune; a place without one is null."""
    parsed = {"model": model, "added_tokens": added}
    told = describe_folder(folder({}, **{"tokenizer.json": parsed})).tokenizer
    expected = TokenizerIdentity(kind, None, len(tokens), sha256(json.dumps(tokens)), sha256(json.dumps(parsed)))
    assert told == expected


@pytest.mark.parametrize("parsed", [[], {}, {"model": {}}, {"model": {"vocab": 1}}, {"model": {"vocab": [1]}}])
def test_a_tokenizers_file_of_another_kind_is_known_by_content(folder: Folder, parsed: Any) -> None:
    told = describe_folder(folder({}, **{"tokenizer.json": parsed})).tokenizer
    assert told == TokenizerIdentity(content_sha256=sha256(json.dumps(parsed)))


@pytest.mark.mlx
def test_a_tokenizer_written_in_python_has_its_class() -> None:
    """As transformers has it, and as mlx-lm wraps it."""
    from mlx_lm.tokenizer_utils import TokenizerWrapper
    from transformers import ByT5Tokenizer

    tokenizer = ByT5Tokenizer()
    bytes_ = json.dumps(tokenizer.convert_ids_to_tokens(list(range(256))))
    for each in (tokenizer, TokenizerWrapper(tokenizer)):
        told = loaded_model("acme/Tiny", each, None).identity().tokenizer
        assert told == TokenizerIdentity("ByT5Tokenizer", None, 256, sha256(bytes_))


LARGE = 50_000


@pytest.fixture
def large(folder: Folder) -> Folder:
    """Make a folder whose tokenizer knows many tokens, some of them by another name."""

    def make(**renamed: int) -> Path:
        vocab = {f"t{number}": number for number in range(LARGE)}
        for name, number in renamed.items():
            del vocab[f"t{number}"]
            vocab[name] = number
        parsed = {"version": "1.0", "model": {"type": "WordPiece", "unk_token": "t0", "vocab": vocab}}
        parsed["model"] |= {"continuing_subword_prefix": "##", "max_input_chars_per_word": 9}
        return folder({}, **{"tokenizer.json": {**parsed, "added_tokens": []}})

    return make


@pytest.mark.mlx
def test_of_a_large_vocabulary_the_same_sample_is_digested_alive_and_in_its_file(large: Folder) -> None:
    """It takes a hundredth of the time of the whole."""
    from mlx_lm.tokenizer_utils import TokenizerWrapper
    from transformers import PreTrainedTokenizerFast

    path = large()
    asked: list[list[int]] = []

    class Watched(PreTrainedTokenizerFast):  # type: ignore[misc]
        def convert_ids_to_tokens(self, ids: Any, skip_special_tokens: bool = False) -> Any:
            asked.append(list(ids))
            return super().convert_ids_to_tokens(ids, skip_special_tokens)

    tokenizer = TokenizerWrapper(Watched(tokenizer_file=str(path / "tokenizer.json")))
    asked.clear()
    told = loaded_model("acme/Tiny", tokenizer, None).identity().tokenizer
    assert told == replace(describe_folder(path).tokenizer, content_sha256=None)
    assert [len(ids) for ids in asked] == [4_096]


def test_a_large_vocabulary_is_sampled_from_its_first_token_to_its_last(large: Folder) -> None:
    """A token between two that are compared is not seen."""
    digests = [
        describe_folder(path).tokenizer.vocabulary_sha256
        for path in (large(), large(other=0), large(other=LARGE - 1), large(other=1))
    ]
    assert None not in digests
    assert digests[0] == digests[3]
    assert len(set(digests)) == 3


def test_no_folder_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "grace" / "tiny"
    shutil.copytree(model_path("draft"), folder)
    told = repr(describe_folder(folder))
    assert "name='tiny'" in told
    assert [part for part in ("/", "grace", tmp_path.name) if part in told] == []
