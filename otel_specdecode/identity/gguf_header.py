"""The part of a GGUF file before its weights, walked through. The format is `docs/gguf.md` of ggml."""

from __future__ import annotations

import math
import os
import struct
import time
from dataclasses import dataclass
from typing import BinaryIO

_BLOCK_BYTES = 1024 * 1024
_MOST_HEADER_BYTES = 64 * _BLOCK_BYTES
# The largest models have some thousand tensors; a file that claims millions is not one.
_MOST_ENTRIES = 100_000
_MOST_DIMENSIONS = 16
_TEXTS_AT_ONCE = 2_000  # half a millisecond

_TOKENS = b"tokenizer.ggml.tokens"
_ALIGNMENT, _DEFAULT_ALIGNMENT = b"general.alignment", 32
_KEPT = {
    b"general.architecture",
    b"general.file_type",
    b"tokenizer.chat_template",
    b"tokenizer.ggml.model",
    b"tokenizer.ggml.pre",
    _ALIGNMENT,
}
_KEPT_OF_ANY_ARCHITECTURE = (b".context_length", b".attention.sliding_window")
_OF_RECURRENT_ARCHITECTURES = (b"ssm.", b"shortconv.", b"wkv.", b"kda.")

_STRING, _ARRAY = 8, 9
_VALUE_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_INTEGERS = {kind: struct.Struct(f"<{letter}") for kind, letter in {0: "B", 1: "b", 2: "H", 3: "h"}.items()}
_INTEGERS |= {kind: struct.Struct(f"<{letter}") for kind, letter in {4: "I", 5: "i", 10: "Q", 11: "q"}.items()}
_U32, _U64 = _INTEGERS[4], _INTEGERS[10]

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
class Texts:
    """An array of texts in a header.

    Attributes:
        count: Texts there are.
        begin: Where the first one's length stands.
        end: Where the last one ends.
    """

    count: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Header:
    """What a header says.

    Attributes:
        data: Its bytes, without padding.
        start: Where the weights begin in the file.
        settings: The texts and integers that are asked for, by key.
        tokens: The vocabulary; None where there is none.
        keeps_state: Whether there is a setting that only recurrent and hybrid architectures have.
        tensors: Number of tensors.
        parameters: Number of weights in all tensors.
        tensor_bytes: Bytes of all tensors; None if one is of a type that is not known here.
    """

    data: memoryview
    start: int
    settings: dict[bytes, bytes | int]
    tokens: Texts | None
    keeps_state: bool
    tensors: int
    parameters: int
    tensor_bytes: int | None

    def place_of(self, array: Texts, number: int) -> int:
        """Return where the length of the text of a number stands; the end of the array if there is none."""
        at = array.begin
        for _ in range(min(number, array.count)):
            at += _U64.size + _U64.unpack_from(self.data, at)[0]
        return at

    def texts(self, array: Texts) -> list[bytes]:
        """Return the texts of an array."""
        found, at = [], array.begin
        for _ in range(array.count):
            begin = at + _U64.size
            at = begin + _U64.unpack_from(self.data, at)[0]
            found.append(bytes(self.data[begin:at]))
        return found


def tells_of_state(key: bytes) -> bool:
    """Return whether only recurrent and hybrid architectures have a setting of this name."""
    return key.partition(b".")[2].startswith(_OF_RECURRENT_ARCHITECTURES)


def read_header(file: BinaryIO) -> Header:
    """Walk through the header of an open GGUF file.

    Takes 0.15 to 0.2 s for 150,000 tokens and 280,000 merges, and gives way to other threads all along: a loop beside
    it that sleeps 1 ms a turn comes by every 1.6 ms, where without that it would come by every 6.8 ms.

    Raises:
        ValueError: It is no GGUF file, of a version that is not known, or the header, or the data that it describes,
            is not all there.
        OSError: It cannot be read.
    """
    return _Walk(file).header()


