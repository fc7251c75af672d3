"""State that outlives its process: files that are whole or not there, and who may restore which.

A folder has slots, 1, 2 and so on. A process holds the lock of one slot, `state-<n>.lock`, for as long as it lives, and
only it writes `state-<n>.json`. The kernel gives a lock up when its process ends, also by kill -9, so a slot is never
orphaned, and two processes never hold the same one. A new process takes, of the slots that nobody holds, the one with
the newest state; if all are held it makes another one. So there are never more slots than there were processes at once.

A state is written beside its file, made safe on the disk and renamed: a kill at any point leaves the old state or the
new one. Neither lock files nor states are ever deleted, so nobody can hold a lock that another one does not see. The
child of a fork shares its parent's lock without a right to the slot; it lets go of it at once, and may take one of its
own.
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
        return Saved(None, "there is none")
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

    def __init__(self, path: Path, lock: int, found: Saved, policy: str, clock: Callable[[], int]) -> None:
        """Hold a slot; take_slot() makes one.

        Args:
            path: File of the state.
            lock: Descriptor that holds the lock.
            found: What is there.
            policy: Digest of the policy.
            clock: Time of day, ns.
        """
        self.found = found
        self._path = path
        self._lock: int | None = lock
        self._policy = policy
        self._clock = clock
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=partial(_after_fork, weakref.ref(self)))

    def save(self, state: Mapping[str, Any]) -> bool:
        """Save a state, on one thread at a time; waits for the disk.

        Returns:
            Whether it is on the disk. Why not is logged once.
        """
        if self._lock is None:
            return False
        try:
            save_state(self._path, state, policy=self._policy, clock=self._clock)
        except Exception as error:
            report_fault("the guard's state could not be saved", error)
            return False
        return True

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
        known = sorted(int(found[1]) for name in os.listdir(folder) if (found := _LOCK.match(name)))
        load = partial(load_state, policy=policy, max_age=max_age, clock=clock)
        further = max(known, default=0)
        for number in sorted(known, key=lambda number: _newest_first(load(_state(folder, number)))):
            if (lock := _hold(folder, number)) is not None:
                # Read again: it may have been taken, saved to and left since.
                return StateSlot(_state(folder, number), lock, load(_state(folder, number)), policy, clock)
        while True:
            further += 1
            if (lock := _hold(folder, further)) is not None:
                return StateSlot(_state(folder, further), lock, load(_state(folder, further)), policy, clock)
    except OSError as error:
        report_fault("the guard's state is neither restored nor saved", error)
        return None


def _state(folder: Path, number: int) -> Path:
    return folder / f"state-{number}.json"


def _newest_first(saved: Saved) -> tuple[bool, int]:
    return (saved.state is None, -(saved.at or 0))


def _hold(folder: Path, number: int) -> int | None:
    """Return a descriptor that holds the lock of a slot, None if somebody else has it.

    Raises:
        OSError: Nobody can hold one there.
    """
    lock = os.open(folder / f"state-{number}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    except BaseException:
        os.close(lock)
        raise
    return lock


def _after_fork(reference: weakref.ref[StateSlot]) -> None:
    slot = reference()
    if slot is not None:
        slot.release()
