"""Finding a model by what the user calls it, and reading its files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from otel_specdecode.doctor.children import Answer
from otel_specdecode.doctor.models import ModelError, Place, ask_caches, find_model, read_model
from otel_specdecode.identity.gguf import GGUFFile
from otel_specdecode.tiny_pair import model_path

KV_CACHES = Answer({"caches": [{"kind": "KVCache", "window": None, "trimmable": True, "layers": 4}]})


def hub(root: Path, snapshot: str, *files: str, main: bool = True) -> dict[str, str]:
    """A hub cache with one repository `owner/model`; the environment that points at it."""
    folder = root / "hub" / "models--owner--model"
    (folder / "snapshots" / snapshot).mkdir(parents=True)
    for name in files:
        (folder / "snapshots" / snapshot / name).touch()
    if main:
        (folder / "refs").mkdir()
        (folder / "refs" / "main").write_text(snapshot)
    return {"HF_HOME": str(root)}


def test_a_file_is_a_gguf_file_and_a_folder_with_a_configuration_is_for_mlx(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").touch()
    assert find_model(str(tmp_path / "model.gguf")) == Place("gguf", tmp_path / "model.gguf")
    assert find_model(str(model_path("target"))) == Place("mlx", model_path("target"))


@pytest.mark.parametrize(
    ("files", "format_", "found"),
    [
        (["config.json", "model.safetensors"], "mlx", ""),
        (["model.Q4_K_M.gguf", "README.md"], "gguf", "model.Q4_K_M.gguf"),
        (["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"], "gguf", "m-00001-of-00002.gguf"),
    ],
)
def test_a_hub_id_is_looked_up_in_the_local_cache(tmp_path: Path, files: list[str], format_: str, found: str) -> None:
    environ = hub(tmp_path, "abc", *files)
    place = find_model("owner/model", environ)
    assert (place.format, place.path) == (format_, tmp_path / "hub/models--owner--model/snapshots/abc" / found)


@pytest.mark.parametrize("variable", ["HF_HUB_CACHE", "XDG_CACHE_HOME"])
def test_the_cache_is_where_the_hubs_own_variables_say(tmp_path: Path, variable: str) -> None:
    hub(tmp_path / "huggingface", "abc", "config.json", main=False)
    value = tmp_path / "huggingface" / "hub" if variable == "HF_HUB_CACHE" else tmp_path
    assert find_model("owner/model", {variable: str(value)}).format == "mlx"


def test_a_hub_id_that_is_not_in_the_cache_is_told_with_the_command_that_brings_it(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="nor in the local hub cache") as raised:
        find_model("owner/other", {"HF_HOME": str(tmp_path)})
    assert raised.value.fix == "hf download owner/other"


def test_a_repository_with_several_gguf_files_asks_for_one(tmp_path: Path) -> None:
    environ = hub(tmp_path, "abc", "a.Q4.gguf", "a.Q8.gguf")
    with pytest.raises(ModelError, match=r"several GGUF files in it: a\.Q4\.gguf, a\.Q8\.gguf"):
        find_model("owner/model", environ)


@pytest.mark.parametrize("called", ["/no/such/place", "model.gguf"])
def test_a_path_that_is_not_there_is_told(called: str) -> None:
    with pytest.raises(ModelError, match="no such file or folder"):
        find_model(called, {})


@pytest.mark.parametrize("called", ["~nosuchuser/x", "x" * 5000, "x" * 2500 + "/" + "y" * 2500])
def test_a_name_that_no_system_takes_is_told(called: str) -> None:
    with pytest.raises(ModelError, match=r"^it cannot be looked at \(") as raised:
        find_model(called, {})
    assert "check the path" in raised.value.fix


def test_a_home_folder_that_nobody_knows_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", unknown)
    with pytest.raises(ModelError, match="no such home folder"):
        find_model("owner/model", {})


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "shut").mkdir(mode=0)
    with pytest.raises(ModelError, match=r"it cannot be looked at \(Permission denied\)"):
        find_model(str(tmp_path / "shut"))


@pytest.mark.parametrize("main", [b"\xff\xfe", b"../../..", b"..", b"abc/../../../../other", b"\n"])
def test_a_reference_in_the_cache_leads_nowhere_else(tmp_path: Path, main: bytes) -> None:
    environ = hub(tmp_path, "abc", "config.json", main=False)
    (tmp_path / "config.json").touch()
    (tmp_path / "hub" / "models--owner--model" / "refs").mkdir()
    (tmp_path / "hub" / "models--owner--model" / "refs" / "main").write_bytes(main)
    assert find_model("owner/model", environ).path.name == "abc"


def test_a_stray_file_is_no_snapshot(tmp_path: Path) -> None:
    environ = hub(tmp_path, "abc", "config.json", main=False)
    (tmp_path / "hub" / "models--owner--model" / "snapshots" / ".DS_Store").touch()
    assert find_model("owner/model", environ).path.name == "abc"


@pytest.mark.parametrize(
    ("error", "told"),
    [(RecursionError(), "nested too deeply"), (RuntimeError("no home"), "the home folder of this user is not known")],
)
def test_what_else_goes_wrong_is_told_in_words(
    error: Exception, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Path) -> GGUFFile:
        raise error

    monkeypatch.setattr("otel_specdecode.doctor.models.read_gguf", fail)
    with pytest.raises(ModelError, match=told):
        read_model(Place("gguf", tmp_path / "model.gguf"))


def test_names_of_files_cannot_forge_a_line(tmp_path: Path) -> None:
    for name in ("a\n.gguf", "b\x1b[2J.gguf"):
        (tmp_path / name).touch()
    with pytest.raises(ModelError) as raised:
        find_model(str(tmp_path))
    assert str(raised.value).endswith(r"a\x0a.gguf, b\x1b[2J.gguf")


def test_weights_of_an_absurd_size_are_a_broken_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absurd = GGUFFile(fingerprint="0", size_bytes=10**300)
    monkeypatch.setattr("otel_specdecode.doctor.models.read_gguf", lambda _: absurd)
    with pytest.raises(ModelError, match="more bytes than any file has"):
        read_model(Place("gguf", tmp_path / "model.gguf"))


def test_an_empty_folder_holds_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"neither a config\.json nor a GGUF file"):
        find_model(str(tmp_path))


def test_a_folder_for_mlx_is_read_without_the_engine() -> None:
    model = read_model(Place("mlx", model_path("target")), lambda _: KV_CACHES)
    assert (model.name, model.architecture, model.keeps_state, model.sliding_window) == ("target", "llama", False, None)
    assert model.size_bytes is not None
    assert model.tokenizer.vocabulary_size is not None


def test_caches_that_rotate_or_cannot_be_rewound_are_told() -> None:
    layers = [
        {"kind": "RotatingKVCache", "window": 512, "trimmable": True, "layers": 3},
        {"kind": "ArraysCache", "window": None, "trimmable": False, "layers": 2},
    ]
    model = read_model(Place("mlx", model_path("target")), lambda _: Answer({"caches": layers}))
    assert (model.sliding_window, model.keeps_state) == (512, True)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Answer({}, "ended the process (SIGABRT)"), "asking mlx-lm ended the process (SIGABRT)"),
        (Answer({"failure": "mlx-lm cannot load it (ValueError)"}), "mlx-lm cannot load it (ValueError)"),
    ],
)
def test_caches_that_mlx_lm_does_not_tell_are_unknown(answer: Answer, told: str) -> None:
    model = read_model(Place("mlx", model_path("target")), lambda _: answer)
    assert (model.why_unknown, model.keeps_state) == (told, None)


def test_files_that_cannot_be_read_are_told_without_their_folder(tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"nonsense")
    with pytest.raises(ModelError, match=r"broken\.gguf is not a GGUF file") as raised:
        read_model(find_model(str(tmp_path / "broken.gguf")))
    assert str(tmp_path) not in str(raised.value)
    (tmp_path / "config.json").write_text("[")
    with pytest.raises(ModelError, match=r"config\.json cannot be read"):
        read_model(Place("mlx", tmp_path), lambda _: KV_CACHES)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(ModelError, match="weights cannot be read"):
        read_model(Place("mlx", tmp_path), lambda _: KV_CACHES)


@pytest.mark.mlx
@pytest.mark.parametrize(
    ("model_type", "settings", "expected"),
    [
        ("llama", {}, {("KVCache", None, True)}),
        (
            "gemma3_text",
            {"sliding_window": 32, "sliding_window_pattern": 2},
            {("KVCache", None, True), ("RotatingKVCache", 32, True)},
        ),
    ],
)
def test_mlx_lm_tells_the_caches_of_a_real_folder(
    tmp_path: Path, model_type: str, settings: dict[str, int], expected: set[tuple[str, int | None, bool]]
) -> None:
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lm.utils import _get_classes

    config = json.loads((model_path("draft") / "config.json").read_text()) | {"model_type": model_type} | settings
    config["num_hidden_layers"] = 2
    model_class, arguments_class = _get_classes(config)
    model = model_class(arguments_class.from_dict(config))
    mx.save_safetensors(str(tmp_path / "model.safetensors"), dict(tree_flatten(model.parameters())))
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = ask_caches(tmp_path).found["caches"]
    assert {(each["kind"], each["window"], each["trimmable"]) for each in found} == expected


@pytest.mark.mlx
def test_a_folder_that_mlx_lm_does_not_know_is_told_by_the_kind_of_error(tmp_path: Path) -> None:
    config = json.loads((model_path("draft") / "config.json").read_text()) | {"model_type": "unheard_of"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    os.symlink(model_path("draft") / "model.safetensors", tmp_path / "model.safetensors")
    assert ask_caches(tmp_path).found["failure"].startswith("mlx-lm cannot load it (")
