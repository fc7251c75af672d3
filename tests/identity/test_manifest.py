"""The manifest of what runs, and its id."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_specdecode.identity import manifest as module
from otel_specdecode.identity.declared import Declared
from otel_specdecode.identity.engines import EngineIdentity
from otel_specdecode.identity.manifest import Manifest, Pair, is_told, manifest_of, schema, vocabularies_differ
from otel_specdecode.identity.mlx_lm import describe_folder
from otel_specdecode.identity.models import LoadedModel, ModelIdentity, TokenizerIdentity
from otel_specdecode.tiny_pair import model_path
from tests.identity.weight_files import in_hub

jsonschema = pytest.importorskip("jsonschema", reason="needs the [dev] extra")

TARGET = ModelIdentity(
    name="acme/Tiny-1M",
    fingerprint="1" * 64,
    content_sha256="a" * 64,
    adapter="2" * 64,
    architecture="llama",
    quantization="4 bits, group 64",
    parameters=1_000_000,
    size_bytes=500_000,
    tokenizer=TokenizerIdentity("BPE", "qwen2", 1_024, "3" * 64, "4" * 64),
    chat_template_sha256="5" * 64,
    settings=(("lora_scale", 1.0), ("n_ctx", 512), ("type_k", "f16")),
)
DRAFT = ModelIdentity(name="acme/Draft-100K", fingerprint="6" * 64)
DECLARED = Declared(
    run_id="canary-7",
    draft_length=4,
    stop_sequences=("\n\n", "</s>"),
    sampling=(("greedy", False), ("temperature", 0.7)),
    gate_policy=f"sha256:{'7' * 64}",
    guard_policy=f"sha256:{'8' * 64}",
    side_load_note="Tokenizer patched by hand \u2013 see notes",
)
GOLDEN = Path(__file__).parent / "manifest.golden.json"


@pytest.fixture
def pinned_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions that no release changes."""
    engine = EngineIdentity("mlx", "mlx-lm", "0.32.2", "mlx", "0.32.4")
    monkeypatch.setattr(module, "engine_identity", lambda provider: replace(engine, provider=provider))
    monkeypatch.setattr(module, "__version__", "0.1.0")


def made(
    target: ModelIdentity | None = TARGET,
    draft: ModelIdentity | None = DRAFT,
    declared: Declared = DECLARED,
    provider: str = "mlx",
    method: str = "draft_model",
    settings: Any = (("ngram", 2),),
) -> Manifest:
    models = [None if each is None else LoadedModel(each) for each in (target, draft)]
    return manifest_of(Pair(provider, method, *models, settings), declared)


def check(manifest: Manifest) -> None:
    """The document is as the schema says, and its id as the document's own text says."""
    jsonschema.validate(manifest.document, schema(), cls=jsonschema.Draft202012Validator)
    assert json.loads(manifest.to_json()) == manifest.document
    content = json.loads(manifest.to_json())
    del content["manifest_id"]
    for model in (content["target"], content["draft"].get("model", {})):
        for key in ("name", "content_sha256"):
            model.pop(key, None)
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert manifest.id == manifest.document["manifest_id"] == hashlib.sha256(text.encode()).hexdigest()[:16]


# The document


@pytest.mark.usefixtures("pinned_versions")
def test_one_document_and_its_id_are_pinned() -> None:
    """Byte for byte: dashboards and rollouts compare ids over releases."""
    manifest = made()
    check(manifest)
    assert manifest.to_json() + "\n" == GOLDEN.read_text(encoding="utf-8")
    assert manifest.id == "4a580d73fdfb6c1c"
    assert (manifest.engine_version, manifest.runtime_version) == ("0.32.2", "0.32.4")


def test_what_is_not_known_is_left_out() -> None:
    manifest = made(ModelIdentity(fingerprint="1" * 64), None, Declared(), "other", "none", ())
    check(manifest)
    library = {"name": "otel-specdecode", "version": module.__version__}
    assert manifest.document == {
        "schema": 1,
        "manifest_id": manifest.id,
        "library": library,
        "engine": {"provider": "other"},
        "target": {"fingerprint": "1" * 64},
        "draft": {"method": "none"},
    }
    assert manifest == Manifest(manifest.id, {}, None, None, None)


