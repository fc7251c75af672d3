"""Reads the host and keeps what was read: the raw text of every command and every file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from otel_specdecode.host.commands import Output, Runner
from otel_specdecode.host.linux import LinuxReader
from otel_specdecode.host.linux_files import Files

CGROUP = "/proc/self/cgroup"
MOUNTS = "/proc/self/mountinfo"

_KEPT_MOUNTS = (" - cgroup ", " - cgroup2 ")
_WORD = re.compile(r"[^/\s,]+")


class RecordingRunner:
    """Runs commands and keeps their outputs.

    Attributes:
        outputs: The output of each command, the latest where it ran again.
    """

    def __init__(self, run: Runner) -> None:
        """Hand commands on to a runner."""
        self._run = run
        self.outputs: dict[tuple[str, ...], Output] = {}

    def __call__(self, *command: str) -> Output:
        """Return a command's output."""
        output = self.outputs[command] = self._run(*command)
        return output


class RecordingFiles(Files):
    """Reads files and keeps what they hold.

    Attributes:
        texts: What each file held; None where it was not there.
        folders: The names in each folder.
    """

    def __init__(self, root: str = "/") -> None:
        """Look below this folder."""
        super().__init__(root)
        self.texts: dict[str, str | None] = {}
        self.folders: dict[str, list[str]] = {}

    def text(self, path: str) -> str | None:
        """Return what a file holds."""
        text = self.texts[path] = super().text(path)
        return text

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder."""
        names = self.folders[folder] = super().names(folder)
        return names


class RecordedLinux(LinuxReader):
    """Reads a Linux machine through files that keep what was read."""

    def __init__(self, files: RecordingFiles) -> None:
        """Read these files."""
        super().__init__(files=files)


def anonymous_cgroups(texts: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return files with the names of cgroups replaced, in their paths and contents alike.

    A cgroup is named after a user, a container or an app. Of the mounts only those of cgroups are kept.
    """
    parts = _cgroup_parts(texts.get(CGROUP) or "")

    def renamed(text: str) -> str:
        return _WORD.sub(lambda word: parts.get(word[0], word[0]), text)

    found: dict[str, str | None] = {}
    for path, text in texts.items():
        if path == MOUNTS and text is not None:
            mounts = [line for line in text.splitlines() if any(kind in line for kind in _KEPT_MOUNTS)]
            found[path] = "\n".join(_renamed_mount(line, renamed) for line in mounts)
        else:
            found[renamed(path)] = renamed(text) if path == CGROUP and text is not None else text
    return found


def _cgroup_parts(text: str) -> dict[str, str]:
    paths = [line.partition(":")[2].partition(":")[2] for line in text.splitlines()]
    names = dict.fromkeys(part for path in paths for part in path.split("/") if part and part != "..")
    return {name: f"part{number}" for number, name in enumerate(names, 1)}


def _renamed_mount(line: str, renamed: Callable[[str], str]) -> str:
    words = line.split(" ")
    for place in (3, 4):
        words[place] = renamed(words[place])
    return " ".join(words)
