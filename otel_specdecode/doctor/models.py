"""Finds a model by what the user calls it, and reads what its files tell. Nothing is downloaded."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from otel_specdecode.doctor.children import Answer, ask_child
from otel_specdecode.doctor.texts import one_line
from otel_specdecode.identity.gguf import gguf_name, read_gguf
from otel_specdecode.identity.mlx_lm import describe_folder
from otel_specdecode.identity.models import TokenizerIdentity
from otel_specdecode.identity.names import public_name

Format = Literal["gguf", "mlx"]

_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
_REVISION = re.compile(r"(?!\.+$)[\w.-]+", re.ASCII)
_LATER_SHARD = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$", re.IGNORECASE)
_CACHES_SECONDS = 120.0
_MOST_BYTES = 1 << 63
_AGAIN = "download it again"


class ModelError(Exception):
    """A model that cannot be looked at; the text says why.

    Attributes:
        fix: What to do about it.
    """

    def __init__(self, why: str, fix: str = "") -> None:
        """Say why, and what to do."""
        super().__init__(why)
        self.fix = fix


@dataclass(frozen=True, slots=True)
class Place:
    """Where a model lies: a GGUF file or an MLX folder."""

    format: Format
    path: Path


@dataclass(frozen=True, slots=True)
class Model:
    """What a model's files tell; each fact is None where they do not.

    Attributes:
        place: Where it lies.
        name: Its name, never a path.
        architecture: As its files name it.
        quantization: How the weights are stored.
        size_bytes: Bytes of all tensors.
        tokenizer: Its tokenizer.
        context_length: Tokens that it was trained for.
        sliding_window: Tokens that a layer of sliding-window attention sees.
        keeps_state: Whether a layer keeps a recurrent state, which cannot be rewound.
        why_unknown: Why the two before it are not known; empty if they are.
    """

    place: Place
    name: str
    architecture: str | None
    quantization: str | None
    size_bytes: int | None
    tokenizer: TokenizerIdentity
    context_length: int | None = None
    sliding_window: int | None = None
    keeps_state: bool | None = None
    why_unknown: str = ""


def ask_caches(folder: Path) -> Answer:
    """Ask mlx-lm, in a process of its own, which caches a model gets."""
    return ask_child("otel_specdecode.doctor.mlx_caches", str(folder), timeout=_CACHES_SECONDS)


def find_model(called: str, environ: Mapping[str, str] = os.environ) -> Place:
    """Return where a model lies.

    Args:
        called: A GGUF file, an MLX folder, or a hub id such as `owner/name`.
        environ: Says where the hub's cache is.

    Raises:
        ModelError: It is not here.
    """
    try:
        return _find(called, environ)
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: of a home folder that nobody knows
        told = "no such home folder" if isinstance(error, RuntimeError) else type(error).__name__
        reason = getattr(error, "strerror", None) or told
        raise ModelError(f"it cannot be looked at ({reason})", "check the path and its permissions") from None


def _find(called: str, environ: Mapping[str, str]) -> Place:
    path = Path(called).expanduser()
    if path.is_file():
        return Place("gguf", path)
    if path.is_dir():
        return _in_folder(path)
    if not _REPOSITORY.fullmatch(called):
        raise ModelError("there is no such file or folder", "check the path")
    snapshot = _snapshot(called, environ)
    if snapshot is None:
        raise ModelError("it is neither a file or folder nor in the local hub cache", f"hf download {called}")
    return _in_folder(snapshot)


def read_model(place: Place, caches: Callable[[Path], Answer] = ask_caches) -> Model:
    """Read what a model's files tell.

    Raises:
        ModelError: They cannot be read.
    """
    try:
        model = _of_file(place) if place.format == "gguf" else _of_folder(place, caches)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ModelError(f"it cannot be read ({reason})", "check the file and its permissions") from None
    except ValueError as error:
        raise ModelError(f"it cannot be read: {one_line(str(error))}", _AGAIN) from None
    except RecursionError:
        raise ModelError("it cannot be read: its JSON is nested too deeply", _AGAIN) from None
    except RuntimeError:
        raise ModelError("it cannot be named: the home folder of this user is not known", "set HOME") from None

    if model.size_bytes is not None and model.size_bytes > _MOST_BYTES:
        raise ModelError("it cannot be read: by its header the weights take more bytes than any file has", _AGAIN)
    return model


def _in_folder(folder: Path) -> Place:
    os.scandir(folder).close()  # glob() passes over a folder that may not be read
    if (folder / "config.json").is_file():
        return Place("mlx", folder)
    found = (path for pattern in ("*.gguf", "*/*.gguf") for path in folder.glob(pattern))
    files = sorted(path for path in found if not _LATER_SHARD.search(path.name))
    if len(files) == 1:
        return Place("gguf", files[0])
    if files:
        names = ", ".join(one_line(path.name) for path in files[:8])
        raise ModelError(f"there are several GGUF files in it: {names}", "name one of them, with its folder")
    raise ModelError("the folder holds neither a config.json nor a GGUF file", "check the path, or download it again")


def _snapshot(repository: str, environ: Mapping[str, str]) -> Path | None:
    """Return the newest snapshot of a repository in the hub's cache, the one that `main` points at first."""
    home = environ.get("HF_HOME") or os.path.join(environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    cache = Path(environ.get("HF_HUB_CACHE") or os.path.join(home, "hub")).expanduser()
    folder = cache / f"models--{repository.replace('/', '--')}"
    try:
        main = (folder / "refs" / "main").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        main = ""
    if _REVISION.fullmatch(main) and (folder / "snapshots" / main).is_dir():
        return folder / "snapshots" / main
    try:
        found = [each for each in (folder / "snapshots").iterdir() if each.is_dir()]
        snapshots = sorted(found, key=lambda each: each.stat().st_mtime)
    except OSError:
        return None
    return snapshots[-1] if snapshots else None


def _of_file(place: Place) -> Model:
    file = read_gguf(place.path)
    return Model(
        place=place,
        name=gguf_name(place.path) or "unnamed",
        architecture=file.architecture,
        quantization=file.file_type,
        size_bytes=file.size_bytes,
        tokenizer=file.tokenizer,
        context_length=file.context_length,
        sliding_window=file.sliding_window,
        keeps_state=file.keeps_state,
    )


def _of_folder(place: Place, caches: Callable[[Path], Answer]) -> Model:
    identity = describe_folder(place.path)
    if identity.architecture is None:
        raise ModelError("its config.json cannot be read, or names no model type", _AGAIN)
    if identity.size_bytes is None:
        raise ModelError("its weights cannot be read, or are not there", _AGAIN)
    asked = caches(place.path)
    failure = f"asking mlx-lm {asked.failure}" if asked.failure else str(asked.found.get("failure", ""))
    layers = asked.found.get("caches", ())
    windows = [layer["window"] for layer in layers if layer["window"] is not None]
    return Model(
        place=place,
        name=public_name(str(place.path)) or "unnamed",
        architecture=identity.architecture,
        quantization=identity.quantization,
        size_bytes=identity.size_bytes,
        tokenizer=identity.tokenizer,
        sliding_window=min(windows, default=None),
        keeps_state=None if failure else any(not layer["trimmable"] for layer in layers),
        why_unknown=failure,
    )
