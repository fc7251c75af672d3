"""What a model folder for MLX-LM is, and what MLX-LM loaded from it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from otel_specdecode.identity.files import hub_digest, joined, named, open_plain
from otel_specdecode.identity.models import LoadedModel, ModelIdentity, Setting, TokenizerIdentity, told
from otel_specdecode.identity.names import public_name, short_text
from otel_specdecode.identity.safetensors import SafetensorsFiles, read_safetensors, weight_files

_MOST_CONFIG_BYTES = 16 * 1024 * 1024
_MOST_TOKENIZER_BYTES = 256 * 1024 * 1024
_BLOCK_BYTES = 1024 * 1024
_MOST_COMPARED = 4_096


def loaded_model(
    path_or_repo: str | os.PathLike[str], tokenizer: object, adapter_path: str | os.PathLike[str] | None
) -> LoadedModel:
    """Return what `mlx_lm.load` has just loaded.

    Raises nothing; what is not told stays unknown. The vocabulary's sample is digested here, because only the tokenizer
    has it at hand: 7 to 20 ms for 150,000 tokens on a busy machine, whose other threads waited 20 ms at most, beside
    some seconds that it took to load that tokenizer. The files are read when somebody asks, and on that thread; the
    same model's tokenizer.json of 14 MB makes that 10 to 20 ms more.

    Args:
        path_or_repo: The folder or the repository that was loaded.
        tokenizer: Its tokenizer; not kept.
        adapter_path: Folder of the adapter that was loaded on top, if there is one.
    """
    folder = told(partial(_folder, path_or_repo, tokenizer))
    known = ModelIdentity(
        name=told(lambda: public_name(os.fspath(path_or_repo))),
        tokenizer=_live_tokenizer(tokenizer),
        chat_template_sha256=told(lambda: _text_digest(tokenizer.chat_template)),  # type: ignore[attr-defined]
    )
    adapter = None if adapter_path is None else told(lambda: Path(adapter_path).absolute())
    return LoadedModel(known, partial(_from_files, folder, adapter))


def describe_folder(folder: str | os.PathLike[str]) -> ModelIdentity:
    """Return what a model folder holds, without the engine and its tokenizer.

    Raises nothing; what is not told stays unknown. Reads a few MB of each weight file, and parses the tokenizer's file,
    which keeps other threads from running meanwhile, half a second for 150,000 tokens: not for a program
    that generates.
    """
    path = Path(folder)
    known = ModelIdentity(name=told(lambda: public_name(os.fspath(folder))))
    weights = told(lambda: read_safetensors(weight_files(path)))
    return replace(_described(path, weights, known), tokenizer=_tokenizer_of_file(path / "tokenizer.json"))


def _folder(path_or_repo: str | os.PathLike[str], tokenizer: Any) -> Path | None:
    """Return the folder that was loaded, also for later, when the program may stand in another one."""
    path = Path(path_or_repo)
    if not path.is_dir():
        path = Path(tokenizer.name_or_path)
    return path.absolute() if path.is_dir() else None


def _from_files(folder: Path | None, adapter: Path | None, known: ModelIdentity) -> ModelIdentity:
    """Add what the folders tell; raises what read_safetensors() does for the weights and an adapter.

    A model without its adapter's fingerprint would pass for the one without an adapter.
    """
    if folder is None:
        return known
    weights = read_safetensors(weight_files(folder))
    return replace(_described(folder, weights, known), adapter=None if adapter is None else _adapter(adapter))


def _described(folder: Path, weights: SafetensorsFiles | None, known: ModelIdentity) -> ModelIdentity:
    """Add what the files beside the weights tell. One that cannot be read leaves the others' facts."""
    config = told(lambda: _json(folder / "config.json"))
    config = config if isinstance(config, dict) else {}
    quantization = _quantization(config)
    stored = "+".join(weights.dtypes) if weights is not None and weights.dtypes else None
    return replace(
        known,
        fingerprint=None if weights is None else weights.fingerprint,
        content_sha256=None if weights is None else hub_digest(weight_files(folder)),
        architecture=short_text(config.get("model_type")),
        quantization=quantization or short_text(_either(config, "torch_dtype", "dtype")) or stored,
        parameters=None if weights is None or quantization else weights.parameters,
        size_bytes=None if weights is None else weights.size_bytes,
        tokenizer=replace(known.tokenizer, content_sha256=told(lambda: _file_digest(folder / "tokenizer.json"))),
        chat_template_sha256=known.chat_template_sha256 or told(lambda: _template_digest(folder)),
        settings=_settings(config),
    )


def _adapter(folder: Path) -> str:
    """Return the fingerprint of an adapter: of its weights, and how they are put on top."""
    weights = read_safetensors([folder / "adapters.safetensors"])
    return joined([weights.fingerprint, _file_digest(folder / "adapter_config.json")])


