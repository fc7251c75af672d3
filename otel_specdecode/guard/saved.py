"""State that outlives its process: files that are whole or not there, and who may restore which.

A folder has slots, 1, 2 and so on. A process holds the lock of one slot, `state-<n>.lock`, for as long as it lives, and
only it writes `state-<n>.json`. The kernel gives a lock up when its process ends, also by kill -9, so a slot is never
orphaned, and two processes never hold the same one. A new process takes, of the slots that nobody holds, the one with
the newest state; if all are held it makes another one. So there are never more slots than there were processes at once.

A state is written beside its file, made safe on the disk and renamed: a kill at any point leaves the old state or the
new one. Neither lock files nor states are ever deleted, so nobody can hold a lock that another one does not see; where
somebody else removes a lock's file, its process makes it again before it saves. The child of a fork shares its parent's
lock without a right to the slot; it lets go of it at once, and may take one of its own.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from otel_specdecode.generation.faults import report_fault
from otel_specdecode.guard.sealing import sealed, stamp, unsealed

FORMAT = 1
"""Version of the file, not of the state in it."""

NOTHING_SAVED = "there is none"
"""Why there is no state where none was ever saved."""

_LOCK = re.compile(r"state-(\d{1,6})\.lock\Z")


@dataclass(frozen=True, slots=True)
class Saved:
    """What a file has.

    Attributes:
        state: None where there is none that may be used.
        reason: Why there is none; None where there is one.
        at: Time of day at which the file says it was saved, ns; None if it does not.
    """

    state: Mapping[str, Any] | None
    reason: str | None = None
    at: int | None = None


def save_state(path: Path, state: Mapping[str, Any], *, policy: str, clock: Callable[[], int] = time.time_ns) -> None:
    """Replace the state in a file; whoever reads finds the one before or this one.

    Args:
        path: The file; only one process may save to it at once.
        state: What JSON can say.
        policy: Digest of the policy that it was made under.
        clock: Time of day, ns.

    Raises:
        OSError: It cannot be written; the one before is still there.
        TypeError: JSON cannot say it.
        ValueError: Likewise.
    """
    now = clock()
    content = sealed({"format": FORMAT, "policy": policy, "saved_at": stamp(now), "saved_at_ns": now, "state": state})
    beside = path.with_name(f"{path.name}.new")
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(fd)
    os.replace(beside, path)
    with suppress(OSError):  # not every file system lets a folder be synced
        folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def load_state(path: Path, *, policy: str, max_age: float, clock: Callable[[], int] = time.time_ns) -> Saved:
    """Return the state in a file, or why it is of no use.

    Args:
        path: The file.
        policy: Digest of the policy that it must have been made under.
        max_age: Seconds that it may be old; as many it may be ahead, where the clock was set back.
        clock: Time of day, ns.
    """
    try:
        fields = unsealed(path.read_bytes())
    except FileNotFoundError:
        return Saved(None, NOTHING_SAVED)
    except OSError as error:
        return Saved(None, f"it cannot be read ({type(error).__name__})")
    if fields is None:
        return Saved(None, "it is not as it was written")
    if fields.get("format") != FORMAT:
        return Saved(None, "it is of another version")
    state, at = fields.get("state"), fields.get("saved_at_ns")
    if not isinstance(state, dict) or type(at) is not int:
        return Saved(None, "it is not as it was written")
    if fields.get("policy") != policy:
        return Saved(None, "it was saved under another policy", at)
    if abs(clock() - at) > max_age * 1e9:
        return Saved(None, "it is too old", at)
    return Saved(state, None, at)


class StateSlot:
    """A place for the state of this process, with what a process before it left there.

    Attributes:
        found: What was there when it was taken.
    """

    def __init__(
        self, folder: Path, number: int, lock: int, found: Saved, policy: str, clock: Callable[[], int]
    ) -> None:
        """Hold a slot; take_slot() makes one.

        Args:
            folder: Of the slots.
            number: Of this one.
            lock: Descriptor that holds its lock.
            found: What is there.
            policy: Digest of the policy.
            clock: Time of day, ns.
        """
        self.found = found
        self._folder = folder
        self._number = number
        self._lock: int | None = lock
        self._policy = policy
        self._clock = clock
        self._tells = self._is_seen(lock)
        """Whether the file system tells: on some a file has another number each time that one looks."""
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=partial(_after_fork, weakref.ref(self)))

    def save(self, state: Mapping[str, Any]) -> bool:
        """Save a state, on one thread at a time; waits for the disk.

        Where somebody removed the lock's file, nobody else would see that the slot is held: it is made again, or
        another slot is taken where another process has this one by now.

        Returns:
            Whether it is on the disk. Why not is logged once.
        """
        lock = self._lock
        if lock is None:
            return False
        try:
            self._hold_again(lock)
            save_state(_state(self._folder, self._number), state, policy=self._policy, clock=self._clock)
        except Exception as error:
            report_fault("the guard's state could not be saved", error)
            return False
        return True

    def _hold_again(self, lock: int) -> None:
        """Hold a lock that others see, unless the one that is held is.

        Raises:
            OSError: There is no folder any more, or nobody can hold one there.
        """
        if not self._tells or self._is_seen(lock):
            return
        number = self._number
        again = None if _lock_file(self._folder, number).exists() else _hold(self._folder, number)
        if again is None:
            number, again = _hold_further(self._folder, _known(self._folder))
        self._number, self._lock = number, again
        os.close(lock)

    def _is_seen(self, lock: int) -> bool:
        """Return whether the file of the slot's lock is the one that is held."""
        try:
            return os.path.samestat(os.fstat(lock), os.stat(_lock_file(self._folder, self._number)))
        except OSError:
            return False

    def release(self) -> None:
        """Leave the slot, and the state in it, to another process."""
        lock, self._lock = self._lock, None
        if lock is not None:
            with suppress(OSError):
                os.close(lock)


