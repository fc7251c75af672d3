"""What ran, on the real engines: one id wherever the same things run, another one wherever something else does."""

from __future__ import annotations

import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from otel_specdecode.identity import declared
from otel_specdecode.identity.manifest import schema
from otel_specdecode.telemetry.names import Attr, Event, Metrics
from otel_specdecode.testing.capture import Telemetry, capture
from otel_specdecode.testing.checker import assert_conformant
from otel_specdecode.tiny_pair.cycle import build
from tests.engines.spans import attributes
from tests.programs import run_program

PROMPT = [301, 302]


class Files(NamedTuple):
    """Where the models of a pair lie, both of the same size for the same kind of pair."""

    target: Path
    draft: Path


class Runs(ABC):
    """Loads an engine's models and makes requests of them."""

    name: str

    @abstractmethod
    def write(self, folder: Path, *, seed: int = 0, swapped: bool = False) -> Files:
        """Write a pair of models in the engine's format; swapped: the last two words have each other's id."""

    @abstractmethod
    def weights(self, model: Path) -> Path:
        """Return the file that has a model's weights."""

    @abstractmethod
    def load(self, model: Path) -> Any:
        """Load a model."""

    @abstractmethod
    def run(self, target: Any, draft: Any = None) -> None:
        """Make a request of loaded models."""


class MLX(Runs):
    name = "mlx_lm"

    def write(self, folder: Path, *, seed: int = 0, swapped: bool = False) -> Files:
        pair = build(folder, seed=seed)
        if swapped:
            swap_words(pair.target, pair.draft)
        return Files(pair.target, pair.draft)

    def weights(self, model: Path) -> Path:
        return model / "model.safetensors"

    def load(self, model: Path) -> Any:
        import mlx_lm

        return mlx_lm.load(str(model))[:2]

    def run(self, target: Any, draft: Any = None) -> None:
        import mlx_lm

        options = {} if draft is None else {"draft_model": draft[0], "num_draft_tokens": 3}
        list(mlx_lm.stream_generate(*target, PROMPT, max_tokens=5, **options))


class LlamaCpp(Runs):
    name = "llama_cpp"

    def write(self, folder: Path, *, seed: int = 0, swapped: bool = False) -> Files:
        from otel_specdecode.tiny_pair.gguf import convert

        folders = MLX().write(folder / "folders", seed=seed, swapped=swapped)
        return Files(*(convert(each, folder / f"{each.name}.gguf", "f32") for each in folders))

    def weights(self, model: Path) -> Path:
        return model

    def load(self, model: Path) -> Any:
        import llama_cpp

        options = {"n_ctx": 256, "n_threads": 1, "n_threads_batch": 1, "verbose": False}
        return llama_cpp.Llama(str(model), logits_all=True, **options)

    def run(self, target: Any, draft: Any = None) -> None:
        import numpy as np
        from llama_cpp.llama_speculative import LlamaDraftModel

        class Draft(LlamaDraftModel):  # type: ignore[misc]
            """Holds any second model, as a program's own would, without a look at its vocabulary."""

            num_pred_tokens = 3

            def __init__(self) -> None:
                self.llama = draft

            def __call__(self, input_ids: Any, /, **_: Any) -> Any:
                self.llama.reset()
                said = self.llama.generate(input_ids.tolist(), temp=0.0)
                return np.array([next(said) for _ in range(self.num_pred_tokens)], dtype=np.intc)

        target.reset()
        target.draft_model = None if draft is None else Draft()
        target.create_completion(PROMPT, max_tokens=5, temperature=0.0)


def swap_words(*folders: Path) -> None:
    """Have the last two words of folders' tokenizers take each other's id: as many tokens, but not the same."""
    for folder in folders:
        path = folder / "tokenizer.json"
        content = json.loads(path.read_text(encoding="utf-8"))
        ids = content["model"]["vocab"]
        *_, one, other = sorted(ids, key=ids.__getitem__)
        ids[one], ids[other] = ids[other], ids[one]
        path.write_text(json.dumps(content), encoding="utf-8")


