"""The folder that the demo writes: four files, all of one run."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from otel_specdecode.demo.needs import DemoError

PAGE = "index.html"
SPANS, METRICS, LOGS = "spans.jsonl", "metrics.jsonl", "logs.jsonl"

_OURS = frozenset({PAGE, SPANS, METRICS, LOGS})
_STAGING = ".unfinished"


def check(folder: Path) -> None:
    """Raise DemoError for a folder that cannot be written or that holds what the demo did not write."""
    if not folder.exists():
        if folder.is_symlink() or not _parent_exists(folder):
            raise DemoError(f"{folder} cannot be made: {folder.parent} is not a folder")
        return
    if not folder.is_dir():
        raise DemoError(f"{folder} is a file; name a folder with --out")
    foreign = sorted(
        path.name
        for path in folder.iterdir()
        if path.name != _STAGING and not path.name.startswith(".DS_") and (path.name not in _OURS or path.is_dir())
    )
    if foreign:
        raise DemoError(f"{folder} holds {foreign[0]!r}, which the demo did not write; name another folder with --out")


def write(folder: Path, contents: Mapping[str, str]) -> None:
    """Replace an earlier run's files by these, whole or not at all.

    Everything is written aside first. The page goes first and comes last, so that a page never lies beside another
    run's files.
    """
    check(folder)
    staging = folder / _STAGING
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    try:
        for name, text in contents.items():
            (staging / name).write_text(text, encoding="utf-8")
        (folder / PAGE).unlink(missing_ok=True)
        for name in sorted(contents, key=lambda name: name == PAGE):
            (staging / name).replace(folder / name)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _parent_exists(folder: Path) -> bool:
    existing = next(parent for parent in folder.absolute().parents if parent.exists())
    return existing.is_dir()
