"""Prompt files: JSON lines, one prompt each. Says of every line that cannot be used what is wrong with it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.input_files import UTF8_MARK, file_bytes, json_of
from otel_specdecode.acceptance.prompt_shape import read_prompt, written
from otel_specdecode.acceptance.prompts import Prompt
from otel_specdecode.acceptance.report.writing import write_all
from otel_specdecode.identity.canonical import sha256_of
from otel_specdecode.user_files import FileError, StrPath, UnusableError, told_line


class PromptError(FileError, AcceptanceError):
    """Prompt files that cannot be used."""


def read_prompts(paths: Sequence[StrPath]) -> tuple[Prompt, ...]:
    """Return the prompts of files, in their order.

    Blank lines are passed over.

    Raises:
        PromptError: A file cannot be read or has no prompt, a line is no prompt, or two have one id.
        ModuleNotFoundError: A check has a JSON schema, and the extra [acceptance] is not installed.
    """
    prompts: list[Prompt] = []
    told: list[str] = []
    places: dict[str, str] = {}
    files: set[str] = set()
    for path in paths:
        if _real(path) in files:
            told.append(told_line(path, 1, "this file is named twice"))
            continue
        files.add(_real(path))
        for line, found in _read_file(path, told):
            place = f"{os.fspath(path)}:{line}"
            if found.id in places:
                told.append(told_line(path, line, f"id {found.id} is taken: {places[found.id]} has it"))
            else:
                places[found.id] = place
                prompts.append(found)
    if told:
        raise PromptError(told)
    return tuple(prompts)


def _real(path: StrPath) -> str:
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return os.fspath(path)


def _read_file(path: StrPath, told: list[str]) -> list[tuple[int, Prompt]]:
    """Return a file's good prompts with their lines; what is wrong is added to `told`."""
    try:
        data = file_bytes(path)
    except UnusableError as error:
        told.append(told_line(path, 1, str(error)))
        return []
    if data.startswith(UTF8_MARK):
        told.append(told_line(path, 1, "the file begins with a byte order mark: save it as UTF-8 without one"))
        data = data[len(UTF8_MARK) :]
    prompts = []
    before = len(told)
    for line, content in enumerate(data.split(b"\n"), 1):
        if not content.strip():
            continue
        findings: list[str] = []
        prompt = _read_line(content, findings)
        told += (told_line(path, line, finding) for finding in findings)
        if prompt is not None:
            prompts.append((line, prompt))
    if not prompts and len(told) == before:
        told.append(told_line(path, 1, "the file has no prompt: write one a line, as JSON"))
    return prompts


def _read_line(data: bytes, findings: list[str]) -> Prompt | None:
    try:
        content = json_of(data)
    except UnusableError as error:
        findings.append(str(error))
        return None
    return read_prompt(content, findings)


def prompts_digest(prompts: Iterable[Prompt]) -> str:
    """Return the hex digits of a sha256 over prompts, which their order and their files' layout do not change."""
    return sha256_of(sorted(prompt_digest(prompt) for prompt in prompts))


def prompt_digest(prompt: Prompt) -> str:
    """Return the hex digits of a sha256 over all that a prompt is."""
    return sha256_of(written(prompt))


def describe(prompt: Prompt) -> dict[str, object]:
    """Return what a run's head keeps of a prompt: no text but its digest."""
    return {
        "id": prompt.id,
        "tier": prompt.tier,
        "kind": prompt.kind,
        "weight": prompt.weight,
        "max_tokens": prompt.max_tokens,
        "digest": prompt_digest(prompt),
    }


def prompt_lines(prompts: Iterable[Prompt]) -> str:
    """Return the text of a prompt file."""
    return "".join(json.dumps(written(prompt), ensure_ascii=False) + "\n" for prompt in prompts)


def write_prompts(path: StrPath, prompts: Iterable[Prompt], *, force: bool = False) -> None:
    """Write a prompt file, whole or not at all.

    Args:
        path: Where to.
        prompts: What to write.
        force: Whether a file that is there may be replaced.

    Raises:
        AcceptanceError: It is there already, or cannot be written.
    """
    text = prompt_lines(prompts)
    try:
        if force:
            write_all({Path(path): text})
        else:
            _write_new(Path(path), text)
    except FileExistsError:
        raise AcceptanceError(f"{path} is there already: name another file, or say --force") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no file can have this name"
        raise AcceptanceError(f"{path} cannot be written: {reason}") from None


def _write_new(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8", newline="\n") as file:
        try:
            file.write(text)
            file.flush()
        except OSError:
            path.unlink(missing_ok=True)
            raise
