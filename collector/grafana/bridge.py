"""What is known of engines that this library does not run in: counters that the collector scrapes from their pages."""

from __future__ import annotations

from collections.abc import Iterator

from collector.grafana.panels import Panel, Query, lines
from collector.grafana.promql import over, total
from collector.grafana.texts import NO_TRAFFIC, WINDOW, of_metric
from collector.rulekit.settings import series

_BY = ("gen_ai_provider_name", "gen_ai_request_model")
_NAME = "{{gen_ai_request_model}} {{gen_ai_provider_name}}"
_ROUNDS = series("specdecode.bridge.rounds")


def bridged_accept_rate() -> str:
    """Accepted over proposed tokens, which is all that these engines tell."""
    return over(
        total(series("specdecode.bridge.accepted_tokens"), _BY),
        total(series("specdecode.bridge.proposed_tokens"), _BY),
    )


def bridged_panels() -> Iterator[Panel]:
    """The panels. What these engines do not tell, such as rejected tokens and rollbacks, has none."""
    about = of_metric("specdecode.bridge.accepted_tokens", WINDOW, NO_TRAFFIC)
    found = Query(bridged_accept_rate(), f"{_NAME}, of proposed")
    yield lines("Accepted of proposed", about, "percentunit", found, width=8, top=1.0)
    rounds = total(_ROUNDS, _BY)
    length = over(f"({total(series('specdecode.bridge.accepted_tokens'), _BY)} + {rounds})", rounds)
    about = f"Accepted tokens and rounds over rounds: each round counts as finished. {WINDOW} {NO_TRAFFIC}"
    yield lines("Tokens a round", about, "suffix: tokens", Query(length, _NAME), width=8)
    position = "specdecode_draft_position"
    places = f"{total(series('specdecode.bridge.accepted_by_position'), (*_BY, position))} / on ({', '.join(_BY)})"
    places = f"{places} group_left () ({rounds} > 0)"
    about = of_metric("specdecode.bridge.accepted_by_position", WINDOW, NO_TRAFFIC)
    found = Query(places, f"{_NAME} place {{{{{position}}}}}")
    yield lines("Accepted by place, of rounds", about, "percentunit", found, width=8, top=1.0)
    about = of_metric("specdecode.bridge.output_tokens", WINDOW, NO_TRAFFIC)
    found = Query(total(series("specdecode.bridge.output_tokens"), _BY), _NAME)
    yield lines("Output tokens", about, "suffix: tokens/s", found)
    about = of_metric("specdecode.bridge.rounds", WINDOW, NO_TRAFFIC)
    yield lines("Rounds", about, "suffix: rounds/s", Query(rounds, _NAME))
