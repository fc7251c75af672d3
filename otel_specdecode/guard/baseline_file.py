"""A baseline in a file: what requests without a draft take, measured by one process for others."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import DecodeError, json

from otel_specdecode.guard.baseline import Conditions, Usual, as_rows, from_rows

FORMAT = 1

_TO_DO = "have a process without a draft write one, by its policy's key baseline.write"


class BaselineError(ValueError):
    """A file that holds no baseline. The text says what to do, and no folder."""


def write_baseline(path: str | os.PathLike[str], known: Mapping[Conditions, Usual]) -> None:
    """Write a baseline to a file, whole or not at all.

    Raises:
        OSError: It cannot be written.
    """
    target = Path(path)
    begun = target.with_name(f"{target.name}.{os.getpid()}.new")
    try:
        begun.write_bytes(json.format(json.encode({"format": FORMAT, "rows": as_rows(known)}), indent=1))
        os.replace(begun, target)
    finally:
        begun.unlink(missing_ok=True)


def read_baseline(path: str | os.PathLike[str]) -> dict[Conditions, Usual]:
    """Return the baseline in a file.

    Raises:
        BaselineError: It cannot be read, or holds none.
    """
    name = Path(path).name
    try:
        content = json.decode(Path(path).read_bytes())
    except OSError as error:
        raise BaselineError(f"the baseline {name} cannot be read ({error.strerror})") from None
    except (DecodeError, RecursionError):
        raise BaselineError(f"the baseline {name} is no JSON: {_TO_DO}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT or not isinstance(content.get("rows"), list):
        raise BaselineError(f"the baseline {name} is not of format {FORMAT}: {_TO_DO}")
    if not content["rows"]:
        raise BaselineError(f"the baseline {name} knows of no request: {_TO_DO}")
    try:
        return from_rows(content["rows"])
    except ValueError as error:
        raise BaselineError(f"the baseline {name}: {error}") from None
