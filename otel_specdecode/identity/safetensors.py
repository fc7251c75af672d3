"""What a folder of safetensors files holds, from their headers and samples of the weights."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from otel_specdecode.identity.files import FileCache, fingerprint_of, joined, open_plain

_LENGTH = struct.Struct("<Q")
_MOST_HEADER_BYTES = 16 * 1024 * 1024
_MOST_DIMENSIONS = 16

_NAMES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3",
    "F8_E5M2": "float8_e5m2",
}


@dataclass(frozen=True, slots=True)
class SafetensorsFiles:
    """What safetensors files hold together.

    Attributes:
        fingerprint: Of all of them.
        parameters: Number of weights; None where a tensor's elements are not weights one by one, as where several
            quantised ones are packed into an integer.
        dtypes: Types of the elements, such as `float16`, sorted.
        size_bytes: Bytes of all tensors.
    """

    fingerprint: str
    parameters: int | None
    dtypes: tuple[str, ...]
    size_bytes: int


def read_safetensors(files: Sequence[Path]) -> SafetensorsFiles:
    """Tell what files hold that belong together, in order of their names.

    Reads a few MB of each, once as long as it stays as it is.

    Raises:
        ValueError: There is no file, or one is not a safetensors file or truncated.
        OSError: One is not there or cannot be read. Both name the file without its folder.
    """
    if not files:
        raise ValueError("there are no safetensors files")
    each = [_FILES.facts(file) for file in sorted(files, key=lambda file: file.name)]
    counts = [file.parameters for file in each]
    return SafetensorsFiles(
        fingerprint=joined(file.fingerprint for file in each),
        parameters=None if None in counts else sum(count or 0 for count in counts),
        dtypes=tuple(sorted({dtype for file in each for dtype in file.dtypes})),
        size_bytes=sum(file.size_bytes for file in each),
    )


def weight_files(folder: Path) -> list[Path]:
    """Return the files of a folder that mlx-lm loads; where it would find none, all safetensors files."""
    return sorted(folder.glob("model*.safetensors")) or sorted(folder.glob("*.safetensors"))


def _read(path: Path) -> SafetensorsFiles:
    with open_plain(path) as file:
        header = _header(file)
        tensors = _tensors(header)
        start, size = _LENGTH.size + len(header), os.fstat(file.fileno()).st_size
        needed = start + max((end for _, _, end in tensors), default=0)
        if needed > size:
            raise ValueError(f"is truncated: it has {size} of {needed} bytes")
        dtypes = {dtype for dtype, _, _ in tensors}
        return SafetensorsFiles(
            fingerprint=fingerprint_of(file, _LENGTH.pack(len(header)) + header, start),
            parameters=sum(count for _, count, _ in tensors) if dtypes <= _NAMES.keys() else None,
            dtypes=tuple(sorted(_NAMES.get(dtype, dtype.lower()) for dtype in dtypes)),
            size_bytes=needed - start,
        )


_FILES = FileCache(_read)


def _header(file: BinaryIO) -> bytes:
    size = os.fstat(file.fileno()).st_size
    prefix = file.read(_LENGTH.size)
    if len(prefix) < _LENGTH.size:
        raise ValueError("is not a safetensors file")
    length: int = _LENGTH.unpack(prefix)[0]
    if length > _MOST_HEADER_BYTES:
        raise ValueError(f"is not a safetensors file, or its header takes more than {_MOST_HEADER_BYTES} bytes")
    header = file.read(length)
    if len(header) < length:
        raise ValueError(f"is truncated: it has {size} of {_LENGTH.size + length} bytes")
    return header


def _tensors(header: bytes) -> list[tuple[str, int, int]]:
    """Return type, number of elements and place of the end in the data of each tensor."""
    try:
        entries = json.loads(header)
        return [_tensor(entry) for name, entry in entries.items() if name != "__metadata__"]
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        raise ValueError("is broken: its header does not describe tensors") from None


def _tensor(entry: Any) -> tuple[str, int, int]:
    dtype, shape, (_, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or len(dtype) > 16 or not dtype.isascii() or not dtype.isprintable():
        raise ValueError
    if len(shape) > _MOST_DIMENSIONS or not all(type(size) is int and 0 <= size < 2**64 for size in (*shape, end)):
        raise ValueError
    return dtype, math.prod(shape), end
