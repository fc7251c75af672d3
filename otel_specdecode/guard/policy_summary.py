"""A policy on one screen."""

from __future__ import annotations

from msgspec import UNSET, UnsetType
from rich import box
from rich.table import Table as Grid
from rich.text import Text

from otel_specdecode.guard.breaker import measure_of
from otel_specdecode.guard.policy import OF_FAILURES, OF_REQUESTS, OF_ROUNDS, Bound, Policy, Trigger
from otel_specdecode.guard.policy_file import PolicyFile

_ACTIONS = {
    "streams": "fewer streams",
    "down": "one rung down",
    "autoregressive": "no speculation",
    "unload": "unload the draft",
}


def facts(read: PolicyFile) -> Grid:
    """Return what holds for all triggers."""
    policy = read.policy
    grid = Grid(box=None, show_header=False, pad_edge=False)
    for name, text in (
        ("mode", "observes only: changes no request" if policy.mode == "observe_only" else "enforces"),
        (
            "decides by",
            f"{policy.scope.by}, {policy.scope.most:,} at most" if policy.scope.by != "process" else "process",
        ),
        ("windows", f"{policy.windows.rounds:,} rounds, {policy.windows.requests:,} requests"),
        ("ladder", _ladder(policy)),
        ("probes after", f"{policy.probe.cool_down:,g} s, {policy.probe.share:.1%} of sessions"),
        ("baseline", _baseline(policy)),
        ("flag file", policy.flag_file or "none"),
        ("canary file", policy.canary_file or "none"),
        ("budget", _budget(policy)),
        ("audit", _audit(policy)),
    ):
        grid.add_row(name, Text(text))
    return grid


def rules(policy: Policy) -> Grid:
    """Return the triggers."""
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("trigger", "trips", "then"):
        grid.add_column(heading)
    for name, trigger in policy.triggers.items():
        grid.add_row(Text(name), Text(_rule(name, trigger)), _ACTIONS[trigger.action])
    return grid


def _ladder(policy: Policy) -> str:
    streams = f"streams {policy.ladder.streams}"
    return " > ".join([streams, *(f"k={length}" for length in policy.ladder.lengths), "autoregressive"])


def _baseline(policy: Policy) -> str:
    told = policy.baseline
    written = "" if told.write is None else f"; writes {told.write}"
    if told.file is not None:
        return f"{told.file}{written}"
    if policy.mode == "observe_only" or not told.share:
        return f"none: makes no control requests{written}"
    return f"{told.share:.1%} to {told.most_share:.1%} of sessions run autoregressively{written}"


def _budget(policy: Policy) -> str:
    share, tokens = policy.budget.share_of_streams, policy.budget.draft_tokens_per_minute
    parts = [] if share is None else [f"{share:.1%} of the streams that speculate"]
    parts += [] if tokens is None else [f"{tokens:,} proposed tokens a minute"]
    return f"each tenant {' and '.join(parts)} at most" if parts else "none"


def _audit(policy: Policy) -> str:
    if policy.audit.folder is None:
        return "no file"
    return f"{policy.audit.folder}{', with the state' if policy.audit.state else ''}"


def _rule(name: str, trigger: Trigger) -> str:
    measure = measure_of(name, trigger)
    what = "" if measure == name else f"{measure} "
    word = "from" if measure in OF_FAILURES else "above" if trigger.below is UNSET else "below"
    bound = trigger.above if trigger.below is UNSET else trigger.below
    return f"{what}{word} {_bound(bound)}{_windows(measure, trigger)}"


def _bound(bound: Bound | UnsetType) -> str:
    if isinstance(bound, dict):
        return f"{max(bound.values()):g} to {min(bound.values()):g}, by k"
    return f"{bound:,.10g}" if isinstance(bound, float) else "nothing"


def _windows(measure: str, trigger: Trigger) -> str:
    if measure not in OF_ROUNDS | OF_REQUESTS:
        return " in a row" if measure in OF_FAILURES else ""
    seconds = f" and {trigger.seconds:,g} s" if trigger.seconds else ""
    return f", {trigger.windows} window{'s' if trigger.windows > 1 else ''}{seconds}"
