"""In which line of a TOML text each key stands, for messages that point there.

The standard library's reader keeps no places. This one reads nothing but places, of a text that that one has read
without complaint, so it need not find mistakes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Final

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Place = tuple[str | int, ...]
"""The keys on the way to a value, and the indexes of arrays."""

_DEEPEST: Final = 8
"""Places deeper than this have the line of what is around them: no policy has any."""

_BLANK: Final = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_SPACE: Final = re.compile(r"[ \t]*")
_KEY: Final = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'|[A-Za-z0-9_-]+')
_STRING: Final = re.compile(
    r'"""(?:[^"\\]|\\[\s\S]|"(?!""))*"{3,5}' + r"|'''(?:[^']|'(?!''))*'{3,5}" + r'|"(?:[^"\\]|\\.)*"' + r"|'[^']*'"
)
_OTHER: Final = re.compile(r"[^,\]}#\n]*")


def lines_of(text: str) -> dict[Place, int]:
    """Return the line, from 1 on, of each table, key and item of a valid TOML text.

    A table that only its keys or its tables tell of has the line of the first of them. What lies very deep is left out.

    Raises:
        RecursionError: arrays or inline tables are nested too deeply.
    """
    scanner = _Scanner(text)
    scanner.document()
    return scanner.lines


def line_at(lines: Mapping[Place, int], place: Place) -> int:
    """Return the line of a place, or of the nearest table around it that is in the text, or 1."""
    return next((lines[place[:end]] for end in range(min(len(place), _DEEPEST), 0, -1) if place[:end] in lines), 1)


class _Scanner:
    """Goes through a text once."""

    def __init__(self, text: str) -> None:
        self.lines: dict[Place, int] = {}
        self._text = text
        self._at = 0
        self._counted_to, self._line = 0, 1
        self._last: dict[Place, int] = {}  # of each array of tables, the index of its last one

    def document(self) -> None:
        table: Place = ()
        while self._more():
            line = self._line_here()
            if self._takes("[["):
                table = self._item_of(self._keys(), line)
                self._at += 2
            elif self._takes("["):
                table = self._resolved(self._keys())
                self._note(table, line)
                self._at += 1
            else:
                self._pair(table)

    def _pair(self, table: Place) -> None:
        """A key and its value."""
        line = self._line_here()
        place = (*table, *self._keys())
        self._note(place, line)
        self._at += 1  # the equals sign
        self._skip(_SPACE)
        self._value(place)

    def _value(self, place: Place) -> None:
        if self._takes("["):
            index = 0
            while self._more() and not self._takes("]"):
                item = (*place, index)
                self._note(item, self._line_here())
                self._value(item)
                self._skip(_BLANK)
                index += self._takes(",")
        elif self._takes("{"):
            while self._more() and not self._takes("}"):
                self._pair(place)
                self._skip(_BLANK)
                self._takes(",")
        else:
            self._skip(_STRING if self._text[self._at] in "\"'" else _OTHER)

    def _keys(self) -> Place:
        """A key, or several with dots between them, and the space behind."""
        keys: list[str] = []
        while True:
            self._skip(_SPACE)
            raw = self._skip(_KEY)
            keys.append(tomllib.loads(f"key = {raw}")["key"] if raw[:1] in "\"'" else raw)
            self._skip(_SPACE)
            if not self._takes("."):
                return tuple(keys)

    def _item_of(self, keys: Place, line: int) -> Place:
        """The place of a new table in an array of tables."""
        array = (*self._resolved(keys[:-1]), keys[-1])
        self._last[array] = self._last.get(array, -1) + 1
        place = (*array, self._last[array])
        self._note(place, line)
        return place

    def _resolved(self, keys: Place) -> Place:
        """The place that a header's keys lead to: through an array of tables, to its last one."""
        place: Place = ()
        for key in keys:
            place = (*place, key)
            if place in self._last:
                place = (*place, self._last[place])
        return place

    def _note(self, place: Place, line: int) -> None:
        for end in range(min(len(place), _DEEPEST), 0, -1):
            if place[:end] in self.lines:
                return
            self.lines[place[:end]] = line

    def _more(self) -> bool:
        """Whether anything follows but blanks and comments."""
        self._skip(_BLANK)
        return self._at < len(self._text)

    def _takes(self, token: str) -> bool:
        if not self._text.startswith(token, self._at):
            return False
        self._at += len(token)
        return True

    def _skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            raise AssertionError("the text is not valid TOML")
        self._at = match.end()
        return match.group()

    def _line_here(self) -> int:
        self._line += self._text.count("\n", self._counted_to, self._at)
        self._counted_to = self._at
        return self._line
