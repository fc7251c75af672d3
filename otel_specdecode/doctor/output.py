"""Writes to the standard output and error, which may be closed, full, or a pipe that nobody reads to the end."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress

NOT_WRITTEN = 3
"""Exit status where the report could not be written."""


def write_out(text: str) -> int:
    """Write a text to the standard output; return 0, or `NOT_WRITTEN`.

    A closed output, and a reader such as `head` that has seen enough, are no failure.
    """
    if sys.stdout is None:
        return 0
    try:
        encoding = sys.stdout.encoding or "utf-8"
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except OSError as error:
        _discard_the_rest()
        if error.errno in (errno.EPIPE, errno.EBADF):
            return 0
        say(f"The report could not be written ({error.strerror}).")
        return NOT_WRITTEN
    return 0


def say(text: str) -> None:
    """Write a line to the standard error, if there is one."""
    if sys.stderr is not None:
        with suppress(OSError):
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()


def _discard_the_rest() -> None:
    """Let what is still in the buffer go nowhere, else the interpreter complains when it ends."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
