"""The files of one process's audit trail: appended to, made safe on the disk, closed at a size, kept up to a number."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import accumulate, takewhile
from pathlib import Path

from otel_specdecode.guard.sealing import sealed, stamp
from otel_specdecode.version import __version__

FORMAT = 1
"""Version of the lines. It rises when a reader of an earlier one would read them wrongly, not for further fields."""

_NO_FSYNC = frozenset((errno.EINVAL, errno.ENOSYS, errno.ENOTSUP))
"""Errors of a file system that has no fsync."""


class AuditFiles:
    """Appends lines to files `guard-<pid>-<start>-<n>.jsonl` of its own; for one thread.

    Lines are handed in again and again until they are safe: what a full disk took of a line is continued, not repeated.

    Attributes:
        safe: Lines that are on the disk.
    """

    def __init__(self, folder: Path, most_bytes: int, files: int, policy: str, clock: Callable[[], int]) -> None:
        """Touch nothing yet.

        Args:
            folder: Made when it is needed.
            most_bytes: Size that a file does not exceed, unless by a single line.
            files: Closed files that are kept.
            policy: Digest, for the first line of each file.
            clock: Time of day, ns.
        """
        self.safe = 0
        self._folder = folder
        self._most_bytes = most_bytes
        self._files = files
        self._policy = policy
        self._clock = clock
        self._pid = os.getpid()
        self._start = clock()
        self._number = 0
        self._closed: deque[Path] = deque()
        self._path: Path | None = None
        self._fd: int | None = None
        self._head = b""  # the first line, until it is safe
        self._size = 0  # safe bytes
        self._unsafe = 0  # bytes after those, of lines that were begun

    def append(self, lines: deque[bytes]) -> None:
        """Write lines, and take those that are safe out of the queue.

        Raises:
            OSError: Something cannot be written now.
        """
        while lines:
            if self._fd is not None and not self._still_there():
                self._leave()
            if self._fd is None:
                self._open()
            batch = self._that_fit(lines)
            if batch:
                self._write(b"".join((self._head, *batch)))
                self.safe += len(batch)
                for _ in batch:
                    lines.popleft()
            else:
                self._rotate()

    def close(self) -> None:
        """Close the file; the next line begins another one."""
        fd, self._fd = self._fd, None
        if fd is not None:
            with suppress(OSError):
                os.close(fd)

    def _that_fit(self, lines: Iterable[bytes]) -> list[bytes]:
        """Return the lines that the file takes yet; of a new one at least the first, and always again those begun."""
        room = self._most_bytes - self._size - len(self._head)
        ends = takewhile(lambda end: end <= room, accumulate(map(len, lines)))
        fitting = [line for line, _ in zip(lines, ends, strict=False)]
        return fitting or ([next(iter(lines))] if self._head else [])

    def _write(self, content: bytes) -> None:
        fd = self._fd
        assert fd is not None  # noqa: S101 - for mypy
        while self._unsafe < len(content):
            self._unsafe += os.write(fd, memoryview(content)[self._unsafe :])
        try:
            _sync(fd)
        except OSError:
            # Nobody knows what of it is there: it is written once more, to another file.
            self._leave()
            raise
        self._size += len(content)
        self._unsafe = 0
        self._head = b""

    def _still_there(self) -> bool:
        """Return whether the file has its name yet: bytes for one that was taken away would reach nobody."""
        if self._path is None or self._fd is None:
            return False
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._fd))
        except FileNotFoundError:
            return False

    def _open(self) -> None:
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        while self._fd is None:
            path = self._folder / f"guard-{self._pid}-{_compact(self._start)}-{self._number + 1}.jsonl"
            try:
                self._fd = os.open(path, flags, 0o600)
            except FileExistsError:
                # Another process of this number, in a container beside this one; or another trail of this one.
                if self._number:
                    self._number += 1
                else:
                    self._start += 1
        self._path = path
        self._number += 1
        self._size = self._unsafe = 0
        self._head = self._header()
        _sync_folder(self._folder)

    def _header(self) -> bytes:
        return sealed(
            {
                "kind": "header",
                "format": FORMAT,
                "library": __version__,
                "process": f"{self._pid}-{_compact(self._start)}",
                "pid": self._pid,
                "started_at": stamp(self._start),
                "started_at_ns": self._start,
                "file": self._number,
                "next": self.safe + 1,
                "policy": self._policy,
            }
        )

    def _rotate(self) -> None:
        self._leave()
        while len(self._closed) > self._files:
            with suppress(OSError):
                os.unlink(self._closed.popleft())

    def _leave(self) -> None:
        self.close()
        if self._path is not None:
            self._closed.append(self._path)


def _compact(ns: int) -> str:
    return stamp(ns).replace("-", "").replace(":", "")


def _sync(fd: int) -> None:
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in _NO_FSYNC:
            raise


def _sync_folder(folder: Path) -> None:
    """Make names in a folder safe, where the file system lets a folder be synced."""
    with suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
