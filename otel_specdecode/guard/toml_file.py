"""Reads a TOML file that a user wrote, and says in which line what is wrong with it."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from otel_specdecode.guard.toml_lines import Place, line_at, lines_of

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


class PolicyError(ValueError):
    """A policy file that cannot be used.

    Attributes:
        lines: What is wrong, all of it that could be found, each as `FILE:LINE: message`. FILE is the path as it was
            given.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(self.lines))


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

    path: str | os.PathLike[str]
    document: dict[str, Any]
    lines: dict[Place, int]

    def error(self, findings: Iterable[Finding]) -> PolicyError:
        """Return what is wrong, in the order of the file, each thing once."""
        found = sorted({(line_at(self.lines, each.place), each.message): None for each in findings})
        return PolicyError(told_line(self.path, line, message) for line, message in found)


class _UnusableError(Exception):
    """A file of which nothing can be read."""

    def __init__(self, message: str, line: int = 1) -> None:
        super().__init__(message)
        self.line = line


def read_toml(path: str | os.PathLike[str], writer: str) -> TomlFile:
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
    except _UnusableError as error:
        raise PolicyError([told_line(path, error.line, str(error))]) from error


def _text(path: str | os.PathLike[str], writer: str) -> str:
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise _UnusableError("this is a folder: name the policy file in it")
        if not stat.S_ISREG(status.st_mode):
            raise _UnusableError("this is no file: name a policy file")
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise _UnusableError(f"there is no such file: `{writer}` writes one") from None
    except PermissionError:
        raise _UnusableError("this user may not read it: give it the permission") from None
    except OSError as error:
        raise _UnusableError(f"it cannot be read: {error.strerror}") from None
    except ValueError:
        raise _UnusableError("no file can have this name") from None
    if len(data) > MOST_BYTES:
        raise _UnusableError(f"it is larger than {MOST_BYTES:_} bytes, which no policy is: name a policy file")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _UnusableError("it is not UTF-8: save it as UTF-8", data[: error.start].count(b"\n") + 1) from None
    if text.startswith("\ufeff"):
        raise _UnusableError("it begins with a byte order mark: save it as UTF-8 without one")
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
        return _refuse(f"this is not TOML, at column {match[2]}: {message[: match.start()]}", int(match[1]))
    except RecursionError:
        return _refuse("it is nested too deeply")
    except ValueError:
        return _refuse("it holds a number with too many digits")


def _refuse(message: str, line: int = 1) -> dict[str, Any]:
    raise _UnusableError(message, line) from None


def _lines(text: str) -> dict[Place, int]:
    try:
        return lines_of(text)
    except RecursionError:
        raise _UnusableError("it is nested too deeply") from None


def told_line(path: str | os.PathLike[str], line: int, message: str) -> str:
    """Return a finding as one line that prints."""
    text = f"{os.fspath(path)}:{line}: {message}"
    return "".join(each if each.isprintable() else each.encode("unicode_escape", "replace").decode() for each in text)
