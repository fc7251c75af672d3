"""The folder of a run: a head that is written once, and lines that are only ever added.

A process that is killed loses the line it was writing at most, and that request is run again. Each line has a
checksum: one that was altered, or torn, is told and passed over.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from msgspec import ValidationError, convert, to_builtins

from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.records import FORMAT, Arm, HostSample, Measured, Note, Run, RunHead
from otel_specdecode.guard.sealing import sealed, unsealed

HEAD = "run.json"
RESULTS = "results.jsonl"
HOST = "host.jsonl"
NOTES = "notes.jsonl"
ARMS = "arms.jsonl"

Line = TypeVar("Line", Measured, HostSample, Note, Arm)

_KINDS: dict[type, str] = {Measured: RESULTS, HostSample: HOST, Note: NOTES, Arm: ARMS}
_LARGEST = 1e18
"""Beyond an exabyte, and beyond the age of the universe in seconds."""

_CHANGED = "it is not as it was written, by its checksum"


class RunWriter:
    """Adds to a run. One process at a time; for several threads."""

    def __init__(self, folder: Path) -> None:
        """Open the files of a run that begin() made.

        Raises:
            AcceptanceError: They cannot be opened, or another process writes to them.
        """
        self._folder = folder
        self._files: dict[str, BinaryIO] = {}
        self._adding = threading.Lock()
        try:
            for name in _KINDS.values():
                self._files[name] = _open_to_add(folder / name)
            _lock(self._files[RESULTS], folder)
        except OSError as error:
            self.close()
            raise AcceptanceError(_cannot("written", folder, error)) from None
        except AcceptanceError:
            self.close()
            raise

    def add(self, line: Measured | HostSample | Note | Arm) -> None:
        """Add a line; it is on the disk when this returns.

        Raises:
            AcceptanceError: It cannot be written; what was written before is still there.
        """
        file = self._files[_KINDS[type(line)]]
        try:
            with self._adding:
                if not os.fstat(file.fileno()).st_nlink:
                    raise AcceptanceError(f"{self._folder} was removed while it was written to: begin another run.")
                _add(file, sealed(_short(line)))
        except OSError as error:
            raise AcceptanceError(
                f"{_cannot('written', self._folder, error)} What ended before is kept: make room and resume the run."
            ) from None

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()
        self._files = {}


def begin(folder: Path, head: RunHead) -> None:
    """Make the folder of a new run and write its head.

    Raises:
        AcceptanceError: There is a run already, or it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / HEAD).exists():
            raise AcceptanceError(f"{folder} holds a run already: resume it with --resume, or name another folder.")
        aside = folder / f".{HEAD}.{os.getpid()}"
        try:
            with aside.open("wb") as file:
                file.write(sealed(to_builtins(head)))
                file.flush()
                os.fsync(file.fileno())
            _place(aside, folder / HEAD)
        finally:
            aside.unlink(missing_ok=True)
    except FileExistsError:
        raise AcceptanceError(f"{folder} cannot be written: it is a file, or another run began in it.") from None
    except OSError as error:
        raise AcceptanceError(_cannot("written", folder, error)) from None


def holds_run(folder: Path) -> bool:
    """Return whether a folder holds a run.

    Raises:
        AcceptanceError: There can be no such folder, such as one of too long a name.
    """
    try:
        return (folder / HEAD).is_file()
    except OSError as error:
        raise AcceptanceError(_cannot("read", folder, error)) from None


def read_run(folder: Path) -> Run:
    """Return all that can be read of a run; the lines that cannot are told in its `faults`.

    Of two results of one id the first counts.

    Raises:
        AcceptanceError: There is no run, or its head cannot be read.
    """
    head = _read_head(folder)
    faults: list[str] = []
    results = {each.id: each for each in reversed(_lines(folder / RESULTS, Measured, faults))}
    arms = dict.fromkeys((*head.arms, *_lines(folder / ARMS, Arm, faults)))
    return Run(
        replace(head, arms=tuple(arms)),
        tuple(reversed(results.values())),
        tuple(_lines(folder / HOST, HostSample, faults)),
        tuple(_lines(folder / NOTES, Note, faults)),
        tuple(faults),
    )