def _quantization(config: Mapping[str, Any]) -> str | None:
    """Return how weights are packed, such as `4 bits, group 64`; None where they are not."""
    chosen = config.get("quantization")
    if not isinstance(chosen, dict):
        other = config.get("quantization_config")
        chosen = other if isinstance(other, dict) else {}
    bits, group, mode = (chosen.get(key) for key in ("bits", "group_size", "mode"))
    if type(bits) is not int or type(group) is not int:
        return short_text(chosen.get("quant_method"))
    named_mode = short_text(mode)
    layers = [each for each in chosen.values() if each is False or isinstance(each, dict)]
    mixed = any(each is False or (each.get("bits"), each.get("group_size")) != (bits, group) for each in layers)
    parts = [
        f"{bits} bits",
        f"group {group}",
        named_mode if named_mode != "affine" else None,
        "mixed" if mixed else None,
    ]
    return ", ".join(part for part in parts if part)


def _settings(config: Mapping[str, Any]) -> tuple[Setting, ...]:
    """Return what decides whether drafts can be taken back and ids compared."""
    text = config.get("text_config")
    both = {**config, **text} if isinstance(text, dict) else config
    used = both.get("use_sliding_window") is not False
    found: dict[str, Any] = {
        "max_position_embeddings": both.get("max_position_embeddings"),
        "sliding_window": both.get("sliding_window") if used else None,
        "vocab_size": both.get("vocab_size"),
    }
    settings: list[Setting] = [(name, value) for name, value in found.items() if type(value) is int]
    model_type = short_text(config.get("model_type"))
    return tuple(sorted([*settings, ("model_type", model_type)] if model_type else settings))


def _live_tokenizer(tokenizer: Any) -> TokenizerIdentity:
    size = told(lambda: int(tokenizer.vocab_size))
    if size is None:
        return TokenizerIdentity()
    return TokenizerIdentity(
        kind=told(lambda: _kind(tokenizer)),
        vocabulary_size=size,
        vocabulary_sha256=told(lambda: _vocabulary_digest(tokenizer.convert_ids_to_tokens(_compared_ids(size)))),
    )


def _kind(tokenizer: Any) -> str:
    """Return the algorithm of a fast tokenizer, the class of one that is written in Python."""
    backend = told(lambda: tokenizer.backend_tokenizer)
    inner = getattr(tokenizer, "_tokenizer", tokenizer)  # mlx-lm's wrapper has it there
    return type(inner if backend is None else backend.model).__name__


def _tokenizer_of_file(path: Path) -> TokenizerIdentity:
    content = told(lambda: _file_digest(path))
    parsed: Any = told(lambda: _json(path, _MOST_TOKENIZER_BYTES))
    model = parsed.get("model") if isinstance(parsed, dict) else None
    if not isinstance(model, dict):
        return TokenizerIdentity(content_sha256=content)
    tokens = told(lambda: _tokens(model["vocab"]))
    if tokens is None:
        return TokenizerIdentity(kind=short_text(model.get("type")), content_sha256=content)
    size = len(tokens)
    tokens |= told(lambda: {token["id"]: token["content"] for token in parsed["added_tokens"]}) or {}
    return TokenizerIdentity(
        kind=short_text(model.get("type")),
        vocabulary_size=size,
        vocabulary_sha256=told(lambda: _vocabulary_digest(map(tokens.get, _compared_ids(size)))),
        content_sha256=content,
    )


def _tokens(vocabulary: Any) -> dict[int, str]:
    """Return the tokens by id, of a table of ids, or of Unigram's list of tokens with scores."""
    if isinstance(vocabulary, dict):
        return {number: token for token, number in vocabulary.items()}
    return {number: token for number, (token, _) in enumerate(vocabulary)}


def _compared_ids(size: int) -> Sequence[int]:
    """Return the ids of a vocabulary that are digested: all of them, or as many as are cheap, from first to last."""
    if size <= _MOST_COMPARED:
        return range(size)
    return [(size - 1) * number // (_MOST_COMPARED - 1) for number in range(_MOST_COMPARED)]


def _vocabulary_digest(tokens: Iterable[str | None]) -> str:
    """Return the sha256 over tokens as a list in JSON; null where an id has none."""
    return hashlib.sha256(json.dumps(list(tokens)).encode()).hexdigest()


def _template_digest(folder: Path) -> str | None:
    """Return the digest of the chat template that a folder holds, in a file of its own or among the settings."""
    beside = folder / "chat_template.jinja"
    if beside.is_file():
        return _file_digest(beside)
    template = _json(folder / "tokenizer_config.json").get("chat_template")
    if isinstance(template, list):
        template = {each["name"]: each["template"] for each in template}.get("default")
    return _text_digest(template)


def _text_digest(text: Any) -> str | None:
    return hashlib.sha256(text.encode()).hexdigest() if isinstance(text, str) else None


def _file_digest(path: Path) -> str:
    digest = hashlib.sha256()
    with named(path), open_plain(path) as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _json(path: Path, most: int = _MOST_CONFIG_BYTES) -> Any:
    return json.loads(_content(path, most))


def _content(path: Path, most: int) -> bytes:
    with named(path), open_plain(path) as file:
        content = file.read(most + 1)
        if len(content) > most:
            raise ValueError(f"is larger than {most} bytes")
        return content


def _either(config: Mapping[str, Any], *keys: str) -> Any:
    return next((config[key] for key in keys if config.get(key) is not None), None)
