"""What a run has so far, and its files: whoever runs requests asks it what is done and hands it what ended."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.records import Arm, HostSample, Measured, Note, Run, RunHead
from otel_specdecode.acceptance.storage import ARMS, HEAD, HOST, NOTES, RESULTS, RunWriter, begin, holds_run, read_run


class Book:
    """An open run. For several threads.

    What ended stays on the disk alone: a soak that kept hours of it in memory would find that memory grows.
    """

    def __init__(
        self, folder: Path, clock: Callable[[], float] = time.time, *, writer: RunWriter | None = None
    ) -> None:
        """Open a run that was begun, to add to it.

        Args:
            folder: The run's folder.
            clock: Seconds since the epoch.
            writer: What adds to it; None opens it. It is closed with the book.

        Raises:
            AcceptanceError: It cannot be read, or written.
        """
        self.folder = folder
        self._writer = writer or RunWriter(folder)  # first: nobody else writes to it from here on
        try:
            found = read_run(folder)
        except BaseException:
            self._writer.close()
            raise
        self.head: RunHead = found.head
        self._arms = set(found.head.arms)
        self._ended = {each.id for each in found.results}
        self._notes = list(found.notes)
        self._clock = clock

    @classmethod
    def begin(cls, folder: Path, head: RunHead, results: Iterable[Measured] = ()) -> Book:
        """Make the folder of a new run and open it.

        Args:
            folder: The run's folder.
            head: What the run is.
            results: What ended before. It is kept before the head is, so that whoever is killed leaves a run that has
                it, or no run.

        Raises:
            AcceptanceError: There is a run already, or something of one, or it cannot be written.
        """
        _make(folder)
        writer = RunWriter(folder)
        try:
            _clear(folder)
            for each in results:
                writer.add(each)
            begin(folder, head)
        except BaseException:
            writer.close()
            raise
        return cls(folder, writer=writer)

    @property
    def begun(self) -> bool:
        """Whether an earlier process has begun it."""
        return any(note.what == "begun" for note in self._notes)

    def has(self, job: str) -> bool:
        """Return whether a request has ended."""
        return job in self._ended

    def add(self, result: Measured) -> None:
        """Keep what came of a request; it is on the disk when this returns."""
        self._writer.add(result)
        self._ended.add(result.id)

    def sample(self, sample: HostSample) -> None:
        """Keep how the machine is."""
        self._writer.add(sample)

    def note(self, what: Note, *, once: bool = False) -> None:
        """Keep what happened.

        Args:
            what: It.
            once: Not if the same was noted before.
        """
        if once and any((each.what, each.why) == (what.what, what.why) for each in self._notes):
            return
        self._writer.add(what)
        self._notes.append(what)

    def add_arm(self, arm: Arm) -> None:
        """Keep an arm that the run did not begin with; one that it has is left."""
        if arm not in self._arms:
            self._writer.add(arm)
            self._arms.add(arm)

    def run(self) -> Run:
        """Return the run as it stands.

        Raises:
            AcceptanceError: It cannot be read.
        """
        return read_run(self.folder)

    def now(self) -> float:
        """Return seconds since the epoch."""
        return self._clock()

    def close(self) -> None:
        """Close the files."""
        self._writer.close()


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise AcceptanceError(f"{folder} cannot be written: it is a file.") from None
    except OSError as error:
        raise AcceptanceError(f"{folder} cannot be written ({error.strerror or type(error).__name__}).") from None


def _clear(folder: Path) -> None:
    """Take away what a process left that was killed as it began a run; nobody else may write there meanwhile."""
    if holds_run(folder):
        raise AcceptanceError(f"{folder} holds a run already: resume it with --resume, or name another folder.")
    try:
        if any((folder / name).stat().st_size for name in (NOTES, HOST, ARMS)):
            raise AcceptanceError(f"{folder} holds a run whose {HEAD} is gone: name another folder.")
        os.truncate(folder / RESULTS, 0)
    except OSError as error:
        raise AcceptanceError(f"{folder} cannot be written ({error.strerror or type(error).__name__}).") from None
