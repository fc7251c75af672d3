"""Prompts out of a plain text file: one a line, or one a paragraph."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Final

from otel_specdecode.acceptance.input_files import UTF8_MARK, file_bytes
from otel_specdecode.acceptance.material import estimated_tokens
from otel_specdecode.acceptance.prompt_files import PromptError
from otel_specdecode.acceptance.prompts import Prompt
from otel_specdecode.acceptance.records import Kind
from otel_specdecode.generation.judgement import context_tier
from otel_specdecode.user_files import StrPath, UnusableError, told_line

_BLANK: Final = re.compile(r"\n[ \t\r]*\n")


def prompts_of_text(
    path: StrPath, *, paragraphs: bool = False, chat: bool = False, kind: Kind = "other", max_tokens: int = 256
) -> tuple[Prompt, ...]:
    """Return the prompts of a text file.

    Ids are the file's name and a number; tiers are by estimate.

    Args:
        path: UTF-8 text, with or without a byte order mark.
        paragraphs: Whether a prompt goes up to the next blank line, instead of to the end of its line.
        chat: Whether it is the user's turn of a chat, instead of a text that is given to the model as it is.
        kind: Of all of them.
        max_tokens: Of all of them.

    Raises:
        PromptError: The file cannot be read, is not UTF-8 somewhere, or has no text.
    """
    try:
        data = file_bytes(path, "text file")
    except UnusableError as error:
        raise PromptError([told_line(path, 1, str(error))]) from None
    try:
        text = data.removeprefix(UTF8_MARK).decode("utf-8")
    except UnicodeDecodeError:
        raise PromptError(_not_utf8(path, data)) from None
    text = text.replace("\r\n", "\n")
    parts = [part.strip() for part in (_BLANK.split(text) if paragraphs else text.split("\n"))]
    texts = [part for part in parts if part]
    if not texts:
        raise PromptError([told_line(path, 1, "the file has no text")])
    stem = _stem(path)
    return tuple(
        Prompt(
            id=f"{stem}-{number}",
            text=None if chat else part,
            messages=({"role": "user", "content": part},) if chat else None,
            tier=context_tier(estimated_tokens(part)),
            kind=kind,
            max_tokens=max_tokens,
        )
        for number, part in enumerate(texts, 1)
    )


def _not_utf8(path: StrPath, data: bytes) -> list[str]:
    told = []
    for line, content in enumerate(data.split(b"\n"), 1):
        try:
            content.decode("utf-8")
        except UnicodeDecodeError as error:
            message = f"this is not UTF-8, at byte {error.start + 1}: save the file as UTF-8"
            told.append(told_line(path, line, message))
    return told


def _stem(path: StrPath) -> str:
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", PurePath(path).stem).lstrip("._-")
    return stem[:64] or "prompt"
