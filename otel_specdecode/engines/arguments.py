"""Reading a call's arguments by name without binding the whole signature."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping
from typing import Any

_BEYOND = 2**63


class Arguments:
    """Where each parameter of a function stands, so that one value costs one look-up.

    Attributes:
        names: Parameter names in order.
    """

    __slots__ = ("_defaults", "_places", "names")

    def __init__(self, function: Callable[..., Any]) -> None:
        """Read the signature once.

        Raises:
            ValueError: If the function has no readable signature.
        """
        parameters = inspect.signature(function).parameters
        self.names = tuple(parameters)
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        self._places = {
            name: place for place, (name, parameter) in enumerate(parameters.items()) if parameter.kind in positional
        }
        self._defaults = {
            name: parameter.default
            for name, parameter in parameters.items()
            if parameter.default is not inspect.Parameter.empty
        }

    def get(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], default: object = None) -> Any:
        """Return a call's value of a parameter, else the function's default, else `default`."""
        if name in kwargs:
            return kwargs[name]
        place = self._places.get(name)
        if place is not None and place < len(args):
            return args[place]
        return self._defaults.get(name, default)

    def replace(
        self, name: str, value: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with one that was given replaced; others, and one not given, stay as they are."""
        place = self._places.get(name)
        given = name in kwargs or (place is not None and place < len(args))
        return self.with_value(name, value, args, kwargs) if given else (args, dict(kwargs))

    def with_value(
        self, name: str, value: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with a value for one of them, given or not; others stay as they are."""
        place = self._places.get(name)
        if name not in kwargs and place is not None and place < len(args):
            return (*args[:place], value, *args[place + 1 :]), dict(kwargs)
        return args, {**kwargs, name: value}


def checked(function: Callable[..., Any], *needed: str) -> Arguments:
    """Return a function's parameters.

    Raises:
        TypeError: If one of the needed parameters is missing.
    """
    arguments = Arguments(function)
    missing = [name for name in needed if name not in arguments.names]
    if missing:
        raise TypeError(f"{getattr(function, '__name__', 'function')} has no parameter {', '.join(missing)}")
    return arguments


def integer(value: object) -> int | None:
    """Return an argument as an int, None if it is none or does not fit in 64 bits, as attributes must."""
    try:
        whole = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None
    return whole if -_BEYOND <= whole < _BEYOND else None


def held(owner: object, name: str) -> Any:
    """Return an attribute of an object that is not the engine's own, None if it has none or raises."""
    try:
        return getattr(owner, name, None)
    except Exception:
        return None


def number(value: object) -> float | None:
    """Return an argument as a float, None if it is no number."""
    return float(value) if isinstance(value, (int, float)) else None
