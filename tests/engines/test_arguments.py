"""Reading a call's arguments by name."""

from __future__ import annotations

from typing import Any

import pytest

from otel_specdecode.engines.arguments import Arguments


def called(model: Any, prompt: Any, limit: int = 256, *rest: Any, draft: Any = None, **options: Any) -> None:
    """A function with every kind of parameter."""


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "value"),
    [
        ("model", ("m",), {}, "m"),
        ("prompt", ("m",), {"prompt": "p"}, "p"),
        ("limit", ("m", "p"), {}, 256),
        ("limit", ("m", "p", 9), {}, 9),
        ("draft", ("m", "p", 9, "extra"), {}, None),
        ("draft", (), {"draft": "d"}, "d"),
        ("colour", (), {"colour": "red"}, "red"),
        ("colour", (), {}, None),
        ("model", (), {}, None),
    ],
)
def test_values_by_name(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> None:
    """Keyword, position, the function's default, else None; a call that lacks an argument is read all the same."""
    assert Arguments(called).get(name, args, kwargs) == value


def test_replacing_keeps_the_way_it_was_given() -> None:
    """A positional argument stays positional, a keyword stays a keyword, and what was not given is not added."""
    arguments = Arguments(called)
    assert arguments.replace("model", "M", ("m", "p"), {"draft": 1}) == (("M", "p"), {"draft": 1})
    assert arguments.replace("draft", "D", ("m",), {"draft": 1}) == (("m",), {"draft": "D"})
    assert arguments.replace("draft", "D", ("m",), {}) == (("m",), {})


def test_the_callers_arguments_are_not_touched() -> None:
    """Replacing returns new ones."""
    kwargs = {"draft": 1}
    Arguments(called).replace("draft", 2, (), kwargs)
    assert kwargs == {"draft": 1}
