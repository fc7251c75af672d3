"""Lines of JSON that tell whether they are as they were written; not by whom: anybody can compute the checksum."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

_SEAL = re.compile(rb',"crc":"([0-9a-f]{8})"}\Z')
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def sealed(fields: Mapping[str, object]) -> bytes:
    r"""Return one line, with its end: a JSON object whose last field `crc` is the CRC-32 of the object without it.

    Args:
        fields: At least one, and none of that name.

    Raises:
        TypeError: A value that JSON does not have.
        ValueError: Likewise: a float that is no finite number, or a mapping in itself.
    """
    body = json.dumps(fields, separators=(",", ":"), allow_nan=False).encode("ascii")
    return b'%s,"crc":"%08x"}\n' % (body[:-1], zlib.crc32(body))


def unsealed(line: bytes) -> dict[str, Any] | None:
    """Return the fields of a line, with or without its end; None if one byte is not as it was written."""
    line = line.rstrip(b"\r\n")
    seal = _SEAL.search(line)
    if seal is None or not line.startswith(b"{"):
        return None
    body = line[: seal.start()] + b"}"
    if zlib.crc32(body) != int(seal[1], 16):
        return None
    try:
        return dict(json.loads(body))
    except (ValueError, RecursionError):
        return None


def stamp(ns: int) -> str:
    """Return a time of day as RFC 3339 in UTC, to the nanosecond; one of no year that has four digits, as a number.

    Args:
        ns: Since the epoch.
    """
    try:
        second = _EPOCH + timedelta(seconds=ns // 10**9)
    except OverflowError:
        return f"{ns}ns"
    return f"{second:%Y-%m-%dT%H:%M:%S}.{ns % 10**9:09d}Z".rjust(30, "0")
