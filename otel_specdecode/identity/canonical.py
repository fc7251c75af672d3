"""JSON of one form for one content, whatever the order, the process or the version of Python."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

_MOST_DEPTH = 32
_MOST_EXACT = 2**53  # above, a float no longer tells one integer from the next


def canonical_json(content: Any) -> str:
    """Return content as JSON: keys sorted, no spaces, 1.0 written as 1, what is not Unicode as `?`.

    Raises:
        ValueError: It holds what JSON cannot: a number that is not finite, a key that is not a text, other objects.
    """
    return json.dumps(_plain(content, 0), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def sha256_of(content: Any) -> str:
    """Return the hex digits of the sha256 over the canonical JSON in UTF-8; raises what canonical_json() does."""
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()


def _plain(content: Any, depth: int) -> Any:
    if depth > _MOST_DEPTH:
        raise ValueError(f"is nested more than {_MOST_DEPTH} levels deep")
    if isinstance(content, str):
        return content.encode("utf-8", "replace").decode()
    if content is None or isinstance(content, (bool, int)):
        return content
    if isinstance(content, float):
        if not math.isfinite(content):
            raise ValueError(f"holds the number {content}, which JSON has no form for")
        return int(content) if content.is_integer() and abs(content) < _MOST_EXACT else content
    if isinstance(content, Mapping):
        if not all(isinstance(key, str) for key in content):
            raise ValueError("has a key that is not a text")
        return {_plain(key, depth): _plain(value, depth + 1) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_plain(each, depth + 1) for each in content]
    raise ValueError(f"holds a {type(content).__name__}, which JSON has no form for")
