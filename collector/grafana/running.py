"""Panels by what ran: the draft, the engine's version and the manifest that a process told of."""

from __future__ import annotations

from collections.abc import Iterator

from collector.grafana.panels import Panel, Query, lines, rows
from collector.grafana.promql import MODE, over, selector, summed, total
from collector.grafana.texts import NO_TRAFFIC, WINDOW, of_metric
from collector.rulekit.settings import series

MANIFEST = "specdecode_manifest_id"

_PROPOSED = series("specdecode.draft.tokens")
_INFO = series("specdecode.config.info")
_LENGTH = "specdecode_draft_length"
_DRAFT, _ENGINE = "specdecode_draft_model", "specdecode_engine_version"
_TOLD = (MANIFEST, _DRAFT, _ENGINE)
_NAME = f"draft {{{{{_DRAFT}}}}}, engine {{{{{_ENGINE}}}}} ({{{{{MANIFEST}}}}})"
_ABOUT_NAME = "Draft, version of the engine, and the first 8 digits of the manifest. Dashed: autoregressive."

_CONFIGURED = ("job", "instance", "gen_ai_provider_name", "gen_ai_request_model", "specdecode_method", _LENGTH)
"""What tells a process's configurations apart on counters."""

_SEVERAL = (
    "Once a process has run two manifests with one target, method and draft length, its counters cannot tell them"
    " apart: until it ends, all of that is under draft several."
)


def running_panels() -> Iterator[Panel]:
    """The panels."""
    about = (
        "Accepted over accepted and rejected tokens, by what ran as the process's configuration of that engine, target,"
        f" method and draft length tells. {_ABOUT_NAME} {_SEVERAL} {WINDOW} {NO_TRAFFIC}"
    )
    accepted = _by_manifest(_PROPOSED, (), 'specdecode_draft_outcome="accepted"')
    compared = _by_manifest(_PROPOSED, (), 'specdecode_draft_outcome=~"accepted|rejected"')
    found = Query(_short(over(accepted, compared)), _NAME)
    yield lines("Accept rate by manifest", about, "percentunit", found, width=8, top=1.0)
    for metric, title in (
        ("specdecode.decode.time_per_token", "Mean time per token by manifest"),
        ("specdecode.round.duration", "Round duration by manifest"),
    ):
        spent, count = (_by_manifest(series(metric, part), (MODE,)) for part in ("sum", "count"))
        about = of_metric(metric, "Here the mean by what ran.", _ABOUT_NAME, _SEVERAL, WINDOW, NO_TRAFFIC)
        yield lines(title, about, "s", Query(_short(over(spent, count)), f"{_NAME} {{{{{MODE}}}}}"), width=8)
    yield rows(
        "What runs",
        of_metric("specdecode.config.info", "As of now. Empty where the engine does not let what ran be told."),
        Query(selector(_INFO)),
        columns={
            MANIFEST: "Manifest",
            "job": "Service",
            "node": "Node",
            "instance": "Process",
            "gen_ai_provider_name": "Provider",
            "gen_ai_request_model": "Target",
            _DRAFT: "Draft",
            _LENGTH: "k",
            _ENGINE: "Engine",
            "specdecode_policy_hash": "Policy",
        },
    )


def _by_manifest(counter: str, more: tuple[str, ...], *matchers: str) -> str:
    """The rate of a counter, summed over all processes that ran the same."""
    rates = total(counter, (*_CONFIGURED, *more), *matchers)
    by = ", ".join(_CONFIGURED)
    return summed(f"{rates} * on ({by}) group_left ({', '.join(_TOLD)}) ({_what_ran(by)})", (*_TOLD, *more))


def _what_ran(by: str) -> str:
    """What ran under each configuration: exactly one for each, since two partners would be an error."""
    told = summed(selector(_INFO), (*_CONFIGURED, *_TOLD), "max")
    alone = f"{told} and on ({by}) count by ({by}) ({told}) == 1"
    several = f"count by ({by}) ({told}) > bool 1"
    return f'{alone} or on ({by}) label_replace({several}, "{_DRAFT}", "several", "", "")'


def _short(expression: str) -> str:
    """With so much of the manifest's id as tells it apart by eye."""
    return f'label_replace({expression}, "{MANIFEST}", "$1", "{MANIFEST}", "(.{{8}}).*")'
