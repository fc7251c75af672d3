"""What one machine of several does, which an average over a service hides, and which machines speed-ups leave out."""

from __future__ import annotations

from collector.grafana.panels import Panel, Query, lines, tile, timeline
from collector.grafana.promql import MODE, count_of, mean, over, selector, total
from collector.grafana.texts import LONGER_PROMPTS, NO_TRAFFIC, WINDOW, of_metric
from collector.rulekit.settings import series

_BY = ("node", "job")
_NAME = "{{node}} {{job}}"
_NAME_AND_MODE = f"{_NAME} {{{{{MODE}}}}}"

_PROPOSED = series("specdecode.draft.tokens")
_DASHED = "Dashed: autoregressive."
_SLOWED = "node:specdecode_not_comparable:seconds5m"
_SLOWED_TEXT = (
    "Machines that heat, low power mode, battery or a lack of memory slowed within the last five minutes. Speed-ups,"
    " break-even and the baseline leave them out."
)


def time_per_token(width: int) -> Panel:
    """Mean time per token of each machine."""
    about = of_metric("specdecode.decode.time_per_token", f"Here the mean. {_DASHED}", WINDOW, NO_TRAFFIC)
    return _means("Time per token by machine", about, "specdecode.decode.time_per_token", width)


def round_duration(width: int) -> Panel:
    """Mean round duration of each machine."""
    about = of_metric("specdecode.round.duration", f"Here the mean. {_DASHED}", WINDOW, NO_TRAFFIC)
    more = "Longer in both modes: the machine. Longer in speculative mode alone: drafting, or what runs."
    return _means("Round duration by machine", f"{about} {more}", "specdecode.round.duration", width)


def time_to_first_token(width: int) -> Panel:
    """Mean time to first token of each machine."""
    metric = "gen_ai.server.time_to_first_token"
    about = of_metric(metric, f"Here the mean. {_DASHED}", LONGER_PROMPTS, WINDOW, NO_TRAFFIC)
    return _means("Time to first token by machine", about, metric, width)


def accept_rate(width: int) -> Panel:
    """Accept rate of each machine."""
    accepted = total(_PROPOSED, _BY, 'specdecode_draft_outcome="accepted"')
    compared = total(_PROPOSED, _BY, 'specdecode_draft_outcome=~"accepted|rejected"')
    about = (
        "Accepted over accepted and rejected tokens. Low on one machine alone: see what runs there. Low on all: what"
        f" came in, or what runs on all. {WINDOW} {NO_TRAFFIC}"
    )
    found = Query(over(accepted, compared), _NAME)
    return lines("Accept rate by machine", about, "percentunit", found, width=width, top=1.0)


def requests(width: int) -> Panel:
    """Requests that began on each machine."""
    about = of_metric("specdecode.request.started", _DASHED, WINDOW, "Empty without traffic.")
    found = Query(total(series("specdecode.request.started"), (*_BY, MODE)), _NAME_AND_MODE)
    return lines("Requests by machine", about, "reqps", found, width=width)


def left_out_now(width: int) -> Panel:
    """How many machines are left out where times are compared, and which."""
    slowed = selector(_SLOWED)
    return tile(
        "Machines left out",
        f"{_SLOWED_TEXT} How many of those that the chosen services run on, and which.",
        "none",
        Query(count_of(slowed), "machines"),
        Query(f"{slowed} > bool 0", "{{node}}"),
        width=width,
    )


def left_out() -> Panel:
    """Which machines were left out when."""
    found = Query(f"{selector(_SLOWED)} > bool 0", "{{node}}")
    return timeline("Machines left out, over time", f"{_SLOWED_TEXT} Empty: none.", found, height=4, word="left out")


def _means(title: str, about: str, metric: str, width: int) -> Panel:
    return lines(title, about, "s", Query(mean(metric, (*_BY, MODE)), _NAME_AND_MODE), width=width)