def test_the_run_is_not_in_it() -> None:
    """It is another one the next time the same things run."""
    assert "canary-7" not in made().to_json()


def test_a_name_of_any_bytes_is_written_down() -> None:
    manifest = made(replace(TARGET, name="tiny-\udcff"))
    check(manifest)
    assert manifest.document["target"]["name"] == "tiny-?"


def test_no_folder_is_in_it() -> None:
    """Of where a model lies only its public name is told."""
    folder = model_path("target")
    manifest = made(describe_folder(folder), describe_folder(model_path("draft")), Declared())
    check(manifest)
    assert manifest.document["target"]["name"] == "target"
    text = manifest.to_json().replace('"otel-specdecode"', "")
    assert [part for part in folder.parent.parts if len(part) > 3 and part in text] == []
    assert "/" not in text


# The id

CHANGED_PLACE: dict[str, Any] = {"name": "other", "content_sha256": "b" * 64}
CHANGED_MODEL: dict[str, Any] = {
    "fingerprint": "9" * 64,
    "adapter": None,
    "architecture": "qwen2",
    "quantization": "8 bits, group 64",
    "parameters": 1_000_001,
    "size_bytes": 500_001,
    "tokenizer": replace(TARGET.tokenizer, vocabulary_sha256="9" * 64),
    "chat_template_sha256": "9" * 64,
    "settings": (("lora_scale", 1.5), ("n_ctx", 512), ("type_k", "f16")),
}
CHANGED_TOKENIZER: dict[str, Any] = {
    "kind": "other",
    "pre": None,
    "vocabulary_size": 2,
    "vocabulary_sha256": "9" * 64,
    "content_sha256": "9" * 64,
}
CHANGED_DECLARED: dict[str, Any] = {
    "draft_length": 0,
    "stop_sequences": ("\n\n",),
    "sampling": (("greedy", 0), ("temperature", 0.7)),
    "gate_policy": f"sha256:{'9' * 64}",
    "guard_policy": None,
    "side_load_note": "other",
}


def test_every_fact_is_tried_below() -> None:
    assert CHANGED_MODEL.keys() | CHANGED_PLACE.keys() == {field.name for field in fields(ModelIdentity)}
    assert CHANGED_TOKENIZER.keys() == {field.name for field in fields(TokenizerIdentity)}
    assert CHANGED_DECLARED.keys() | {"run_id"} == {field.name for field in fields(Declared)}


def test_a_change_of_any_fact_is_another_id() -> None:
    """Of target, draft, their tokenizers, what was declared, the draft's settings, method and engine."""
    all_made = [made(), made(TARGET, None), made(DRAFT, TARGET)]
    for key, value in CHANGED_MODEL.items():
        all_made += [
            made(replace(TARGET, **{key: value})),
            made(TARGET, replace(DRAFT, **{key: value or TARGET.adapter})),
        ]
    for key, value in CHANGED_TOKENIZER.items():
        all_made.append(made(replace(TARGET, parameters=5, tokenizer=replace(TARGET.tokenizer, **{key: value}))))
    all_made += [made(declared=replace(DECLARED, **{key: value})) for key, value in CHANGED_DECLARED.items()]
    all_made += [made(settings=(("ngram", 3),)), made(method="custom"), made(provider="llama_cpp")]
    for each in all_made:
        check(each)
    assert len({each.id for each in all_made}) == len(all_made)


