"""Texts that others wrote: files, servers, exceptions, the environment. None may steer a terminal or forge a line."""

from __future__ import annotations

_MOST = 300


def printable(text: str) -> str:
    """Return a text with everything that does not print written as an escape; line breaks stay."""
    return "".join(each if each.isprintable() or each == "\n" else _escaped(each) for each in text)


def one_line(text: str) -> str:
    """Return a text of others as one line that prints, cut where it is very long."""
    short = text if len(text) <= _MOST else text[:_MOST] + "..."
    return "".join(each if each.isprintable() else _escaped(each) for each in short)


def _escaped(each: str) -> str:
    return each.encode("ascii", "backslashreplace").decode() if ord(each) > 127 else f"\\x{ord(each):02x}"
