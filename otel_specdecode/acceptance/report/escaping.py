"""What comes from a run's folder, made safe for where it is put. The page escapes by itself."""

from __future__ import annotations

import re

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
_HOME = re.compile(r"/(?:Users|home)/[^/\s'\"]+")
_MARKS = re.compile(r"([\\`*_\[\]<>|~])")


def printable(text: str, most: int = 200) -> str:
    """Return a text of one line, no longer than `most`: no character that does not print, no user's name in a path."""
    clean = _HOME.sub("~", text.encode("utf-8", "replace").decode())
    line = "".join(char if char.isprintable() else " " for char in clean)
    return line if len(line) <= most else f"{line[: most - 1]}…"


def csv_cell(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula."""
    clean = text.encode("utf-8", "replace").decode()
    return f"'{clean}" if clean.lstrip(" ").startswith(_FORMULA) else clean


def markdown(text: str, most: int = 200) -> str:
    """Return a text that stands in Markdown, in a table too, as it is."""
    return _MARKS.sub(r"\\\1", printable(text, most))


def xml(text: str, most: int = 200) -> str:
    """Return a text for the inside of an XML element or an attribute in double quotes, no longer than `most`."""
    clean = printable(text, most)
    for char, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&#39;")):
        clean = clean.replace(char, entity)
    return clean
