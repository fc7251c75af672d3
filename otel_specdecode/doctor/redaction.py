"""Takes out of texts what tells who and which machine it was, and leaves what a parser reads."""

from __future__ import annotations

import getpass
import os
import platform
import re
import socket
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

# A name of several words is told from the text around it by the folder that follows.
_PART = r"(?:[^/\\\s\"':,;()]|(?<=\w)'(?=\w))+"
_NAME = rf"(?:{_PART}(?: {_PART}){{0,3}}(?=[/\\])|{_PART})"
_HOME = re.compile(rf"(/(?:Users|home|var/home))/{_NAME}|([A-Za-z]:\\Users)\\{_NAME}")
_PACKAGES = re.compile(r"(?:[A-Za-z]:)?[/\\][^\s\"':,;()]*[/\\](?:site|dist)-packages(?=[/\\])")
_SLEEP_PREVENTERS = re.compile(r"(prevented by )([^)\n]*)")
_SUPPLY_ID = re.compile(r"\(id=\d+\)")
_NAMED_SUPPLY = re.compile(r"^( -)(?!InternalBattery-\d+ )[^\t\n]*?( \(id=\d+\))", re.MULTILINE)
_SERIAL = re.compile(
    r"((?:serial[ _-]?(?:number|no)?|IOPlatform\w+|\buuid)[\"' ]*[:=][\"' ]*)[^\s\"',;()]+", re.IGNORECASE
)
_UUID = re.compile(r"\b[0-9A-F]{8}-[0-9A-F]{4}-[0-9A-F]{4}-[0-9A-F]{4}-[0-9A-F]{12}\b", re.IGNORECASE)
_MAC = re.compile(r"\b(?:[0-9A-F]{2}[:-]){5}[0-9A-F]{2}\b", re.IGNORECASE)
_LONG_HEX = re.compile(r"\b[0-9a-f]{32,}\b", re.IGNORECASE)
_MAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")

_ANYBODYS_HOME = os.path.join("/home", "user")  # in one piece it would look like somebody's

_PUBLIC_NAMES = frozenset(
    {
        *("root", "user", "localhost", "admin", "runner", "host", "computer", "desktop", "laptop", "server", "test"),
        *("alma", "almalinux", "alpine", "amazon", "amzn", "arch", "centos", "debian", "fedora", "gentoo", "kali"),
        *("linux", "manjaro", "mint", "nixos", "opensuse", "oracle", "pop", "raspbian", "redhat", "rhel", "rocky"),
        *("suse", "ubuntu", "apple", "darwin", "mac", "macos", "macbook", "windows", "intel", "arm", "arm64", "x86_64"),
        *("proc", "sys", "dev", "etc", "class", "devices", "system", "kernel", "cgroup", "self", "files", "memory"),
        *("power", "battery", "sleep", "charging", "discharging", "charged", "thermal", "process", "python", "build"),
        *("swap", "pages", "page", "cpu", "gpu", "name", "version", "mode", "low", "high", "nominal", "none", "true"),
        *("max", "min", "peak", "current", "online", "status", "type", "model", "processor", "supply", "pressure"),
    }
)
"""Names that tell nothing: of many machines, of distributions, and words of the outputs."""

_OURS = frozenset({"bundle", "system", "command", "format", "otel_specdecode", "id", "status"})
"""Keys whose values this package made up itself."""
_NAMED_BY_HOST = frozenset({"files", "folders"})
"""Keys of mappings whose own keys are paths of the host."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What must not leave this machine.

    Attributes:
        homes: Home folders.
        users: Names of the user, the full one included.
        hosts: Names of the machine, with and without a domain.
    """

    homes: tuple[str, ...]
    users: tuple[str, ...]
    hosts: tuple[str, ...]


