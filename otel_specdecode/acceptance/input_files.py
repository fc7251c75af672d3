"""Reads files that a user names, and tells what is wrong with them without a quotation."""

from __future__ import annotations

import json
from typing import Any, Final

from otel_specdecode.acceptance.prompt_shape import shown
from otel_specdecode.user_files import StrPath, UnusableError, read_file

MOST_BYTES: Final = 256_000_000
UTF8_MARK: Final = b"\xef\xbb\xbf"

_OTHER_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")


def file_bytes(path: StrPath, what: str = "prompt file") -> bytes:
    """Return what is in a file.

    Raises:
        UnusableError: It cannot be read, is too large, or is text of another encoding throughout.
    """
    data = read_file(path, what, MOST_BYTES, too_large=": split it into several files")
    if data.startswith(_OTHER_MARKS) or b"\0" in data[:1000]:
        raise UnusableError("the file is not UTF-8: save it as UTF-8")
    return data


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
