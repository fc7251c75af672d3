"""The file that the sums are written to, which is tried before the load and replaced as a whole after it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from otel_specdecode.demo.needs import DemoError


def check(path: Path) -> None:
    """Raise DemoError for a file that cannot be written; an earlier one stays as it is."""
    with _told(path):
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(0, "it is read-only")
        if _is_replaced(path):
            staging = _staging(path)
            staging.touch()
            staging.unlink()


def write(path: Path, text: str) -> None:
    """Write a text, so that whoever reads meanwhile has the earlier one or this one, whole.

    Raises:
        DemoError: If it cannot be written.
    """
    with _told(path):
        if not _is_replaced(path):
            path.write_text(text, encoding="utf-8")
            return
        staging = _staging(path)
        try:
            staging.write_text(text, encoding="utf-8")
            staging.replace(path.resolve())
        finally:
            staging.unlink(missing_ok=True)


def _is_replaced(path: Path) -> bool:
    """Return whether another file may take its place, as none may that of a pipe or of a terminal."""
    return path.is_file() or not path.exists()


def _staging(path: Path) -> Path:
    target = path.resolve()  # a link stays one
    return target.with_name(f".{target.name}.{os.getpid()}.unfinished")


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DemoError(f"{path} cannot be written: {error.strerror}") from error
