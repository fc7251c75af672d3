"""Finds what a PromQL expression names, so that a name nobody defines cannot be written into a rule."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""
    (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<range>\[[^\]]*\])
    | (?P<number>\d[\w.]*)
    | (?P<name>[a-zA-Z_:][\w:]*)
    | (?P<sign>=~|!~|!=|==|<=|>=|[-+*/%^<>={}(),@])
    | (?P<space>\s+)
    """,
    re.VERBOSE,
)
_LABEL_LISTS = {"by", "without", "on", "ignoring", "group_left", "group_right"}
_WORDS = {"and", "or", "unless", "offset", "bool", "inf", "nan"}


class NotPromQLError(ValueError):
    """A part of an expression that this reader does not know."""


@dataclass
class Selector:
    """A metric as an expression names it, with its matchers: label, operator and value."""

    metric: str
    matchers: list[tuple[str, str, str]] = field(default_factory=list)


@dataclass
class Names:
    """What an expression names: its selectors, and the labels that it groups and matches by."""

    selectors: list[Selector] = field(default_factory=list)
    labels: set[str] = field(default_factory=set)


def names_in(expression: str) -> Names:
    """All names of an expression.

    Raises:
        NotPromQLError: It holds something else than PromQL.
    """
    tokens = list(_tokens(expression))
    found = Names()
    position = 0
    while position < len(tokens):
        kind, text = tokens[position]
        after = tokens[position + 1][1] if position + 1 < len(tokens) else ""
        position += 1
        if kind != "name":
            continue
        if text in _LABEL_LISTS:
            if after == "(":
                listed, position = _until(tokens, position + 1, ")")
                found.labels |= {word for sort, word in listed if sort == "name"}
        elif text.lower() not in _WORDS and after != "(" and not _is_aggregation(tokens, position):
            selector = Selector(text)
            if after == "{":
                inside, position = _until(tokens, position + 1, "}")
                selector.matchers = list(_matchers(inside))
            found.selectors.append(selector)
    return found


def _tokens(expression: str) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(expression):
        match = _TOKEN.match(expression, position)
        if match is None:
            raise NotPromQLError(f"not understood: {expression[position : position + 20]!r}")
        position = match.end()
        if match.lastgroup != "space":
            yield str(match.lastgroup), match.group()


def _is_aggregation(tokens: list[tuple[str, str]], position: int) -> bool:
    """Whether the name before ``position`` is an operator such as in ``sum by (job) (...)``."""
    return position < len(tokens) and tokens[position][1] in {"by", "without"}


def _until(tokens: list[tuple[str, str]], start: int, end: str) -> tuple[list[tuple[str, str]], int]:
    """The tokens up to the closing sign, and the position after it."""
    for position in range(start, len(tokens)):
        if tokens[position][1] == end:
            return tokens[start:position], position + 1
    raise NotPromQLError(f"{end} is missing")


def _matchers(tokens: list[tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
    rest = [token for token in tokens if token[1] != ","]
    if len(rest) % 3:
        raise NotPromQLError("a matcher is a label, an operator and a value")
    for (_, label), (_, operator), (_, value) in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        yield label, operator, value[1:-1]
