"""Reads audit trails: the files of many processes as one, whatever happened to them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from otel_specdecode.generation.transition import Transition
from otel_specdecode.guard.audit_files import FORMAT
from otel_specdecode.guard.lines import transition_of, whole
from otel_specdecode.guard.sealing import unsealed

PATTERN = "guard-*.jsonl"
_NAME = re.compile(r"guard-(?P<process>.+)-\d+\.jsonl\Z")
_LONGEST = 1 << 20
"""Bytes of a line, more than any has that was written."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One transition of a trail.

    Attributes:
        process: Process id and start time of the process that wrote it.
        number: Of the line, among those of its process.
        transition: What it says.
    """

    process: str
    number: int
    transition: Transition


@dataclass(frozen=True, slots=True)
class Trail:
    """What files say, and what they no longer say.

    What was taken away at the end of a process's last file, or with its first ones (which a process takes away itself
    at some number) cannot be known.

    Attributes:
        entries: Transitions in order of time; of the same time, by process and number.
        files: Files that were read.
        lost: Lines that processes told of as lost: the disk was full, or the folder away, for too long.
        unreadable: Lines that are not as they were written.
        unfinished: Last lines without an end: being written, or cut off when their process was killed.
        missing: Lines that were written, as the numbers of others tell, and are not there, not even unreadable.
        newer: Files of a later version, whose lines this one would read wrongly and leaves out.
    """

    entries: tuple[Entry, ...] = ()
    files: int = 0
    lost: int = 0
    unreadable: int = 0
    unfinished: int = 0
    missing: int = 0
    newer: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether nothing was altered and nothing taken away."""
        return not self.unreadable and not self.missing and not self.newer


def read_trail(paths: Path | Iterable[Path]) -> Trail:
    """Read trails, also of processes that still write.

    Args:
        paths: Folders with trails, and files of trails. A line that is there twice counts once.

    Raises:
        OSError: A folder or file that is named here, or a file of such a folder, cannot be read.
    """
    reading = _Reading()
    for path in [paths] if isinstance(paths, Path) else paths:
        # All names first: of a file that is closed meanwhile the next one is then not known either.
        for file, named in [(each, False) for each in _files_in(path)] if path.is_dir() else [(path, True)]:
            # A process takes away its oldest files.
            with suppress(*(() if named else (FileNotFoundError,))):
                reading.read(file)
    return reading.trail()


def _files_in(folder: Path) -> list[Path]:
    """Return the files of trails in a folder; unlike glob(), fail where it cannot be read. A pipe is no file."""
    return sorted(each for each in folder.iterdir() if each.match(PATTERN) and each.is_file())


def _lines_of(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file; of one too long to be any, whatever it is of, only its end."""
    while line := file.readline(_LONGEST):
        while len(line) == _LONGEST and not line.endswith(b"\n"):
            line = file.readline(_LONGEST) or b"?"
        yield line


@dataclass(slots=True)
class _Part:
    """Lines of one process that stand together.

    Attributes:
        first: Number that its first line should have, None if the header does not say so any more.
        numbers: Numbers of its lines, None for those that cannot be read.
    """

    first: int | None = None
    numbers: list[int | None] = field(default_factory=list)

    @property
    def begins(self) -> int:
        """Number by which parts of a process come in order."""
        known = (number for number in (self.first, *self.numbers) if number is not None)
        return next(known, 0)


class _Reading:
    def __init__(self) -> None:
        self._parts: dict[str, list[_Part]] = {}
        self._entries: dict[tuple[str, int], Transition] = {}
        self._losses: dict[tuple[str, int], int] = {}
        self._files: set[tuple[int, int]] = set()
        self._unreadable = 0
        self._unfinished = 0
        self._newer = 0

    def read(self, path: Path) -> None:
        with path.open("rb") as file:
            status = path.stat()
            identity = (status.st_dev, status.st_ino)
            if identity in self._files:
                return
            self._files.add(identity)
            named = _NAME.match(path.name)
            process = named["process"] if named else path.name
            part: _Part | None = None
            for line in _lines_of(file):
                fields = unsealed(line)
                if _is_newer(fields):
                    self._newer += 1
                    return
                begun = _header(fields)
                if begun is not None:
                    process, first = begun
                    part = self._new_part(process, first)
                elif line.endswith(b"\n"):
                    if part is None:
                        part = self._new_part(process, None)
                    part.numbers.append(self._take(process, fields))
                else:
                    self._unfinished += 1

    def _new_part(self, process: str, first: int | None) -> _Part:
        part = _Part(first)
        self._parts.setdefault(process, []).append(part)
        return part

    def _take(self, process: str, fields: dict[str, Any] | None) -> int | None:
        """Keep what a line says and return its number, None if it cannot be read."""
        try:
            if fields is None:
                raise ValueError("not as it was written")
            number = whole(fields["number"])
            match fields["kind"]:
                case "transition":
                    self._entries[process, number] = transition_of(fields)
                case "lost":
                    self._losses[process, number] = whole(fields["count"])
        except (KeyError, TypeError, ValueError, OverflowError):
            self._unreadable += 1
            return None
        return number

    def trail(self) -> Trail:
        entries = [Entry(process, number, said) for (process, number), said in self._entries.items()]
        entries.sort(key=lambda entry: (entry.transition.at, entry.process, entry.number))
        return Trail(
            entries=tuple(entries),
            files=len(self._files),
            lost=sum(self._losses.values()),
            unreadable=self._unreadable,
            unfinished=self._unfinished,
            missing=sum(map(_missing, self._parts.values())),
            newer=self._newer,
        )


def _is_newer(fields: dict[str, Any] | None) -> bool:
    """Return whether this is the header of a later version."""
    version = None if fields is None or fields.get("kind") != "header" else fields.get("format")
    return type(version) is int and version > FORMAT


def _header(fields: dict[str, Any] | None) -> tuple[str, int] | None:
    """Return the process of a header, and the number of the line that follows; None of what is no header."""
    if fields is None or fields.get("kind") != "header":
        return None
    process, following = fields.get("process"), fields.get("next")
    return (process, following) if isinstance(process, str) and type(following) is int else None


def _missing(parts: list[_Part]) -> int:
    """Return how many lines of a process are not there."""
    missing = unreadable = 0
    expected: int | None = None
    for part in sorted(parts, key=lambda part: part.begins):
        known: list[tuple[int | None, int]] = [(number, 1) for number in part.numbers]
        if part.first is not None:
            known.insert(0, (part.first, 0))  # it does not stand there yet, the header does
        elif known[0][0] is None:
            del known[0]  # that was the header
        else:
            missing += 1
        for number, lines in known:
            if number is None:
                unreadable += 1
                continue
            if expected is not None:
                missing += max(0, number - expected - unreadable)
            expected = max(number if expected is None else expected, number + lines)
            unreadable = 0
    return missing
