"""Engines that the collector's bridge reads: their own counts, their own ratios, and when nothing is accepted."""

from __future__ import annotations

from collector.rulekit.flows import flow
from collector.rulekit.model import Alert, Recording, labels, listed
from collector.rulekit.ratios import ROUNDS, share
from collector.rulekit.settings import MODEL, WINDOW, series

ENGINE = labels("job", "node", MODEL)
"""One model of one engine on one node; its processes are summed."""

_ROUNDS, _PROPOSED, _ACCEPTED = (flow(f"bridge_{name}") for name in ("rounds", "proposed_tokens", "accepted_tokens"))
_ENOUGH = f"{_ROUNDS} > {ROUNDS}"


def recordings() -> tuple[Recording, ...]:
    """What those engines counted in the last five minutes, and the two ratios that such counts allow."""
    return (
        _flow("rounds", "Rounds that another engine counted"),
        _flow("proposed_tokens", "Proposed tokens that another engine counted"),
        _flow("accepted_tokens", "Accepted tokens that another engine counted"),
        Recording(
            f"node:specdecode_bridge_accepted_over_proposed:ratio{WINDOW}",
            "Another engine's acceptance rate: accepted over proposed tokens. Not the accept rate, which leaves out"
            " what was never compared and counts only what was emitted.",
            share(_ACCEPTED, _PROPOSED, _ENOUGH),
            ENGINE,
        ),
        Recording(
            f"node:specdecode_bridge_acceptance_length:ratio{WINDOW}",
            "Another engine's acceptance length: accepted tokens a round and one, even where the output ended before.",
            share(f"({_ACCEPTED} + {_ROUNDS})", _ROUNDS, _ENOUGH),
            ENGINE,
        ),
    )


def nothing_accepted() -> Alert:
    """The alert on an engine whose drafts are all rejected.

    llama-server prints six digits of what it accepted, so that a large count stands still for a while, and all digits
    of what it accepted by position.
    """
    by_position = _growth("accepted_by_position")
    return Alert(
        "SpecdecodeBridgedNothingAccepted",
        "critical",
        "An engine that is bridged rejects every proposed token.",
        "{{ $value | humanize }} tokens were proposed in 5 minutes and none was accepted:"
        " {{ $labels.gen_ai_request_model }} in {{ $labels.job }} on {{ $labels.node }}.",
        f"  {_PROPOSED} > 0\nunless\n  {_ACCEPTED} > 0\nunless\n  {by_position} > 0\nand\n  {_ENOUGH}",
        ENGINE,
    )


def _flow(name: str, brief: str) -> Recording:
    return Recording(flow(f"bridge_{name}"), f"{brief}, in five minutes.", _growth(name), ENGINE)


def _growth(name: str) -> str:
    """What a counter grew by. Its first value is no growth: the engine may have run for days before that."""
    return f"sum by ({listed(ENGINE)}) (increase({series(f'specdecode.bridge.{name}')}[{WINDOW}]))"
