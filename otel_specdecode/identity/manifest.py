"""The manifest: what runs, as one document with a short id that is the same wherever the same things run."""

from __future__ import annotations

import functools
import json
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from typing import Any, NamedTuple

from otel_specdecode.identity.canonical import canonical_json, sha256_of
from otel_specdecode.identity.declared import Declared
from otel_specdecode.identity.engines import EngineIdentity, engine_identity
from otel_specdecode.identity.models import LoadedModel, ModelIdentity, Setting
from otel_specdecode.version import __version__

SCHEMA_VERSION = 1

_ID_DIGITS = 16
_OF_THE_PLACE = {"name", "content_sha256"}


class Pair(NamedTuple):
    """What a request runs on. Two are equal if they hold the same models, not equal ones.

    Attributes:
        provider: The engine's GenAI provider name, `mlx` or `llama_cpp`.
        method: `none`, `draft_model`, `prompt_lookup` or `custom`.
        target: The target; None if it is not known.
        draft: The draft model; None without one, or if it is not known.
        draft_settings: What else was chosen for the draft, such as prompt lookup's longest match, but for its length,
            which is the request's.
    """

    provider: str
    method: str
    target: LoadedModel | None = None
    draft: LoadedModel | None = None
    draft_settings: tuple[Setting, ...] = ()


@dataclass(frozen=True, slots=True)
class Manifest:
    """What runs. Holds no path, no machine, nothing of a single request; what is not known is left out.

    Attributes:
        id: 16 hex digits of the sha256 over the canonical JSON of the document without `manifest_id`, and of both
            models without what depends on where they lie: their `name` and `content_sha256`.
        document: All of it, as manifest.schema.json describes it. Not to be changed.
        engine_version: Version of the engine's Python package.
        runtime_version: Version of what runs below it.
        policy_hash: Over the gate and guard policies that were declared; None without one.
    """

    id: str
    document: dict[str, Any] = field(compare=False, repr=False)
    engine_version: str | None = None
    runtime_version: str | None = None
    policy_hash: str | None = None

    def to_json(self) -> str:
        """Return the document as JSON, always the same bytes for the same content."""
        return canonical_json(self.document)


def is_told(pair: Pair) -> bool:
    """Return whether every model of a pair has a fingerprint, without which two ids may be equal by mistake.

    Reads the models' files as LoadedModel.identity() does.
    """
    models = [pair.target]
    if pair.draft is not None or pair.method == "draft_model":
        models.append(pair.draft)
    return all(model is not None and model.identity().fingerprint is not None for model in models)


def manifest_of(pair: Pair, declared: Declared) -> Manifest:
    """Return the manifest of what runs, of a pair that is_told(). Made once."""
    return _made(pair, declared, repr(declared))


@functools.lru_cache(maxsize=64)
def _made(pair: Pair, declared: Declared, _: str) -> Manifest:
    """Make a manifest. The text tells declarations apart that are equal to Python and differ in JSON: True and 1."""
    engine = engine_identity(pair.provider)
    draft = {
        "method": pair.method,
        "model": None if pair.draft is None else _model(pair.draft.identity()),
        "settings": dict(pair.draft_settings),
    }
    content = {
        "schema": SCHEMA_VERSION,
        "library": {"name": "otel-specdecode", "version": __version__},
        "engine": _engine(engine),
        "target": None if pair.target is None else _model(pair.target.identity()),
        "draft": _present(draft),
        "declared": _declared(declared),
    }
    document = json.loads(canonical_json(_present(content)))
    manifest_id = sha256_of(_wherever(document))[:_ID_DIGITS]
    return Manifest(
        id=manifest_id,
        document={**document, "manifest_id": manifest_id},
        engine_version=engine.version,
        runtime_version=engine.runtime_version,
        policy_hash=_policy_hash(declared),
    )


def vocabularies_differ(target: ModelIdentity, draft: ModelIdentity) -> bool:
    """Return whether two vocabularies of one size are known to differ, so that an id means two things.

    What other sizes mean is each engine's own.
    """
    one, other = target.tokenizer, draft.tokenizer
    if None in (one.vocabulary_size, one.vocabulary_sha256, other.vocabulary_size, other.vocabulary_sha256):
        return False
    return one.vocabulary_size == other.vocabulary_size and one.vocabulary_sha256 != other.vocabulary_sha256


def schema() -> dict[str, Any]:
    """Return the JSON schema of a manifest's document."""
    text = (files(__package__) / "manifest.schema.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def _present(facts: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is not known, and what holds nothing that is."""
    return {key: value for key, value in facts.items() if value is not None and value not in ({}, ())}


def _wherever(document: dict[str, Any]) -> dict[str, Any]:
    """Leave out of both models what another folder, or a copy of it, changes."""
    draft = {**document["draft"], "model": _placeless(document["draft"].get("model"))}
    return _present({**document, "target": _placeless(document.get("target")), "draft": _present(draft)})


def _placeless(model: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if model is None else {key: value for key, value in model.items() if key not in _OF_THE_PLACE}


def _engine(engine: EngineIdentity) -> dict[str, Any]:
    runtime = _present({"name": engine.runtime, "version": engine.runtime_version})
    return _present({"provider": engine.provider, "name": engine.name, "version": engine.version, "runtime": runtime})


def _model(identity: ModelIdentity) -> dict[str, Any]:
    facts = asdict(identity)
    return _present({**facts, "tokenizer": _present(facts["tokenizer"]), "settings": dict(identity.settings)})


def _declared(declared: Declared) -> dict[str, Any]:
    """Return what was declared, without the run, which is another one the next time the same things run."""
    facts = asdict(declared)
    del facts["run_id"]
    return _present({**facts, "sampling": dict(declared.sampling)})


def _policy_hash(declared: Declared) -> str | None:
    policies = _present({"gate": declared.gate_policy, "guard": declared.guard_policy})
    return sha256_of(policies)[:_ID_DIGITS] if policies else None
