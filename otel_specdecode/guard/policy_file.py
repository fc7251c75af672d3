"""Reads a policy file, and says in which line what is wrong with it."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from otel_specdecode.guard.policy import VERSIONS, Policy
from otel_specdecode.guard.policy_rules import broken_rules
from otel_specdecode.guard.policy_shape import Finding, read_parts, shown
from otel_specdecode.guard.toml_lines import Place, line_at, lines_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MOST_BYTES: Final = 1_000_000
_LINE: Final = re.compile(r" \(at line (\d+), column (\d+)\)$")
_LONGEST: Final = 300
_END: Final = " (at end of document)"


class PolicyError(ValueError):
    """A policy file that cannot be used.

    Attributes:
        lines: What is wrong, all of it that could be found, each as `FILE:LINE: message`. FILE is the path as it was
            given.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(self.lines))


@dataclass(frozen=True)
class PolicyFile:
    """A policy and where it was read.

    Attributes:
        policy: What it says.
        folder: The folder of its file, which relative paths in it start from.
    """

    policy: Policy
    folder: Path

    @property
    def flag_file(self) -> Path | None:
        """The policy's `flag_file`."""
        return self._resolved(self.policy.flag_file)

    @property
    def canary_file(self) -> Path | None:
        """The policy's `canary_file`."""
        return self._resolved(self.policy.canary_file)

    @property
    def baseline_file(self) -> Path | None:
        """The policy's `baseline.file`."""
        return self._resolved(self.policy.baseline.file)

    @property
    def baseline_written(self) -> Path | None:
        """The policy's `baseline.write`."""
        return self._resolved(self.policy.baseline.write)

    @property
    def audit_folder(self) -> Path | None:
        """The policy's `audit.folder`."""
        return self._resolved(self.policy.audit.folder)

    def _resolved(self, path: str | None) -> Path | None:
        return None if path is None else self.folder / path


class _UnusableError(Exception):
    """A file of which nothing can be read."""

    def __init__(self, message: str, line: int = 1) -> None:
        super().__init__(message)
        self.line = line


def read_policy(path: str | os.PathLike[str]) -> PolicyFile:
    """Return the policy in a file.

    Raises:
        PolicyError: It cannot be read, is no TOML, or says what no policy may say.
    """
    try:
        text = _text(path)
        document = _document(text)
        lines = _lines(text)
    except _UnusableError as error:
        raise PolicyError([_told(path, error.line, str(error))]) from error
    folder = Path(path).absolute().parent
    findings: list[Finding] = list(_other_version(document))
    if not findings:
        parts = read_parts(Policy, document, (), findings)
        findings += broken_rules(parts, folder)
    if not findings:
        return PolicyFile(Policy(**parts), folder)
    found = sorted({(line_at(lines, each.place), each.message): None for each in findings})
    raise PolicyError(_told(path, line, message) for line, message in found)


def _text(path: str | os.PathLike[str]) -> str:
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise _UnusableError("this is a folder: name the policy file in it")
        if not stat.S_ISREG(status.st_mode):
            raise _UnusableError("this is no file: name a policy file")
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise _UnusableError("there is no such file: `otel-specdecode guard init --output FILE` writes one") from None
    except PermissionError:
        raise _UnusableError("this user may not read it: give it the permission") from None
    except OSError as error:
        raise _UnusableError(f"it cannot be read: {error.strerror}") from None
    except ValueError:
        raise _UnusableError("no file can have this name") from None
    if len(data) > MOST_BYTES:
        raise _UnusableError(f"it is larger than {MOST_BYTES:_} bytes, which no policy is: name a policy file")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _UnusableError("it is not UTF-8: save it as UTF-8", data[: error.start].count(b"\n") + 1) from None
    if text.startswith("\ufeff"):
        raise _UnusableError("it begins with a byte order mark: save it as UTF-8 without one")
    return text.replace("\r\n", "\n")


def _document(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        if len(message) > _LONGEST:  # it repeats keys; the place is at its end
            message = f"{message[:_LONGEST]} ...{message[-50:]}"
        match = _LINE.search(message)
        if match is None:
            return _refuse(f"it ends in the middle: {message.removesuffix(_END)}", text.rstrip().count("\n") + 1)
        return _refuse(f"this is not TOML, at column {match[2]}: {message[: match.start()]}", int(match[1]))
    except RecursionError:
        return _refuse("it is nested too deeply")
    except ValueError:
        return _refuse("it holds a number with too many digits")


def _refuse(message: str, line: int = 1) -> dict[str, Any]:
    raise _UnusableError(message, line) from None


def _lines(text: str) -> dict[Place, int]:
    try:
        return lines_of(text)
    except RecursionError:
        raise _UnusableError("it is nested too deeply") from None


def _other_version(document: dict[str, Any]) -> Iterable[Finding]:
    """What is wrong with the version; the keys of another one are not known, so nothing else is worth telling then."""
    version = document.get("version", VERSIONS[-1])
    if isinstance(version, bool) or not isinstance(version, int) or version not in VERSIONS:
        readable = ", ".join(map(str, VERSIONS))
        what = f"this release reads version {readable} of the format, not {shown(version)}"
        yield Finding(("version",), f"{what}: `otel-specdecode guard init` prints one to adapt")


def _told(path: str | os.PathLike[str], line: int, message: str) -> str:
    """Return a finding as one line that prints."""
    text = f"{os.fspath(path)}:{line}: {message}"
    return "".join(each if each.isprintable() else each.encode("unicode_escape", "replace").decode() for each in text)
