"""Files that a command writes: each is written whole, or the one that was there stays."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.storage import ARMS, HEAD, HOST, NOTES, RESULTS

EVIDENCE = (HEAD, RESULTS, HOST, NOTES, ARMS)
"""The files of a run, in the order in which their digest takes them."""


def write_all(contents: Mapping[Path, str]) -> None:
    """Write files, replacing those that are there; none of them if one cannot be written.

    Raises:
        AcceptanceError: One cannot be written, or is a run's own.
    """
    asides: list[tuple[Path, Path, Path]] = []
    path = Path()
    try:
        for number, (path, text) in enumerate(contents.items()):
            place = replaceable(path)
            aside = place.with_name(f".{place.name}.{os.getpid()}.{number}")
            asides.append((path, place, aside))
            aside.write_text(text, encoding="utf-8", errors="replace", newline="")
        for path, place, aside in asides:  # noqa: B007 - what is said of a failure names it
            aside.replace(place)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise AcceptanceError(f"{path} cannot be written: {reason}; name another file.") from None
    finally:
        for _, _, aside in asides:
            with suppress(OSError):
                aside.unlink(missing_ok=True)


def replaceable(path: Path) -> Path:
    """Return where a file is written: where links lead to, if that is no device and no file of a run.

    Raises:
        OSError: It cannot be told.
        AcceptanceError: It is one of these.
    """
    place = path.resolve()
    if place.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if place.exists() and not place.is_file():
        raise AcceptanceError(f"{path} cannot be written: it is no file that can be replaced; name another file.")
    if place.name in EVIDENCE and (place.parent / HEAD).exists():
        raise AcceptanceError(f"{path} is a file of a run: name another file.")
    return place


def evidence_digest(folder: Path) -> str:
    """Return the sha256 of a run's files, one after the other, as `cat` and `sha256sum` make it.

    Raises:
        AcceptanceError: One cannot be read.
    """
    digest = sha256()
    for name in EVIDENCE:
        try:
            digest.update((folder / name).read_bytes())
        except FileNotFoundError:
            continue
        except OSError as error:
            raise AcceptanceError(f"{folder / name} cannot be read ({error.strerror}).") from None
    return digest.hexdigest()
