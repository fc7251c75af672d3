"""What a GGUF file is: its name and a fingerprint, without an engine. The format is `docs/gguf.md` of ggml."""

from __future__ import annotations

import hashlib
import math
import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from otel_specdecode.identity.names import public_name

_SHARD = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<suffix>\.gguf)", re.DOTALL | re.IGNORECASE)
_NAMED = re.compile(r"(?P<stem>.*?)((-\d{5}-of-\d{5})?\.gguf)?", re.DOTALL | re.IGNORECASE)
_SHA256 = re.compile(r"[0-9a-f]{64}")

_SAMPLES, _SAMPLE_BYTES = 16, 64 * 1024
_BLOCK_BYTES = 1024 * 1024
_MOST_HEADER_BYTES = 256 * _BLOCK_BYTES

_ALIGNMENT_KEY, _DEFAULT_ALIGNMENT = b"general.alignment", 32
_UINT32, _STRING, _ARRAY = 4, 8, 9
_VALUE_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

# By weights in a block: each type of tensor, and the bytes of its block (`GGML_QUANT_SIZES` of the gguf package).
_BLOCKS = {
    1: {0: 4, 1: 2, 24: 1, 25: 2, 26: 4, 27: 8, 28: 8, 30: 2},
    32: {2: 18, 3: 20, 6: 22, 7: 24, 8: 34, 9: 36, 20: 18, 39: 17},
    64: {40: 36, 42: 18},
    128: {41: 18},
    256: {10: 84, 11: 110, 12: 144, 13: 176, 14: 210, 15: 292}
    | {16: 66, 17: 74, 18: 98, 19: 50, 21: 110, 22: 82, 23: 136, 29: 56, 34: 54, 35: 66},
}
_TENSOR_TYPES = {kind: (weights, size) for weights, sizes in _BLOCKS.items() for kind, size in sizes.items()}


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What tells one model file from another.

    Attributes:
        kind: `sha256`: of the whole content, as a hub cache has it. `sampled`: of the header, the size and samples of
            the weights, which is not the file's sha256.
        value: 64 hex digits. Of several shards, the sha256 of theirs.
    """

    kind: Literal["sha256", "sampled"]
    value: str


def gguf_name(path: str | os.PathLike[str]) -> str | None:
    """Return the name a caller knows the model by: the file's name without `.gguf` and the number of a shard.

    Never a path, a home folder or a user's name; None where that leaves nothing.
    """
    location = os.fspath(path)
    posix = location.replace("\\", "/").rstrip("/")
    if public_name(posix) is None or Path(location).is_dir():
        return None
    named = _NAMED.fullmatch(posix.rpartition("/")[2])
    return (named["stem"] if named else None) or None


def fingerprint(path: str | os.PathLike[str]) -> Fingerprint:
    """Fingerprint a GGUF file, or all shards of a split one whichever of them is given, reading a few MB of each.

    Raises:
        ValueError: A file is not a GGUF file, of another version, or truncated.
        OSError: A file or shard is not there or cannot be read. Both name the file without its folder.
    """
    prints = [_of_file(shard) for shard in _shards(Path(path))]
    if len(prints) == 1:
        return prints[0]
    values = "\n".join(f"{each.kind}:{each.value}" for each in prints)
    whole = all(each.kind == "sha256" for each in prints)
    return Fingerprint("sha256" if whole else "sampled", hashlib.sha256(values.encode()).hexdigest())


def _shards(path: Path) -> list[Path]:
    """Return all files of a split model in order, else the file alone."""
    shard = _SHARD.fullmatch(path.name)
    if shard is None or not 1 <= int(shard["number"]) <= int(shard["count"]):
        return [path]
    last = int(shard["count"])
    return [path.with_name(f"{shard['stem']}-{n:05}-of-{last:05}{shard['suffix']}") for n in range(1, last + 1)]


def _of_file(path: Path) -> Fingerprint:
    try:
        with open(path, "rb") as file:
            digest = _hub_digest(path)
            if digest is not None:
                _read_magic(_Header(file))
                return Fingerprint("sha256", digest)
            return Fingerprint("sampled", _sampled(file))
    except OSError as error:
        raise OSError(error.errno, error.strerror, path.name) from None
    except ValueError as error:
        raise ValueError(f"{path.name} {error}") from None


def _hub_digest(path: Path) -> str | None:
    """Return the content's sha256 if the file is a link into a hub cache, which names large files by it."""
    blob = Path(os.path.realpath(path))
    known = path.is_symlink() and blob.parent.name == "blobs" and _SHA256.fullmatch(blob.name)
    return blob.name if known else None


