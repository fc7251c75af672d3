"""Files of weights, as they lie in folders and hub caches, for the readers of every format."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

KIB, GB = 1024, 10**9
SAMPLED = bytes(range(256)) * 16 * KIB
"""Weights that are longer than all samples of them."""


def in_hub(repository: Path, name: str, content: bytes) -> Path:
    """A file of a snapshot, as a hub cache lays it out: a link to the blob that is named by its sha256."""
    blobs, snapshot = repository / "blobs", repository / "snapshots" / "0123abc"
    for each in (blobs, snapshot):
        each.mkdir(parents=True, exist_ok=True)
    blob = blobs / hashlib.sha256(content).hexdigest()
    blob.write_bytes(content)
    link = snapshot / name
    link.symlink_to(Path("..", "..", "blobs", blob.name))
    return link


def changed_in_one_byte(content: bytes, setting: bytes) -> Iterator[bytes]:
    """A file that ends with SAMPLED, with another byte in a setting, first, last, and in a sample between."""
    beginning, sample = len(content) - len(SAMPLED), (len(SAMPLED) - 64 * KIB) * 7 // 15
    for place in (content.index(setting), beginning, beginning + sample, len(content) - 1):
        other = bytearray(content)
        other[place] ^= 1
        yield bytes(other)


class Readings:
    """Counts the bytes that a module reads from files from now on."""

    def __init__(self, module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        self.total = 0
        monkeypatch.setattr(module, "open_plain", lambda path: io.BufferedReader(_Counted(path, self)))


class _Counted(io.FileIO):
    def __init__(self, path: Path, readings: Readings) -> None:
        super().__init__(path)
        self._readings = readings

    def readinto(self, buffer: Any) -> int | None:
        count = super().readinto(buffer)
        self._readings.total += count or 0
        return count