class _Walk:
    """Reads a header block by block, as far as it is asked for."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = os.fstat(file.fileno()).st_size
        self._data = bytearray()
        self._at = 0
        self._settings: dict[bytes, bytes | int] = {}
        self._tokens: Texts | None = None
        self._keeps_state = False

    def header(self) -> Header:
        if self._size < 4 or self._data[self._skip(4) : self._at] != b"GGUF":
            raise ValueError("is not a GGUF file")
        version = self._number(_U32)
        if version not in (2, 3):
            raise ValueError(f"is GGUF version {version}; versions 2 and 3 are known")
        tensors, settings = self._number(_U64), self._number(_U64)
        if max(tensors, settings) > _MOST_ENTRIES:
            raise ValueError(f"is broken: its header claims {max(tensors, settings)} entries")
        for _ in range(settings):
            self._setting(self._text(), self._number(_U32))
        sizes = [self._tensor() for _ in range(tensors)]
        alignment = self._settings.get(_ALIGNMENT, _DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment <= 0:
            raise ValueError(f"is broken: its data is aligned to {alignment!r} bytes")
        start = self._at + -self._at % alignment
        needed = max((end for _, _, end in sizes), default=0)
        if needed and start + needed > self._size:
            raise ValueError(f"is truncated: it has {self._size} of {start + needed} bytes")
        all_bytes = [size for _, size, _ in sizes if size is not None]
        return Header(
            data=memoryview(self._data)[: self._at],
            start=start,
            settings=self._settings,
            tokens=self._tokens,
            keeps_state=self._keeps_state,
            tensors=tensors,
            parameters=sum(weights for weights, _, _ in sizes),
            tensor_bytes=sum(all_bytes) if len(all_bytes) == len(sizes) else None,
        )

    def _setting(self, key: bytes, kind: int) -> None:
        if tells_of_state(key):
            self._keeps_state = True
        kept = key in _KEPT or key.endswith(_KEPT_OF_ANY_ARCHITECTURE)
        if kind == _STRING:
            text = self._text()
            if kept:
                self._settings[key] = text
        elif kind == _ARRAY:
            texts = self._array()
            if key == _TOKENS:
                self._tokens = texts
        elif kept and kind in _INTEGERS:
            self._settings[key] = self._number(_INTEGERS[kind])
        else:
            self._skip(_bytes_of(kind))

    def _array(self) -> Texts | None:
        """Skip an array; return it if it holds texts."""
        element, count = self._number(_U32), self._number(_U64)
        if element != _STRING:
            self._skip(count * _bytes_of(element))
            return None
        # The longest part of the walk by far, some 100,000 texts: on local names, without a call for each.
        begin = at = self._at
        data, length_of = self._data, _U64.unpack_from
        for first in range(0, count, _TEXTS_AT_ONCE):
            if first:
                time.sleep(0)  # lets a thread that makes tokens have the interpreter's lock
            for _ in range(min(_TEXTS_AT_ONCE, count - first)):
                if at + 8 > len(data):
                    self._read_up_to(at + 8)
                at += 8 + length_of(data, at)[0]
        self._skip(at - begin)
        return Texts(count, begin, at)

    def _tensor(self) -> tuple[int, int | None, int]:
        """Read one line of the table of tensors: its weights, its bytes, and where it ends in the data."""
        self._skip(self._number(_U64))
        dimensions = self._number(_U32)
        if dimensions > _MOST_DIMENSIONS:
            raise ValueError(f"is broken: it has a tensor of {dimensions} dimensions")
        weights = math.prod([self._number(_U64) for _ in range(dimensions)])
        kind, offset = self._number(_U32), self._number(_U64)
        if kind not in _TENSOR_TYPES:
            return weights, None, offset  # of a type newer than this code, only where it begins is known
        block, size = _TENSOR_TYPES[kind]
        taken = weights // block * size
        return weights, taken, offset + taken

    def _skip(self, count: int) -> int:
        """Go on by some bytes, and return the place they begin at."""
        place = self._at
        end = place + count
        if end > len(self._data):
            self._read_up_to(end)
        self._at = end
        return place

    def _number(self, form: struct.Struct) -> int:
        value: int = form.unpack_from(self._data, self._skip(form.size))[0]
        return value

    def _text(self) -> bytes:
        place = self._skip(self._number(_U64))
        return bytes(self._data[place : self._at])

    def _read_up_to(self, end: int) -> None:
        if end > self._size:
            raise ValueError("is truncated: it ends inside its header")
        if end > _MOST_HEADER_BYTES:
            raise ValueError(f"is broken: its header takes more than {_MOST_HEADER_BYTES} bytes")
        while len(self._data) < end:
            block = self._file.read(_BLOCK_BYTES)
            if not block:
                raise ValueError("is truncated: it became shorter while it was read")
            self._data += block


def _bytes_of(kind: int) -> int:
    if kind not in _VALUE_BYTES:
        raise ValueError(f"is broken: its header has a value of the unknown type {kind}")
    return _VALUE_BYTES[kind]
