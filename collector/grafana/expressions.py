"""Whether a query names only what there is, and is written so that it can be read at any resolution."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from collector.grafana.promql import LOOK_BACK, known_series
from collector.grafana.reading import expand, variables_in
from collector.names import label_name
from collector.rulekit.gates import check
from collector.rulekit.model import Group, Recording, RuleError
from collector.rulekit.promql import names_in
from otel_specdecode.telemetry.names import Attr

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_WINDOW = re.compile(r"\[([^\]]*)\]|\boffset\s+(\S+)")
_LOOK_BACK = re.compile(rf"\blast_over_time\([^()\[\]]*\[{LOOK_BACK}\]")
_AGAINST = re.compile(r"\s*(?:(?:on|ignoring)\s*\([^)]*\)\s*)?(?:group_(?:left|right)\s*\([^)]*\)\s*)?")
_NUMBER = re.compile(r"[\d.]+")
_GUARDED = re.compile(r">\s*0\s*$")
_LABEL_VALUES = re.compile(r"label_values\((.+),\s*(\w+)\)")
_NAMES = re.compile(r'__name__=~"([^"]+)"')
_SPAN = re.compile(r"\bspan\.([\w.]+)")
_RESOURCE = re.compile(r"\bresource\.([\w.]+)")
_FIELD = re.compile(r"\b(?:specdecode|gen_ai)_\w+")

RESOURCE_ATTRIBUTES = {"service.name", "service.instance.id", "host.name"}
_CLIENT = "gen_ai_client_"
"""What is not told of a request under another library's GenAI client span, and has other names by a switch."""

_ATTRIBUTES = frozenset(value for key, value in vars(Attr).items() if not key.startswith("_"))


class ExpressionError(ValueError):
    """A query that must not be in a dashboard."""


def check_expression(expr: str, kind: str) -> None:
    """Check a query of a data source of a kind.

    Raises:
        ExpressionError: It names what nobody defines, or is written in a way that shows wrong numbers.
    """
    checks: Mapping[str, Callable[[str], None]] = {"prometheus": _prometheus, "tempo": _tempo, "loki": _loki}
    checks[kind](expr)


def _prometheus(expr: str) -> None:
    if values := _LABEL_VALUES.fullmatch(expr):
        _label_values(values[1], values[2])
        return
    for inside, back in _WINDOW.findall(_LOOK_BACK.sub("", _STRING.sub('""', expr))):
        window = inside or back.strip("()")
        if not window.startswith(("$__rate_interval", "$__range")):
            raise ExpressionError(f"a fixed window, {window}, where $__rate_interval belongs")
    _divisions(_STRING.sub('""', expr))
    _names(expr)


def _names(expr: str) -> None:
    """An empty value stands for any variable: what it would be is not known here."""
    plain = expand(expr, dict.fromkeys(variables_in(expr), ""))
    try:
        check([Group("panel", (Recording("query", "", plain, frozenset()),))], known_series())
    except RuleError as problem:
        raise ExpressionError(str(problem)) from problem
    for found in names_in(plain).selectors:
        _not_of_clients(found.metric)


def _not_of_clients(name: str) -> None:
    if name.startswith(_CLIENT):
        raise ExpressionError(f"{name} leaves out requests under an outer GenAI client span")


def _label_values(selected: str, label: str) -> None:
    names = _NAMES.search(selected)
    choices = names[1].split("|") if names else [selected.split("{", maxsplit=1)[0]]
    matchers = [one for one in re.findall(r"(\w+)=~", selected) if one != "__name__"]
    for name in choices:
        if name not in known_series():
            raise ExpressionError(f"no metric {name}")
        _not_of_clients(name)
    for one in (label, *matchers):
        if not any(one in known_series()[name] for name in choices):
            raise ExpressionError(f"no label {one} on {' or '.join(choices)}")


def _divisions(expr: str) -> None:
    """Whatever is divided by is a number, or in parentheses and above 0."""
    for match in re.finditer("/", expr):
        start = _AGAINST.match(expr, match.end())
        position = start.end() if start else match.end()
        if _NUMBER.match(expr, position):
            continue
        if not expr.startswith("(", position) or not _GUARDED.search(_inside(expr, position)):
            raise ExpressionError(f"a division by what can be 0: {expr[match.start() : match.start() + 40]}")


def _inside(expr: str, opening: int) -> str:
    """What stands between a parenthesis and the one that closes it."""
    depth = 0
    for position in range(opening, len(expr)):
        depth += {"(": 1, ")": -1}.get(expr[position], 0)
        if depth == 0:
            return _last_comparison(expr[opening + 1 : position])
    return ""


def _last_comparison(text: str) -> str:
    """The text, if its last comparison is not within a parenthesis of its own, or is all that is in one."""
    stripped = text.strip()
    if stripped.startswith("(") and stripped.endswith(")") and _closes(stripped):
        return _last_comparison(stripped[1:-1])
    return text


def _closes(text: str) -> bool:
    """Whether the first parenthesis is closed by the last sign."""
    depth = 0
    for position, sign in enumerate(text):
        depth += {"(": 1, ")": -1}.get(sign, 0)
        if depth == 0:
            return position == len(text) - 1
    return False


def _tempo(expr: str) -> None:
    if wrong := set(_SPAN.findall(expr)) - _ATTRIBUTES:
        raise ExpressionError(f"no span attribute {', '.join(sorted(wrong))}")
    if wrong := set(_RESOURCE.findall(expr)) - RESOURCE_ATTRIBUTES:
        raise ExpressionError(f"no resource attribute {', '.join(sorted(wrong))}")


def _loki(expr: str) -> None:
    if wrong := set(_FIELD.findall(expr)) - set(map(label_name, _ATTRIBUTES)):
        raise ExpressionError(f"no attribute of an event {', '.join(sorted(wrong))}")