@pytest.fixture(
    params=[
        pytest.param(MLX, id="mlx_lm", marks=pytest.mark.mlx),
        pytest.param(LlamaCpp, id="llama_cpp", marks=pytest.mark.llama_cpp),
    ]
)
def runs(request: pytest.FixtureRequest) -> Runs:
    """Each of the real engines."""
    if request.param is LlamaCpp:
        pytest.importorskip("gguf", reason="needs the [demo] extra")
    made: Runs = request.param()
    return made


@pytest.fixture
def telemetry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Telemetry]:
    """The engines instrumented into memory; nothing is declared."""
    monkeypatch.delenv(declared.RUN_ID, raising=False)
    monkeypatch.setattr(declared, "_current", None)
    with capture() as captured:
        yield captured


def ran(runs: Runs, telemetry: Telemetry, target: Path, draft: Path | None = None) -> str:
    """Load models, make one request, and return the manifest id of its span."""
    telemetry.clear()
    runs.run(runs.load(target), None if draft is None else runs.load(draft))
    found = {attributes(span)[Attr.SPECDECODE_MANIFEST_ID] for span in telemetry.spans() if is_request(span)}
    (manifest_id,) = found
    return str(manifest_id)


def is_request(span: Any) -> bool:
    """Whether a span is not of the draft's own calls, which a draft of this kind makes by the same engine."""
    return attributes(span)[Attr.GEN_AI_REQUEST_MODEL] == "target"


