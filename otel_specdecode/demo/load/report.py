"""What was sent, as a table for people and as exact sums for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from otel_specdecode.demo import results, terminal
from otel_specdecode.demo.load.outlet import Outlet
from otel_specdecode.demo.load.plan import Load
from otel_specdecode.demo.load.sums import Group, Labels
from otel_specdecode.telemetry.names import Attr

VERSION = 1
"""Of the layout of the JSON document."""


@dataclass(frozen=True)
class Done:
    """A load that has ended.

    Attributes:
        load: What was asked for.
        engines: Names of the engines.
        began, ended: Wall clock, in s since 1970.
        interrupted: Whether somebody ended it before its time.
        dropped: Requests that gave up waiting before they were begun.
        outlet: Of the real service.
        taken: Whether every export was taken, the synthetic Mac's too.
        states: When the synthetic Mac was in which state, wall clock; none without one.
        synthetic: The outlet of the synthetic Mac, None without one.
    """

    load: Load
    engines: Sequence[str]
    began: float
    ended: float
    interrupted: bool
    dropped: int
    outlet: Outlet
    taken: bool
    states: Sequence[tuple[str, float, float]] = ()
    synthetic: Outlet | None = None

    @property
    def bad_draft(self) -> tuple[float, float] | None:
        """When the draft was the bad one, wall clock; None if it never was."""
        burst = self.load.burst
        start, end = self.began + burst.start, self.began + burst.start + burst.seconds
        return (start, min(end, self.ended)) if burst.seconds and start < self.ended else None


def as_json(done: Done) -> dict[str, Any]:
    """Return all of it as plain data; every sum is one of the spans that were taken."""
    return {
        "version": VERSION,
        "seed": done.load.seed,
        "rate": done.load.rate,
        "engines": list(done.engines),
        "start": instant(done.began),
        "end": instant(done.ended),
        "interrupted": done.interrupted,
        "dropped": done.dropped,
        "bad_draft": _window(*done.bad_draft) if done.bad_draft else None,
        "real": _service(done.outlet),
        "synthetic": None
        if done.synthetic is None
        else {
            **_service(done.synthetic),
            "states": [{"name": name, **_window(start, end)} for name, start, end in done.states],
        },
    }


def instant(epoch: float) -> dict[str, Any]:
    """Return a wall clock time in both ways in which people write one."""
    return {"utc": utc(epoch), "epoch": epoch}


def utc(epoch: float) -> str:
    """Return a wall clock time in UTC, to the second."""
    return datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def show(console: Console, done: Done) -> None:
    """Print the sums, and when what happened."""
    console.print(_table(done))
    for start, end in (done.bad_draft,) if done.bad_draft else ():
        terminal.say(console, f"Bad draft:      {_span(start, end)}")
    for attributes in done.outlet.bursts:
        terminal.say(console, f"Burst detected: {_burst(attributes)}")
    if done.bad_draft and not done.outlet.bursts:
        terminal.say(console, "No burst was detected: too few rounds met the bad draft.", "yellow")
    for name, start, end in done.states:
        terminal.say(console, f"Synthetic Mac:  {_span(start, end)}  {name}")
    for note in _notes(done):
        terminal.say(console, note, "yellow")


def _service(outlet: Outlet) -> dict[str, Any]:
    return {
        "resource": {key: value for key, value in outlet.resource.attributes.items() if isinstance(value, (str, int))},
        "spans": {"ended": outlet.ended, "exported": outlet.sums.total().requests},
        "total": outlet.sums.total().as_json(),
        "groups": [{"labels": dict(key), **group.as_json()} for key, group in outlet.sums.groups().items()],
        "bursts": [
            {
                **_window(attributes[Attr.SPECDECODE_BURST_START_TIME], attributes[Attr.SPECDECODE_BURST_END_TIME]),
                "attributes": {k: list(v) if isinstance(v, tuple) else v for k, v in attributes.items()},
            }
            for attributes in outlet.bursts
        ],
    }


def _window(start: float, end: float) -> dict[str, Any]:
    return {"start": instant(start), "end": instant(end)}


def _table(done: Done) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for heading in ("service", "engine", "mode", "method"):
        table.add_column(heading, no_wrap=True)
    for heading in ("k", "requests", "errors", "closed", "tokens", "accepted", "rejected", "rollbacks", "accept rate"):
        table.add_column(heading, justify="right", no_wrap=True)
    for outlet in filter(None, (done.outlet, done.synthetic)):
        service = str(outlet.resource.attributes["service.name"])
        for key, group in _rows(outlet).items():
            table.add_row(service, *key, *_numbers(group))
        table.add_row(service, "all", "", "", "", *_numbers(outlet.sums.total()), style="bold", end_section=True)
    return table


def _rows(outlet: Outlet) -> dict[tuple[str, ...], Group]:
    """Return the groups of a service without regard to operation, cohort and context tier."""
    shown = (
        Attr.GEN_AI_PROVIDER_NAME,
        Attr.SPECDECODE_MODE,
        Attr.SPECDECODE_METHOD,
        Attr.SPECDECODE_DRAFT_LENGTH,
    )
    rows: dict[tuple[str, ...], Group] = {}
    for labels, group in outlet.sums.groups().items():
        rows.setdefault(_key(labels, shown), Group()).join(group)
    return dict(sorted(rows.items()))


def _key(labels: Labels, names: Sequence[str]) -> tuple[str, ...]:
    found = dict(labels)
    return tuple(found[name] for name in names)


def _numbers(group: Group) -> list[str]:
    finished = group.counts[Attr.GEN_AI_RESPONSE_FINISH_REASONS]
    accepted = group.sums[Attr.SPECDECODE_DRAFT_ACCEPTED_TOKENS]
    rejected = group.sums[Attr.SPECDECODE_DRAFT_REJECTED_TOKENS]
    compared = accepted + rejected
    numbers = (
        group.requests,
        sum(group.counts[Attr.ERROR_TYPE].values()),
        finished.get("closed", 0),
        group.sums[Attr.GEN_AI_USAGE_OUTPUT_TOKENS],
        accepted,
        rejected,
        group.sums[Attr.SPECDECODE_ROLLBACKS],
    )
    return [*(f"{number:,}" for number in numbers), results.plain(accepted / compared if compared else None)]


def _burst(attributes: Mapping[str, Any]) -> str:
    start, end = attributes[Attr.SPECDECODE_BURST_START_TIME], attributes[Attr.SPECDECODE_BURST_END_TIME]
    told = ", ".join(attributes.get(Attr.SPECDECODE_BURST_TENANTS, ()))
    return (
        f"{_span(start, end)}  {attributes[Attr.GEN_AI_PROVIDER_NAME]}, "
        f"{attributes[Attr.SPECDECODE_BURST_ROLLBACKS_PER_MINUTE]:,.0f} rollbacks a minute of decode, "
        f"{attributes[Attr.SPECDECODE_BURST_REQUESTS]} requests of {told or 'no tenant'}"
    )


def _span(start: float, end: float) -> str:
    return f"{utc(start)} to {utc(end)} (epoch {start:.0f} to {end:.0f})"


def _notes(done: Done) -> list[str]:
    notes = []
    if done.interrupted:
        notes.append("Stopped before its time.")
    if done.dropped:
        notes.append(f"{done.dropped} requests gave up waiting: they come faster than this machine makes tokens.")
    for outlet in filter(None, (done.outlet, done.synthetic)):
        lost = outlet.ended - outlet.sums.total().requests
        if lost:
            service = str(outlet.resource.attributes["service.name"])
            notes.append(f"{lost} of {outlet.ended} spans of {service} were not taken; they are in no sum above.")
    if not done.taken:
        notes.append("The endpoint did not take everything, so its counters may differ from the sums above.")
    return notes
