"""Opens files that a user names, and says in one line each what is wrong with them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

StrPath = str | os.PathLike[str]


class UnusableError(Exception):
    """A file or line of which nothing can be read. The text says why, and quotes nothing of it.

    Attributes:
        line: Where it is, from 1.
    """

    def __init__(self, message: str, line: int = 1) -> None:
        super().__init__(message)
        self.line = line


class FileError(Exception):
    """Files that cannot be used.

    Attributes:
        lines: What is wrong, all of it that could be found, each as `FILE:LINE: message`. FILE is the path as it was
            given.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(self.lines))


def check_file(path: StrPath, what: str, missing: str = "") -> None:
    """Raise UnusableError for what is no file, or one that this user may not read.

    Args:
        path: The file.
        what: What kind of file it should be, for the message.
        missing: What to do where there is none, as the end of that message.
    """
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise UnusableError(f"this is a folder: name a {what} in it")
        if not stat.S_ISREG(status.st_mode):
            raise UnusableError(f"this is no file: name a {what}")
        with open(path, "rb"):
            pass
    except FileNotFoundError:
        raise UnusableError(f"there is no such file{missing}") from None
    except PermissionError:
        raise UnusableError("this user may not read it: give it the permission") from None
    except OSError as error:
        raise UnusableError(f"the file cannot be read: {error.strerror}") from None
    except ValueError:
        raise UnusableError("no file can have this name") from None


def read_file(path: StrPath, what: str, most_bytes: int, missing: str = "", too_large: str = "") -> bytes:
    """Return what is in a file.

    Args:
        path: As for check_file().
        what: Likewise.
        most_bytes: Of a larger file nothing is read.
        missing: As for check_file().
        too_large: What to do with a larger one, as the end of that message.

    Raises:
        UnusableError: It cannot be read, or is larger.
    """
    check_file(path, what, missing)
    try:
        with open(path, "rb") as file:
            data = file.read(most_bytes + 1)
    except OSError as error:
        raise UnusableError(f"the file cannot be read: {error.strerror}") from None
    if len(data) > most_bytes:
        raise UnusableError(f"the file is larger than {most_bytes:_} bytes{too_large}")
    return data


def told_line(path: StrPath, line: int, message: str) -> str:
    """Return a finding as one line that prints."""
    text = f"{os.fspath(path)}:{line}: {message}"
    return "".join(each if each.isprintable() else each.encode("unicode_escape", "replace").decode() for each in text)
