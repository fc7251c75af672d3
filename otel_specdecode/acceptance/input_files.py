"""Reads files that a user names, and tells what is wrong with them without a quotation."""

from __future__ import annotations

import json
import os
import stat
from typing import Any, Final

from otel_specdecode.acceptance.prompt_shape import shown

MOST_BYTES: Final = 256_000_000
UTF8_MARK: Final = b"\xef\xbb\xbf"

_OTHER_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")

StrPath = str | os.PathLike[str]


class UnusableError(Exception):
    """A file or line of which nothing can be read. The text says why, and quotes nothing of it."""


def file_bytes(path: StrPath, what: str = "prompt file") -> bytes:
    """Return what is in a file.

    Raises:
        UnusableError: It cannot be read, is too large, or is text of another encoding throughout.
    """
    check_file(path, what)
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UnusableError(f"the file cannot be read: {error.strerror}") from None
    if len(data) > MOST_BYTES:
        raise UnusableError(f"the file is larger than {MOST_BYTES:_} bytes: split it")
    if data.startswith(_OTHER_MARKS) or b"\0" in data[:1000]:
        raise UnusableError("the file is not UTF-8: save it as UTF-8")
    return data


def check_file(path: StrPath, what: str) -> None:
    """Raise UnusableError for what is no file, or one that this user may not read."""
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise UnusableError(f"this is a folder: name a {what} in it")
        if not stat.S_ISREG(status.st_mode):
            raise UnusableError(f"this is no file: name a {what}")
        with open(path, "rb"):
            pass
    except FileNotFoundError:
        raise UnusableError("there is no such file") from None
    except PermissionError:
        raise UnusableError("this user may not read it: give it the permission") from None
    except OSError as error:
        raise UnusableError(f"the file cannot be read: {error.strerror}") from None
    except ValueError:
        raise UnusableError("no file can have this name") from None


def json_of(data: bytes) -> Any:
    """Return what a line of JSON says.

    Raises:
        UnusableError: It is no UTF-8, no JSON, or JSON that two readers would take for two things.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnusableError(f"this is not UTF-8, at byte {error.start + 1}: save the file as UTF-8") from None
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        what = error.msg.removesuffix(" at")
        raise UnusableError(f"this is not JSON, at column {error.pos + 1}: {what[:1].lower()}{what[1:]}") from None
    except RecursionError:
        raise UnusableError("this is nested too deeply") from None
    except ValueError:
        raise UnusableError("this has a number with too many digits") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for key, value in pairs:
        if key in content:
            raise UnusableError(f"one object has the key {shown(key)} twice")
        content[key] = value
    return content


def _no_constant(name: str) -> Any:
    raise UnusableError(f"{name} is no JSON: write a number")
