"""A transition as a line of the audit trail, and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from otel_specdecode.generation.transition import Lane, Transition
from otel_specdecode.guard.sealing import sealed, stamp


def transition_line(number: int, transition: Transition) -> bytes:
    """Return the line of a transition.

    Args:
        number: Of the line, among those of its process.
        transition: What it says.
    """
    return sealed({"kind": "transition", "number": number, **fields_of(transition)})


def loss_line(number: int, at: int, count: int) -> bytes:
    """Return the line that tells how many lines were lost before it."""
    return sealed({"kind": "lost", "number": number, "at": stamp(at), "at_ns": at, "count": count})


def fields_of(transition: Transition) -> dict[str, object]:
    """Return everything that a transition says, for JSON."""
    lane = transition.lane
    return {
        "at": stamp(transition.at),
        "at_ns": transition.at,
        **{name: getattr(lane, name) for name in _LANE},
        **{name: _writable(getattr(transition, name)) for name in _REST},
    }


def transition_of(fields: Mapping[str, Any]) -> Transition:
    """Return the transition that a line's fields say, whatever else they say.

    Raises:
        KeyError: A field is not there.
        TypeError: A field is of another type.
        ValueError: Likewise.
        OverflowError: A number is too large for what it is.
    """
    lane = {name: read(fields[name]) for name, read in _LANE.items()}
    rest = {name: read(fields[name]) for name, read in _REST.items()}
    return Transition(at=whole(fields["at_ns"]), lane=Lane(**lane), **rest)


def whole(value: object) -> int:
    """Return an integer that a line says.

    Raises:
        TypeError: It is none.
    """
    if type(value) is not int:
        raise TypeError("no integer")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def _number(value: object) -> float:
    """JSON has no infinity and nothing that is no number: lines say them in words, `inf` and `nan`."""
    if (isinstance(value, str) and value not in _NOT_FINITE) or isinstance(value, bool):
        raise TypeError("no number")
    return float(value)  # type: ignore[arg-type]


def _writable(value: object) -> object:
    return str(float(value)) if isinstance(value, float) and not math.isfinite(value) else value


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError("neither true nor false")
    return value


def _or_none(read: Callable[[object], Any]) -> Callable[[object], Any]:
    return lambda value: None if value is None else read(value)


_NOT_FINITE = ("inf", "-inf", "nan")
_LANE: dict[str, Callable[[object], Any]] = {
    "scope": _text,
    "key": _or_none(_text),
    "provider": _or_none(_text),
    "model": _or_none(_text),
    "method": _or_none(_text),
}
_REST: dict[str, Callable[[object], Any]] = {
    "before": _text,
    "after": _text,
    "rung_before": _text,
    "rung_after": _text,
    "trigger": _text,
    "reason": _or_none(_text),
    "value": _or_none(_number),
    "threshold": _or_none(_number),
    "samples": whole,
    "window_seconds": _number,
    "policy": _text,
    "observe_only": _truth,
    "trace_id": _or_none(_text),
}
