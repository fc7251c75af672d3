"""Words of a command line: numbers, pairs, and drafts by their labels."""

from __future__ import annotations

import math
import os
import re
import shlex
import sys
from collections.abc import Sequence
from typing import Any

import click

LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
"""What a draft may be labelled: it is a part of the names of arms, which must not be taken for each other."""

_ANY_HOME = re.compile(r"/(?:home|Users)/[^/\s'\"]+")


class Finite(click.FloatRange):
    """A number in a range, which what is no number is not: it compares with nothing."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number, or fail."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


class Numbers(click.ParamType):  # type: ignore[type-arg]
    """Numbers, with commas between them."""

    name = "numbers"

    def __init__(self, kind: type[int | float], least: float, most: float) -> None:
        """Take numbers of a kind in a range."""
        self._kind = kind
        self._least = least
        self._most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return them as a tuple, each once, in their order; or fail. Fractions have six digits, as arms' names do."""
        if isinstance(value, tuple):
            return value
        found: dict[float, None] = {}
        for part in str(value).split(","):
            try:
                number = self._kind(part.strip())
            except ValueError:
                self.fail(f"{part.strip()!r} is no {'whole ' if self._kind is int else ''}number.", param, ctx)
            if not self._least <= number <= self._most:
                self.fail(f"{number} is not between {self._least:g} and {self._most:g}.", param, ctx)
            found[number if self._kind is int else float(f"{number:g}")] = None
        return tuple(found)


class Pairs(click.ParamType):  # type: ignore[type-arg]
    """`name=value`."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return both as a pair, or fail."""
        if isinstance(value, tuple):
            return value
        key, equals, rest = str(value).partition("=")
        if not equals or not key.strip():
            self.fail(f"{value!r} has to be NAME=VALUE.", param, ctx)
        return key.strip(), rest.strip()


def drafts_by_label(given: Sequence[str]) -> dict[str, str]:
    """Return drafts by label: the only one needs none, and has the empty one.

    Raises:
        click.UsageError: Several have no label, two have the same one, or it cannot be one.
    """
    if len(given) == 1 and "=" not in given[0]:
        return {"": given[0]}
    found: dict[str, str] = {}
    for each in given:
        label, equals, model = each.partition("=")
        if not equals or not label or not model:
            raise click.UsageError("of several drafts, each is --draft LABEL=MODEL")
        if LABEL.fullmatch(label) is None:
            raise click.UsageError(
                f"{label!r} cannot be a draft's label: letters, digits, '.', '_' and '-', at most 32, a letter or "
                "digit first"
            )
        if label in found:
            raise click.UsageError(f"two drafts are called {label}")
        found[label] = model
    return found


def command_line() -> str:
    """Return the command that was given, with `~` where a path in it leads to somebody's home."""
    line = shlex.join(["otel-specdecode", *sys.argv[1:]])
    home = os.path.expanduser("~").rstrip("/")
    if home.startswith("/"):  # what is left of `/`, the home of some services, is no home
        line = re.sub(re.escape(home) + r"(?![\w.-])", "~", line)
    return _ANY_HOME.sub("~", line)