def test_another_version_of_engine_or_library_is_another_id(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = set()
    for library, engine, runtime in (("1", "1", "1"), ("2", "1", "1"), ("1", "2", "1"), ("1", "1", "2")):
        monkeypatch.setattr(module, "__version__", library)
        identity = EngineIdentity("mlx", "mlx-lm", engine, "mlx", runtime)
        monkeypatch.setattr(module, "engine_identity", lambda _, identity=identity: identity)
        ids.add(made().id)
    assert len(ids) == 4


def test_another_place_is_the_same_id() -> None:
    """Its name, and whether a hub cache has the sha256 of what lies there. The document tells both."""
    for key, value in CHANGED_PLACE.items():
        for other in (made(replace(TARGET, **{key: value})), made(TARGET, replace(DRAFT, **{key: value}))):
            check(other)
            assert other.id == made().id
            assert other.document != made().document


def test_a_copy_in_another_folder_and_a_hub_caches_snapshot_have_the_same_id(tmp_path: Path) -> None:
    """As if it were one model."""
    shipped = model_path("target")
    copy = tmp_path / "home" / "ada" / "my-model"
    shutil.copytree(shipped, copy)
    for file in copy.iterdir():
        in_hub(tmp_path / "models--acme--Tiny", file.name, file.read_bytes())
    snapshot = tmp_path / "models--acme--Tiny" / "snapshots" / "0123abc"
    manifests = [
        manifest_of(Pair("mlx", "none", LoadedModel(describe_folder(folder))), Declared())
        for folder in (shipped, copy, snapshot)
    ]
    names = [each.document["target"]["name"] for each in manifests]
    assert names == ["target", "my-model", "acme/Tiny"]
    assert len({each.id for each in manifests}) == 1
    weights = hashlib.sha256((copy / "model.safetensors").read_bytes()).hexdigest()
    assert [each.document["target"].get("content_sha256") for each in manifests] == [None, None, weights]


def test_another_run_is_the_same_id() -> None:
    assert made(declared=replace(DECLARED, run_id=None)) == made()


SETTINGS = st.dictionaries(
    st.text(max_size=5), st.text(max_size=5) | st.booleans() | st.integers() | st.floats(-1e9, 1e9), max_size=4
)


@given(SETTINGS, SETTINGS, st.randoms())
def test_order_of_settings_has_no_meaning(settings: dict[str, Any], sampling: dict[str, Any], random: Any) -> None:
    def told(pairs: dict[str, Any]) -> tuple[Any, ...]:
        mixed = list(pairs.items())
        random.shuffle(mixed)
        return tuple(mixed)

    one, other = (
        made(
            replace(TARGET, settings=told(settings)),
            declared=replace(DECLARED, sampling=told(sampling)),
            settings=told(settings),
        )
        for _ in range(2)
    )
    check(one)
    assert one.to_json() == other.to_json()


@pytest.mark.parametrize("seed", ["0", "1", "2"])
def test_every_process_comes_to_the_same_id(seed: str) -> None:
    script = (
        "from otel_specdecode.identity.manifest import *; from otel_specdecode.identity.declared import declared;"
        "from otel_specdecode.identity.mlx_lm import describe_folder; from otel_specdecode.tiny_pair import model_path;"
        "from otel_specdecode.identity.models import LoadedModel;"
        "model = LoadedModel(describe_folder(model_path('target')));"
        "print(manifest_of(Pair('mlx', 'none', model), declared()).to_json())"
    )
    environment = {"PYTHONHASHSEED": seed, "HOME": "/nonexistent", "PYTHONPATH": ":".join(filter(None, sys.path))}
    finished = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60, env=environment
    )
    model = LoadedModel(describe_folder(model_path("target")))
    assert finished.stdout == manifest_of(Pair("mlx", "none", model), Declared()).to_json() + "\n"


# What has none


@pytest.mark.parametrize(
    ("method", "target", "draft", "told"),
    [
        ("none", TARGET, None, True),
        ("prompt_lookup", TARGET, None, True),
        ("draft_model", TARGET, DRAFT, True),
        ("custom", TARGET, DRAFT, True),
        ("none", None, None, False),
        ("none", ModelIdentity("a"), None, False),
        ("draft_model", TARGET, None, False),
        ("draft_model", TARGET, ModelIdentity("a"), False),
        ("custom", TARGET, ModelIdentity("a"), False),
        ("draft_model", ModelIdentity("a"), DRAFT, False),
    ],
)
def test_what_runs_is_told_if_every_model_has_a_fingerprint(
    method: str, target: ModelIdentity | None, draft: ModelIdentity | None, told: bool
) -> None:
    """Without one, two models that differ would have one id."""
    models = [None if each is None else LoadedModel(each) for each in (target, draft)]
    assert is_told(Pair("mlx", method, *models)) is told