def _sampled(file: BinaryIO) -> str:
    header = _Header(file)
    start = _data_start(header)
    digest = hashlib.sha256(memoryview(header.data)[: header.at])
    digest.update(struct.pack("<Q", header.size))
    for place, length in _samples(start, header.size):
        file.seek(place)
        digest.update(file.read(length))
    return digest.hexdigest()


def _samples(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield place and length of what is read of the data: all of it, or samples from its first to its last byte."""
    length = end - start
    if length <= _SAMPLES * _SAMPLE_BYTES:
        yield start, max(length, 0)
        return
    for number in range(_SAMPLES):
        yield start + (length - _SAMPLE_BYTES) * number // (_SAMPLES - 1), _SAMPLE_BYTES


_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")


class _Header:
    """The part of a file before its data, read block by block as far as it is asked for.

    Attributes:
        size: Bytes of the whole file.
        data: What was read.
        at: The place of the next value.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size = os.fstat(file.fileno()).st_size
        self.data = bytearray()
        self.at = 0

    def skip(self, count: int) -> int:
        """Go on by some bytes, and return the place they begin at."""
        place = self.at
        end = place + count
        if end > len(self.data):
            self._read_up_to(end)
        self.at = end
        return place

    def number(self, form: struct.Struct) -> int:
        """Return the next number."""
        value: int = form.unpack_from(self.data, self.skip(form.size))[0]
        return value

    def text(self) -> bytes:
        """Return the next string."""
        place = self.skip(self.number(_U64))
        return bytes(self.data[place : self.at])

    def _read_up_to(self, end: int) -> None:
        if end > self.size:
            raise ValueError("is truncated: it ends inside its header")
        if end > _MOST_HEADER_BYTES:
            raise ValueError(f"is broken: its header takes more than {_MOST_HEADER_BYTES} bytes")
        while len(self.data) < end:
            block = self._file.read(_BLOCK_BYTES)
            if not block:
                raise ValueError("is truncated: it became shorter while it was read")
            self.data += block


def _read_magic(header: _Header) -> None:
    if header.size < 4 or header.data[header.skip(4) : header.at] != b"GGUF":
        raise ValueError("is not a GGUF file")


def _data_start(header: _Header) -> int:
    """Walk through the header and return where the data begins.

    Raises:
        ValueError: The header, or the data that it describes, is not all there.
    """
    _read_magic(header)
    version = header.number(_U32)
    if version not in (2, 3):
        raise ValueError(f"is GGUF version {version}; versions 2 and 3 are known")
    tensors, settings = header.number(_U64), header.number(_U64)
    alignment = _DEFAULT_ALIGNMENT
    for _ in range(settings):
        key, kind = header.text(), header.number(_U32)
        if key == _ALIGNMENT_KEY and kind == _UINT32:
            alignment = header.number(_U32)
        else:
            _skip_value(header, kind)
    if alignment == 0:
        raise ValueError("is broken: its data is aligned to 0 bytes")
    needed = max((_tensor_end(header) for _ in range(tensors)), default=0)
    start = header.at + -header.at % alignment
    if needed and start + needed > header.size:
        raise ValueError(f"is truncated: it has {header.size} of {start + needed} bytes")
    return start


def _skip_value(header: _Header, kind: int) -> None:
    if kind == _STRING:
        header.skip(header.number(_U64))
    elif kind == _ARRAY:
        element, count = header.number(_U32), header.number(_U64)
        if element == _STRING:
            for _ in range(count):
                header.skip(header.number(_U64))
        else:
            header.skip(count * _bytes_of(element))
    else:
        header.skip(_bytes_of(kind))


def _bytes_of(kind: int) -> int:
    if kind not in _VALUE_BYTES:
        raise ValueError(f"is broken: its header has a value of the unknown type {kind}")
    return _VALUE_BYTES[kind]


def _tensor_end(header: _Header) -> int:
    """Read one line of the table of tensors and return where that tensor ends, from the start of the data."""
    header.skip(header.number(_U64))
    sizes = [header.number(_U64) for _ in range(header.number(_U32))]
    kind, offset = header.number(_U32), header.number(_U64)
    weights, size = _TENSOR_TYPES.get(kind, (1, 0))  # of a newer type, only where it begins
    return offset + math.prod(sizes) // weights * size
