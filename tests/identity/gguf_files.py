"""GGUF files to measure the readers by, written by hand from the format's description."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

UINT32, FLOAT64, STRING, ARRAY = 4, 12, 8, 9
F32, Q4_0, NEWER = 0, 2, 999


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def setting(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


SETTINGS = (
    setting("general.architecture", STRING, text("llama")),
    setting("llama.rope.freq_base", FLOAT64, struct.pack("<d", 1e4)),
    setting("tokenizer.ggml.tokens", ARRAY, struct.pack("<IQ", STRING, 3) + text("a") + text("b") + text("")),
    setting("tokenizer.ggml.scores", ARRAY, struct.pack("<IQ", FLOAT64, 2) + struct.pack("<2d", 0, 1)),
)


def tensor(name: str, kind: int, offset: int, *sizes: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset)


def header(*tensors: bytes, settings: tuple[bytes, ...] = SETTINGS, version: int = 3, alignment: int = 32) -> bytes:
    """Everything before the data, and the padding."""
    start = struct.pack("<4sIQQ", b"GGUF", version, len(tensors), len(settings)) + b"".join((*settings, *tensors))
    return start + bytes(-len(start) % alignment)


def written(path: Path, weights: bytes, **options: Any) -> Path:
    path.write_bytes(header(tensor("output.weight", F32, 0, len(weights) // 4), **options) + weights)
    return path


def number(key: str, value: int) -> bytes:
    return setting(key, UINT32, struct.pack("<I", value))


def tokens(*values: str) -> bytes:
    packed = struct.pack("<IQ", STRING, len(values)) + b"".join(map(text, values))
    return setting("tokenizer.ggml.tokens", ARRAY, packed)
