"""Model files of any size: told apart by a few MB of each, and read again only when they change."""

from __future__ import annotations

import hashlib
import os
import re
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Generic, TypeVar

from otel_specdecode.identity.models import Fingerprint

_SHA256 = re.compile(r"[0-9a-f]{64}")
_SAMPLES, _SAMPLE_BYTES = 16, 64 * 1024
_MOST_FILES = 512  # the shards of a few of the largest checkpoints

Facts = TypeVar("Facts")


class FileCache(Generic[Facts]):
    """Facts of the files that were asked about last, for any thread. What fails is not kept."""

    def __init__(self, read: Callable[[Path], Facts], most: int = _MOST_FILES) -> None:
        """Begin empty.

        Args:
            read: Reads the facts of one file.
            most: Files whose facts are kept.
        """
        self._read = read
        self._most = most
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, bool], tuple[tuple[int, int], Facts]] = OrderedDict()

    def facts(self, path: Path) -> Facts:
        """Return a file's facts, read anew if its size or time of change did change.

        Two threads that ask for a file at once may both read it.

        Raises:
            OSError: It cannot be read. Names the file without its folder, as does the next one.
            ValueError: It is not what it should be.
        """
        with named(path):
            status = os.stat(path)
            # A link into a hub cache tells what the file behind it does not.
            key, stamp = (os.path.realpath(path), path.is_symlink()), (status.st_size, status.st_mtime_ns)
            with self._lock:
                known = self._known.get(key)
                if known is not None and known[0] == stamp:
                    self._known.move_to_end(key)
                    return known[1]
            facts = self._read(path)
            with self._lock:
                self._known[key] = (stamp, facts)
                self._known.move_to_end(key)
                if len(self._known) > self._most:
                    self._known.popitem(last=False)
            return facts


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Let errors name a file without its folder, which may be somebody's home."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, path.name) from None
    except ValueError as error:
        raise ValueError(f"{path.name} {error}") from None


def hub_digest(path: Path) -> str | None:
    """Return the content's sha256 if the file is a link into a hub cache, which names large files by it."""
    blob = Path(os.path.realpath(path))
    known = path.is_symlink() and blob.parent.name == "blobs" and _SHA256.fullmatch(blob.name)
    return blob.name if known else None


def fingerprint_of(path: Path, file: BinaryIO, header: bytes | bytearray | memoryview, start: int) -> Fingerprint:
    """Fingerprint an open file: by its name in a hub cache, else by its header, its size and samples of what follows.

    Args:
        path: Where it lies.
        file: Is read from.
        header: All of it that tells what the weights are.
        start: Where the weights begin.
    """
    known = hub_digest(path)
    if known is not None:
        return Fingerprint("sha256", known)
    size = os.fstat(file.fileno()).st_size
    digest = hashlib.sha256(header)
    digest.update(struct.pack("<Q", size))
    for place, length in _samples(start, size):
        file.seek(place)
        digest.update(file.read(length))
    return Fingerprint("sampled", digest.hexdigest())


def _samples(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield place and length of what is read of the data: all of it, or samples from its first to its last byte."""
    length = end - start
    if length <= _SAMPLES * _SAMPLE_BYTES:
        yield start, max(length, 0)
        return
    for number in range(_SAMPLES):
        yield start + (length - _SAMPLE_BYTES) * number // (_SAMPLES - 1), _SAMPLE_BYTES


def joined(prints: Iterable[Fingerprint]) -> Fingerprint:
    """Return the fingerprint of several files in order; of one file, its own."""
    each = list(prints)
    if len(each) == 1:
        return each[0]
    lines = "\n".join(f"{one.kind}:{one.value}" for one in each)
    whole = all(one.kind == "sha256" for one in each)
    return Fingerprint("sha256" if whole else "sampled", hashlib.sha256(lines.encode()).hexdigest())
