"""How numbers are written, the same on the page, in Markdown and in the terminal."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone

from otel_specdecode.acceptance.figures import Share
from otel_specdecode.acceptance.statistics import Estimate

NOT_MEASURED = "not measured"

Number = float | int | Estimate | Share | None
Write = Callable[[float], str]

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def plain(value: float) -> str:
    """Return a number with about three digits that count."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def whole(value: float) -> str:
    """Return a count."""
    return f"{value:,.0f}"


def fraction(value: float) -> str:
    """Return a share as a number from 0 to 1."""
    return f"{value:.3f}"


def percent(value: float) -> str:
    """Return a share in percent."""
    return f"{value * 100:.1f} %"


def signed_percent(value: float) -> str:
    """Return a share in percent, with its sign."""
    return f"{value * 100:+.1f} %"


def factor(value: float) -> str:
    """Return a ratio, as in x1.16."""
    return f"x{value:.2f}"


def milliseconds(value: float) -> str:
    """Return seconds in milliseconds."""
    scaled = value * 1000
    return f"{scaled:,.0f} ms" if abs(scaled) >= 100 else f"{scaled:.1f} ms"


def size(value: float) -> str:
    """Return bytes in the largest unit that leaves at least one before the point."""
    scaled, unit = float(value), 0
    while abs(scaled) >= 1024 and unit < len(_UNITS) - 1:
        scaled, unit = scaled / 1024, unit + 1
    return f"{scaled:.2f} {_UNITS[unit]}" if unit else f"{scaled:.0f} B"


def money(value: float) -> str:
    """Return an amount of whatever currency the rate was given in."""
    return f"{value:,.2f}" if value >= 0.01 else f"{value:.4f}"


def duration(seconds: float) -> str:
    """Return a span of time in words of a table."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def moment(seconds: float) -> str:
    """Return seconds since the epoch as a day and a time in UTC."""
    try:
        return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%d %H:%M} UTC"
    except (OverflowError, OSError, ValueError):
        return f"{seconds:g} s since the epoch"


def value_of(number: Number) -> float | None:
    """Return the value alone."""
    if isinstance(number, Estimate | Share):
        return number.value
    return number


def said(number: Number, write: Write = plain) -> str:
    """Return a number, without its interval."""
    if isinstance(number, Share):
        return f"{number.passed} of {number.of}"
    value = value_of(number)
    return NOT_MEASURED if value is None else write(value)


def interval(number: Number, write: Write = plain) -> str:
    """Return the interval of a number as `low to high`; empty where it has none. An end that is not known is `?`."""
    if not isinstance(number, Estimate) or (number.low is None and number.high is None):
        return ""
    low, high = ("?" if end is None else write(end) for end in (number.low, number.high))
    text, _, unit = low.partition(" ")
    return f"{text} to {high}" if unit and high.endswith(f" {unit}") else f"{low} to {high}"


def in_full(number: Number, write: Write = plain) -> str:
    """Return a number with its interval, if it has one."""
    ends = interval(number, write)
    return f"{said(number, write)} [{ends}]" if ends else said(number, write)