def _read_head(folder: Path) -> RunHead:
    path = folder / HEAD
    try:
        found = unsealed(path.read_bytes())
    except FileNotFoundError:
        raise AcceptanceError(
            f"{folder} holds no run: name the folder that `otel-specdecode sweep` or `soak` wrote."
        ) from None
    except NotADirectoryError:
        raise AcceptanceError(f"{folder} is a file: name the folder of a run.") from None
    except OSError as error:
        raise AcceptanceError(_cannot("read", folder, error)) from None
    if found is None:
        raise AcceptanceError(f"{path} cannot be used: {_CHANGED}. Its numbers can no longer be vouched for.")
    if found.get("format") != FORMAT:
        raise AcceptanceError(f"{path} is of format {found.get('format')}; this release reads format {FORMAT}.")
    try:
        return convert(found, RunHead)
    except ValidationError as error:
        raise AcceptanceError(f"{path} is no head of a run: {error}.") from None


def _lines(path: Path, kind: type[Line], faults: list[str]) -> list[Line]:
    found: list[Line] = []
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return found
    except OSError as error:
        raise AcceptanceError(_cannot("read", path, error)) from None
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line:
            continue
        facts = unsealed(line)
        try:
            if facts is None:
                raise ValueError(_CHANGED)
            _check_size(facts)
            found.append(convert(facts, kind))
        except (ValidationError, ValueError, RecursionError) as error:
            faults.append(f"{path.name}:{number}: {error}")
    return found


def _check_size(facts: object) -> None:
    """Refuse a number that no clock and no memory reads: what is computed from it would run out of range.

    Raises:
        ValueError: There is one.
    """
    if isinstance(facts, dict | list):
        for each in facts.values() if isinstance(facts, dict) else facts:
            _check_size(each)
    elif isinstance(facts, int | float) and not -_LARGEST < facts < _LARGEST:
        raise ValueError(f"it holds the number {str(facts)[:20]}, which nothing that is measured here can be")


def _short(line: Measured | HostSample | Note | Arm) -> Mapping[str, Any]:
    """Return the fields of a line that are not what they are by default."""
    defaults = {each.name: _default(each) for each in fields(line)}
    kept = {name: getattr(line, name) for name, default in defaults.items() if getattr(line, name) != default}
    shortened: dict[str, Any] = to_builtins(kept)
    return shortened


def _default(field: Any) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default


def _open_to_add(path: Path) -> BinaryIO:
    """Open a file to add to; a line that was torn gets its end, so that the next one stands by itself."""
    file = path.open("ab+", buffering=0)
    try:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                _write_all(file, b"\n")
    except OSError:
        file.close()
        raise
    return file


def _place(aside: Path, path: Path) -> None:
    """Give a file its name unless another process gave it to one of its own meanwhile."""
    try:
        os.link(aside, path)
    except FileExistsError:
        raise
    except OSError:  # a file system that has no links
        aside.replace(path)


def _add(file: BinaryIO, line: bytes) -> None:
    before = os.fstat(file.fileno()).st_size
    try:
        _write_all(file, line)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(file.fileno(), before)  # half a line would only have to be told of later
        raise
    os.fsync(file.fileno())


def _write_all(file: BinaryIO, content: bytes) -> None:
    """Write all of it: a disk that is nearly full takes a part first."""
    view = memoryview(content)
    while view:
        view = view[file.write(view) :]


def _lock(file: BinaryIO, folder: Path) -> None:
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise AcceptanceError(f"another process adds to the run in {folder}: wait for it, or end it.") from None
    except OSError:
        return  # a file system that has no locks


def _cannot(what: str, path: Path, error: OSError) -> str:
    return f"{path} cannot be {what} ({error.strerror or type(error).__name__})."