def this_identity(environ: Mapping[str, str] = os.environ) -> Identity:
    """Return who uses which machine here, as far as the system tells."""
    home = os.path.expanduser("~")
    homes = {environ.get("HOME", "")} | (set() if home == "~" else {home, os.path.realpath(home)})
    users = {environ.get(name, "") for name in ("USER", "LOGNAME", "USERNAME")}
    with suppress(Exception):
        users.add(getpass.getuser())
    with suppress(Exception):
        import pwd

        entry = pwd.getpwuid(os.getuid())
        users |= {entry.pw_name, entry.pw_gecos.partition(",")[0]}
        homes.add(entry.pw_dir)
    hosts = {platform.node(), socket.gethostname()}
    hosts |= {host.partition(".")[0] for host in hosts}
    return Identity(_longest_first(homes - {"", "/", "~"}), _longest_first(users), _longest_first(hosts))


class Redaction:
    """Replaces what tells who and which machine it was. The same text always becomes the same."""

    def __init__(self, identity: Identity) -> None:
        """Prepare to replace these names, and everything that looks like a home folder, a serial number or an id."""
        self._places: list[Callable[[str], str]] = [
            _replacing(_PACKAGES, "site-packages"),
            *(_replacing(re.compile(re.escape(home) + r"(?![\w.-])"), _ANYBODYS_HOME) for home in identity.homes),
            _replacing(_HOME, _home),
        ]
        self._names: list[Callable[[str], str]] = [
            *(_replacing(pattern, "host") for pattern in _words(identity.hosts)),
            *(_replacing(pattern, "user") for pattern in _words(identity.users)),
        ]
        self._ids: list[Callable[[str], str]] = [
            _replacing(_MAIL, "user@host"),
            _replacing(_SLEEP_PREVENTERS, _preventers),
            _replacing(_NAMED_SUPPLY, r"\1External-0\2"),
            _replacing(_SUPPLY_ID, "(id=1234567)"),
            _replacing(_UUID, "00000000-0000-0000-0000-000000000000"),
            _replacing(_SERIAL, r"\1removed"),
            _replacing(_MAC, "00:00:00:00:00:00"),
            _replacing(_LONG_HEX, "0" * 32),
        ]

    def text(self, text: str) -> str:
        """Return a text without them."""
        return _through((*self._places, *self._names, *self._ids), text)

    def places(self, text: str) -> str:
        """Return a text without home folders and the folders of installed packages; names stay."""
        return _through(self._places, text)

    def value(self, value: Any) -> Any:
        """Return a JSON value without them, in all its texts. Keys are ours and stay, as do a few values that are.

        Keys below `files` and `folders` are the host's own paths: of them go home folders and ids. Names of people are
        not looked for there: a user may be called `proc`.
        """
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {key: each if key in _OURS else self._below(key, each) for key, each in value.items()}
        return [self.value(each) for each in value] if isinstance(value, list | tuple) else value

    def _below(self, key: str, value: Any) -> Any:
        if key not in _NAMED_BY_HOST or not isinstance(value, Mapping):
            return self.value(value)
        if key == "folders":
            return {self._path(path): [self._path(name) for name in names] for path, names in value.items()}
        return {self._path(path): self.value(each) for path, each in value.items()}

    def _path(self, path: str) -> str:
        return _through((*self._places, *self._ids), path)


def _through(steps: Iterable[Callable[[str], str]], text: str) -> str:
    for step in steps:
        text = step(text)
    return text


def _replacing(pattern: re.Pattern[str], replacement: str | Callable[[re.Match[str]], str]) -> Callable[[str], str]:
    return lambda text: pattern.sub(replacement, text)


def _home(match: re.Match[str]) -> str:
    return f"{match[1]}/user" if match[1] else f"{match[2]}\\user"


def _preventers(match: re.Match[str]) -> str:
    return match[1] + ", ".join("process" for _ in match[2].split(","))


def _words(names: Iterable[str]) -> list[re.Pattern[str]]:
    """Return patterns for names, as whole words; names of one or two letters would hit anything."""
    telling = [name for name in names if len(name) >= 3 and name.lower() not in _PUBLIC_NAMES]
    return [re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.IGNORECASE) for name in telling]


def _longest_first(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({name for name in names if name}, key=lambda name: (-len(name), name)))
