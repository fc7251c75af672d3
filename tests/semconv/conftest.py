"""Makes the registry's generator importable and gives tests a copy of the registry to break."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "semconv"))


@pytest.fixture
def repository() -> Path:
    """The repository's root."""
    return REPOSITORY


@pytest.fixture
def registry_copy(tmp_path: Path) -> Path:
    """A copy of the registry that a test may change."""
    copy = tmp_path / "semconv"
    shutil.copytree(REPOSITORY / "semconv", copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.fixture
def change(registry_copy: Path) -> Callable[[str, str, str], None]:
    """Replaces one piece of text in a file of the registry's copy; fails if it is not there."""

    def replace(file: str, old: str, new: str) -> None:
        path = registry_copy / file
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new, 1), encoding="utf-8")

    return replace