def take_slot(
    folder: Path, *, policy: str, max_age: float, clock: Callable[[], int] = time.time_ns
) -> StateSlot | None:
    """Take a slot for this process: the free one with the newest state that may be used, else any free one.

    Args:
        folder: Of the slots; made if it is not there.
        policy: Digest of the policy.
        max_age: Seconds that a state may be old.
        clock: Time of day, ns.

    Returns:
        The slot, None where the folder or its file system lets nobody hold one; why is logged once.
    """
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        known = _known(folder)
        load = partial(load_state, policy=policy, max_age=max_age, clock=clock)
        for number in sorted(known, key=lambda number: _newest_first(load(_state(folder, number)))):
            if (lock := _hold(folder, number)) is not None:
                # Read again: it may have been taken, saved to and left since.
                return StateSlot(folder, number, lock, load(_state(folder, number)), policy, clock)
        number, lock = _hold_further(folder, known)
        return StateSlot(folder, number, lock, load(_state(folder, number)), policy, clock)
    except OSError as error:
        report_fault("the guard's state is neither restored nor saved", error)
        return None


def _state(folder: Path, number: int) -> Path:
    return folder / f"state-{number}.json"


def _lock_file(folder: Path, number: int) -> Path:
    return folder / f"state-{number}.lock"


def _known(folder: Path) -> list[int]:
    """Return the numbers of the slots of a folder."""
    return sorted(int(found[1]) for name in os.listdir(folder) if (found := _LOCK.match(name)))


def _newest_first(saved: Saved) -> tuple[bool, int]:
    return (saved.state is None, -(saved.at or 0))


def _hold(folder: Path, number: int) -> int | None:
    """Return a descriptor that holds the lock of a slot, None if somebody else has it.

    Raises:
        OSError: Nobody can hold one there.
    """
    lock = os.open(_lock_file(folder, number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    except BaseException:
        os.close(lock)
        raise
    return lock


def _hold_further(folder: Path, known: list[int]) -> tuple[int, int]:
    """Return a slot beyond those known, and a descriptor that holds its lock.

    Raises:
        OSError: Nobody can hold one there.
    """
    number = max(known, default=0)
    while True:
        number += 1
        if (lock := _hold(folder, number)) is not None:
            return number, lock


def _after_fork(reference: weakref.ref[StateSlot]) -> None:
    slot = reference()
    if slot is not None:
        slot.release()