def flip_last_byte(path: Path) -> None:
    """Change one byte of a file, and nothing else but the time of its change."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_autoregressive_and_speculative_runs_of_one_target_have_two_ids(
    runs: Runs, telemetry: Telemetry, tmp_path: Path
) -> None:
    files = runs.write(tmp_path)
    target, draft = runs.load(files.target), runs.load(files.draft)
    for drafting in (None, draft, None, draft):
        runs.run(target, drafting)
    found = [attributes(span) for span in telemetry.spans() if is_request(span)]
    ids = [each[Attr.SPECDECODE_MANIFEST_ID] for each in found]
    assert [each[Attr.SPECDECODE_MODE] for each in found] == ["autoregressive", "speculative"] * 2
    assert ids[0] == ids[2] != ids[1] == ids[3]
    assert_conformant(logs=telemetry.logs(), metrics=telemetry.metrics_data())


@pytest.mark.parametrize("drafts", [False, True], ids=["target alone", "pair"])
def test_the_same_files_elsewhere_and_loaded_again_have_the_same_id(
    drafts: bool, runs: Runs, telemetry: Telemetry, tmp_path: Path
) -> None:
    (tmp_path / "one").mkdir()
    files = runs.write(tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "a deeper" / "other")
    copies = [tmp_path / "a deeper" / "other" / path.relative_to(tmp_path / "one") for path in files]
    first = ran(runs, telemetry, files.target, files.draft if drafts else None)
    assert ran(runs, telemetry, files.target, files.draft if drafts else None) == first
    assert ran(runs, telemetry, copies[0], copies[1] if drafts else None) == first


@pytest.mark.parametrize("changed", ["target", "draft"])
def test_one_byte_of_the_weights_makes_another_id(
    changed: str, runs: Runs, telemetry: Telemetry, tmp_path: Path
) -> None:
    files = runs.write(tmp_path)
    before = ran(runs, telemetry, *files)
    flip_last_byte(runs.weights(getattr(files, changed)))
    assert ran(runs, telemetry, *files) != before


def test_another_draft_makes_another_id(runs: Runs, telemetry: Telemetry, tmp_path: Path) -> None:
    """One of the same name and size."""
    (tmp_path / "other").mkdir()
    files, others = runs.write(tmp_path), runs.write(tmp_path / "other", seed=1)
    assert ran(runs, telemetry, *files) != ran(runs, telemetry, files.target, others.draft)


def test_another_tokenizer_makes_another_id(runs: Runs, telemetry: Telemetry, tmp_path: Path) -> None:
    """The same weights, and as many tokens."""
    (tmp_path / "other").mkdir()
    files, others = runs.write(tmp_path), runs.write(tmp_path / "other", swapped=True)
    assert ran(runs, telemetry, files.target) != ran(runs, telemetry, others.target)


def test_a_draft_with_another_vocabulary_of_the_same_size_is_a_hazard(
    runs: Runs, telemetry: Telemetry, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    files, others = runs.write(tmp_path), runs.write(tmp_path / "other", swapped=True)
    target = runs.load(files.target)
    for draft in (files.draft, others.draft, None):
        runs.run(target, None if draft is None else runs.load(draft))
    found = [attributes(span) for span in telemetry.spans() if is_request(span)]
    met = ["vocab_mismatch" in each.get(Attr.SPECDECODE_HAZARD_IDS, ()) for each in found]
    assert met == [False, True, False]
    (event,) = telemetry.events(Event.SPECDECODE_HAZARD_DETECTED)
    assert event.attributes[Attr.SPECDECODE_MANIFEST_ID] == found[1][Attr.SPECDECODE_MANIFEST_ID]


def test_the_document_is_told_once_a_pair_and_is_as_its_schema_says(
    runs: Runs, telemetry: Telemetry, tmp_path: Path
) -> None:
    """All that can be told of the models is told, and the info metric has the same ids."""
    jsonschema = pytest.importorskip("jsonschema")
    files = runs.write(tmp_path)
    target, draft = runs.load(files.target), runs.load(files.draft)
    for drafting in (None, draft, None, draft):
        runs.run(target, drafting)
    told = [event.attributes for event in telemetry.events(Event.SPECDECODE_MANIFEST)]
    documents = [json.loads(each[Attr.SPECDECODE_MANIFEST_DOCUMENT]) for each in told]
    for document in documents:
        jsonschema.Draft202012Validator(schema()).validate(document)
    ids = [document["manifest_id"] for document in documents]
    assert ids == [each[Attr.SPECDECODE_MANIFEST_ID] for each in told]
    spans = {attributes(span)[Attr.SPECDECODE_MANIFEST_ID] for span in telemetry.spans()}
    assert set(ids) == spans
    assert len(set(ids)) == len(ids)
    points = telemetry.points(Metrics.SPECDECODE_CONFIG_INFO.name)
    assert {point.labels[Attr.SPECDECODE_MANIFEST_ID] for point in points} == spans
    pairs = [document for document in documents if "model" in document["draft"]]
    (pair,) = pairs
    for model, name in ((pair["target"], "target"), (pair["draft"]["model"], "draft")):
        assert model["name"] == name
        assert model["architecture"] == "llama"
        assert model["parameters"] > 60_000
        assert set(model) >= {"fingerprint", "quantization", "size_bytes", "tokenizer", "chat_template_sha256"}
        assert set(model["tokenizer"]) >= {"kind", "vocabulary_size", "vocabulary_sha256"}
    assert pair["engine"]["name"]
    assert pair["engine"]["version"]


PROGRAM = """
    import sys
    from pathlib import Path
    import otel_specdecode
    from otel_specdecode.testing import capture
    from tests.engines.test_manifests import LlamaCpp, MLX, is_request
    runs = {"mlx_lm": MLX, "llama_cpp": LlamaCpp}[sys.argv[1]]()
    with capture() as telemetry:
        runs.run(*map(runs.load, map(Path, sys.argv[2:4])))
        print({dict(span.attributes)["specdecode.manifest.id"] for span in telemetry.spans() if is_request(span)})
"""


def test_two_processes_tell_the_same_id(runs: Runs, telemetry: Telemetry, tmp_path: Path) -> None:
    """Whatever run they belong to, and whatever order Python's sets have in them."""
    files = runs.write(tmp_path)
    here = ran(runs, telemetry, *files)
    for number in "12":
        environment = {"PYTHONHASHSEED": number, "OTEL_SPECDECODE_RUN_ID": number, "HOME": str(tmp_path / number)}
        printed = run_program(PROGRAM, runs.name, *map(str, files), **environment)
        assert printed.strip() == str({here})
