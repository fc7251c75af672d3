"""Model files of any size: told apart by a few MB of each, and read again only when they change."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Generic, TypeVar

_SHA256 = re.compile(r"[0-9a-f]{64}")
_SAMPLES, _SAMPLE_BYTES = 16, 64 * 1024
_MOST_FILES = 512  # the shards of a few of the largest checkpoints

Facts = TypeVar("Facts")


class FileCache(Generic[Facts]):
    """Facts of the files that were asked about last, for any thread. What fails is not kept.

    Takes no lock, which the child of a fork could inherit taken: each step on the table is atomic.
    """

    def __init__(self, read: Callable[[Path], Facts], most: int = _MOST_FILES) -> None:
        """Begin empty.

        Args:
            read: Reads the facts of one file.
            most: Files whose facts are kept.
        """
        self._read = read
        self._most = most
        self._known: dict[str, tuple[tuple[int, int], Facts]] = {}

    def facts(self, path: Path) -> Facts:
        """Return a file's facts, read anew if its size or time of change did change.

        Two threads that ask for a file at once may both read it.

        Raises:
            OSError: It cannot be read. Names the file without its folder, as does the next one.
            ValueError: It is not what it should be.
        """
        with named(path):
            status = os.stat(path)
            key, stamp = os.path.realpath(path), (status.st_size, status.st_mtime_ns)
            known = self._known.pop(key, None)
            facts = known[1] if known is not None and known[0] == stamp else self._read(path)
            self._known[key] = (stamp, facts)
            for longest_ago in list(self._known)[: -self._most]:
                self._known.pop(longest_ago, None)
            return facts


def open_plain(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a plain file for reading.

    Raises:
        OSError: It cannot be opened.
        ValueError: It is something else, such as a pipe, which could keep whoever reads it waiting for ever.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("is not a plain file")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Let errors name a file without its folder, which may be somebody's home."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, path.name) from None
    except ValueError as error:
        raise ValueError(f"{path.name} {error}") from None


def hub_digest(files: Iterable[Path]) -> str | None:
    """Return the sha256 of the content of files that are links into a hub cache, which names large files by it.

    Of several files, the one over theirs; None if one is no such link.
    """
    each = [_hub_digest(file) for file in files]
    known = [digest for digest in each if digest is not None]
    return joined(known) if known and len(known) == len(each) else None


def _hub_digest(path: Path) -> str | None:
    blob = Path(os.path.realpath(path))
    known = path.is_symlink() and blob.parent.name == "blobs" and _SHA256.fullmatch(blob.name)
    return blob.name if known else None


def fingerprint_of(file: BinaryIO, header: bytes | bytearray | memoryview, start: int) -> str:
    """Fingerprint an open file by its header, its size and samples of what follows.

    Args:
        file: Is read from.
        header: All of it that tells what the weights are.
        start: Where the weights begin.
    """
    size = os.fstat(file.fileno()).st_size
    digest = hashlib.sha256(header)
    digest.update(struct.pack("<Q", size))
    for place, length in _samples(start, size):
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


def joined(digests: Iterable[str]) -> str:
    """Return the digest of several files in order, over theirs, each on a line; of one file, its own."""
    each = list(digests)
    return each[0] if len(each) == 1 else hashlib.sha256("\n".join(each).encode()).hexdigest()
