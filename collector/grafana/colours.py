"""What has which colour everywhere, and where a value is judged, by the numbers of thresholds.toml."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from otel_specdecode.thresholds import thresholds

Steps: TypeAlias = Sequence[tuple[float | None, str]]
"""From which value on which colour holds, the first from the least on."""

_MODE = ("autoregressive", "speculative", "{{specdecode_mode}}")
_COMPARED = ("{{node}}", "{{specdecode_draft_model}}")

COLOURS: Sequence[tuple[Sequence[str], str, str]] = (
    (("p50",), r"/^p50\b/", "light-blue"),
    (("p95",), r"/^p95\b/", "blue"),
    (("p99",), r"/^p99\b/", "dark-blue"),
    (_MODE, r"/^(?!p\d).*\bautoregressive\b/", "#8AB8FF"),
    (_MODE, r"/^(?!p\d).*\bspeculative\b/", "#B877D9"),
    (("{{specdecode_draft_outcome}}",), r"/^accepted$/", "semi-dark-green"),
    (("{{specdecode_draft_outcome}}",), r"/^rejected$/", "semi-dark-orange"),
    (("{{specdecode_draft_outcome}}",), r"/^unverified$/", "#8E8E8E"),
    (("bursts",), r"/^bursts\b/", "semi-dark-red"),
    (("bound",), r"/^(warning|critical) bound\b/", "semi-dark-red"),
    (("{{severity}}",), r"/\(critical\)/", "semi-dark-red"),
    (("{{severity}}",), r"/\(warning\)/", "semi-dark-orange"),
    (("{{severity}}",), r"/\(info\)/", "semi-dark-blue"),
    (("{{specdecode_host_",), r"/\b(warn|serious|low|battery)\b/", "semi-dark-orange"),
    (("{{specdecode_host_",), r"/\bcritical\b/", "semi-dark-red"),
)
"""Colours of series by their names, and what the legend of a query holds that can have such names."""

_LIMITS = thresholds()

SPEEDUP: Steps = (
    (None, "semi-dark-red"),
    (_LIMITS["speedup"]["none"], "semi-dark-orange"),
    (_LIMITS["speedup"]["low"], "semi-dark-green"),
)
SERVICE_SPEEDUP: Steps = ((None, "semi-dark-red"), (_LIMITS["speedup"]["service"], "semi-dark-green"))
MARGIN: Steps = ((None, "semi-dark-red"), (0.0, "semi-dark-green"))
MEMORY: Steps = ((None, "semi-dark-green"), (_LIMITS["memory"]["share_of_physical"], "semi-dark-red"))
PROMISED: Steps = ((None, "semi-dark-green"), (1.0, "semi-dark-red"))
QUEUE: Steps = ((None, "semi-dark-green"), (_LIMITS["queue"]["p95"], "semi-dark-orange"))
OVER_P95: Steps = (
    (None, "semi-dark-green"),
    (_LIMITS["over_autoregressive"]["time_per_token_p95"], "semi-dark-orange"),
)


def seconds_in_state(name: str) -> Steps:
    """Where the seconds of five minutes that were spent in a state are worth telling."""
    return ((None, "semi-dark-green"), (_LIMITS["states"][name], "semi-dark-orange"))


def dashes_a_mode(legend: str) -> bool:
    """Whether colours tell machines or drafts apart, so that the kind of line must tell the mode."""
    return any(one in legend for one in _COMPARED) and any(one in legend for one in _MODE)


def colours(legends: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The names of series that have a colour of their own, as a regular expression, and that colour."""
    named = [legend for legend in legends if not dashes_a_mode(legend)]
    return (
        (regexp, colour) for hints, regexp, colour in COLOURS if any(one in name for one in hints for name in named)
    )
