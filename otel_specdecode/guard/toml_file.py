"""Reads a TOML file that a user wrote, and says in which line what is wrong with it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from otel_specdecode.guard.toml_lines import Place, line_at, lines_of
from otel_specdecode.user_files import FileError, StrPath, UnusableError, read_file, told_line

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MOST_BYTES: Final = 1_000_000
_LINE: Final = re.compile(r" \(at line (\d+), column (\d+)\)$")
_LONGEST: Final = 300
_END: Final = " (at end of document)"
_SAID_BEFORE: Final = ("Cannot ", "Duplicate ", "Can not overwrite")
"""How the reader begins to tell of a key that was there before, also where it is the last thing of a file."""


class PolicyError(FileError, ValueError):
    """A policy file that cannot be used."""


class Finding(NamedTuple):
    """What is wrong, and where.

    Attributes:
        place: Of the key or table.
        message: What is wrong and what to do, in one line.
    """

    place: Place
    message: str


class TomlFile(NamedTuple):
    """A file that was read.

    Attributes:
        path: As it was given.
        document: What it says.
        lines: In which line each key stands.
    """

    path: StrPath
    document: dict[str, Any]
    lines: dict[Place, int]

    def error(self, findings: Iterable[Finding]) -> PolicyError:
        """Return what is wrong, in the order of the file, each thing once."""
        found = sorted({(line_at(self.lines, each.place), each.message): None for each in findings})
        return PolicyError(told_line(self.path, line, message) for line, message in found)


def read_toml(path: StrPath, writer: str) -> TomlFile:
    """Return what a file says and where.

    Args:
        path: The file.
        writer: The command that writes such a file, for the message that there is none.

    Raises:
        PolicyError: It cannot be read, or is no TOML.
    """
    try:
        text = _text(path, writer)
        return TomlFile(path, _document(text), _lines(text))
    except UnusableError as error:
        raise PolicyError([told_line(path, error.line, str(error))]) from error


def _text(path: StrPath, writer: str) -> str:
    data = read_file(path, "policy file", MOST_BYTES, f": `{writer}` writes one", ": name a smaller policy file")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnusableError("it is not UTF-8: save it as UTF-8", data[: error.start].count(b"\n") + 1) from None
    if text.startswith("\ufeff"):
        raise UnusableError("it begins with a byte order mark: save it as UTF-8 without one")
    return text.replace("\r\n", "\n")


def _document(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        if len(message) > _LONGEST:  # it repeats keys; the place is at its end
            message = f"{message[:_LONGEST]} ...{message[-50:]}"
        match = _LINE.search(message)
        if match is None:
            told = message.removesuffix(_END)
            what = "this is not TOML" if told.startswith(_SAID_BEFORE) else "it ends in the middle"
            return _refuse(f"{what}: {told}", text.rstrip().count("\n") + 1)
        line, column = int(match[1]), int(match[2])
        said = message[: match.start()]
        if said == "Invalid value" and text.split("\n")[line - 1][column - 1 : column].isalpha():
            said = "a text needs quotes around it"
        return _refuse(f"this is not TOML, at column {column}: {said}", line)
    except RecursionError:
        return _refuse("it is nested too deeply")
    except ValueError:
        return _refuse("it holds a number with too many digits")


def _refuse(message: str, line: int = 1) -> dict[str, Any]:
    raise UnusableError(message, line) from None


def _lines(text: str) -> dict[Place, int]:
    try:
        return lines_of(text)
    except RecursionError:
        raise UnusableError("it is nested too deeply") from None