def test_whoever_asks_has_the_files_read() -> None:
    model = LoadedModel(ModelIdentity("a"), lambda known: replace(known, fingerprint="1" * 64))
    assert is_told(Pair("mlx", "none", model))


# What it costs


def test_a_manifest_is_made_once() -> None:
    """And a model's files are read once, whatever it runs with."""
    reads = []

    def complete(known: ModelIdentity) -> ModelIdentity:
        reads.append(known)
        return replace(known, parameters=7)

    target = LoadedModel(TARGET, complete)
    pair = Pair("mlx", "none", target)
    first = manifest_of(pair, DECLARED)
    assert manifest_of(Pair("mlx", "none", target), replace(DECLARED)) is first
    assert manifest_of(pair, Declared()) is not first
    assert first.document["target"]["parameters"] == 7
    assert reads == [TARGET]


def test_two_models_alike_are_two_pairs() -> None:
    """Their manifests are equal, though."""
    one, other = (Pair("mlx", "none", LoadedModel(TARGET)) for _ in range(2))
    assert one != other
    assert manifest_of(one, DECLARED) == manifest_of(other, DECLARED)


# What labels and hazards ask


def test_the_policies_have_one_hash() -> None:
    gate, guard = DECLARED.gate_policy, DECLARED.guard_policy
    hashes = [
        made(declared=declared).policy_hash
        for declared in (
            Declared(),
            Declared(gate_policy=gate),
            Declared(guard_policy=gate),
            Declared(gate_policy=gate, guard_policy=guard),
            Declared(gate_policy=guard, guard_policy=gate),
        )
    ]
    assert hashes[0] is None
    assert len(set(hashes)) == 5
    assert {len(each) for each in hashes if each} == {16}


@pytest.mark.parametrize(
    ("target", "draft", "differ"),
    [
        ((8, "a"), (8, "b"), True),
        ((8, "a"), (8, "a"), False),
        ((8, "a"), (9, "b"), False),
        ((8, None), (8, "b"), False),
        ((8, "a"), (8, None), False),
        ((None, "a"), (None, "b"), False),
    ],
)
def test_vocabularies_differ_where_one_size_has_other_tokens(target: Any, draft: Any, differ: bool) -> None:
    """Of other sizes the engines have rules of their own."""
    one, other = (
        ModelIdentity(tokenizer=TokenizerIdentity(vocabulary_size=size, vocabulary_sha256=digest))
        for size, digest in (target, draft)
    )
    assert vocabularies_differ(one, other) is differ


# The schema


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())


def objects(part: Any) -> list[dict[str, Any]]:
    inner = list(part.values()) if isinstance(part, dict) else part if isinstance(part, list) else []
    found = [each for value in inner for each in objects(value)]
    return [*found, part] if isinstance(part, dict) and part.get("type") == "object" else found


def test_nothing_else_may_stand_in_a_document() -> None:
    """But for names in settings, which are the engines' and the operator's."""
    assert [each["additionalProperties"] for each in objects(schema())].count(False) == len(objects(schema())) - 1
    for place in ("library", "engine", "target", "draft", "declared"):
        document = json.loads(made().to_json())
        document[place]["path"] = "/home/ada"
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(document, schema())


def test_the_schema_says_of_every_part_what_it_is() -> None:
    parts = [part for each in objects(schema()) for part in each.get("properties", {}).values()]
    assert len(parts) > 30
    assert [part for part in parts if not part.get("description") and part.get("const") != "otel-specdecode"] == []


def test_true_and_1_are_declared_differently_in_any_order() -> None:
    """Python calls them equal, and a cache would take one for the other."""
    pair = Pair("mlx", "none", LoadedModel(ModelIdentity("target", "f" * 64)))
    first, second = (Declared(sampling=(("greedy", value),)) for value in (True, 1))
    ids = [manifest_of(pair, each).id for each in (first, second, first)]
    assert ids[0] == ids[2] != ids[1]
