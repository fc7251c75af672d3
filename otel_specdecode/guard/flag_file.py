"""The file that switches speculation off while its first line says so."""

from __future__ import annotations

import codecs
import errno
import os
import stat
from pathlib import Path

_OFF = "off"
_MOST = 256
"""Bytes that are read: more than such a line has."""

_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def says_on(path: Path) -> bool:
    """Return whether a flag file leaves speculation on: one that is not there, or says anything but `off`, does.

    Whatever some editors and shells put before the word is no part of it. Waits for nobody who might write to a pipe.

    Raises:
        OSError: It is there and cannot be read, or is no file: what it said last counts.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except (FileNotFoundError, NotADirectoryError):
        return True
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "no file")
        begin = os.read(file, _MOST)
    finally:
        os.close(file)
    text = begin.decode("utf-16" if begin.startswith(_UTF_16) else "utf-8-sig", "replace")
    return (text.splitlines() or [""])[0].strip().lower() != _OFF
