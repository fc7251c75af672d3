"""A verdict, and a policy, in a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from otel_specdecode.acceptance.gates.measures import MEASURES
from otel_specdecode.acceptance.gates.policy import WORDS, GatesPolicy
from otel_specdecode.acceptance.gates.verdict import GateResult, Verdict
from otel_specdecode.acceptance.storage import HOST, RESULTS

_STYLES = {
    "accepted": "bold green",
    "rejected": "bold red",
    "invalid": "bold yellow",
    "pass": "green",
    "held": "green",
    "fail": "red",
    "broken": "red",
    "warning": "yellow",
    "waived": "yellow",
    "not measured": "yellow",
    "noted": "dim",
}
_FILES = f"Samples are of {HOST}, all else is of {RESULTS}; intervals are of 95 %. --json has all of it."
_SIZES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def print_verdict(console: Console, verdict: Verdict) -> None:
    """Print a verdict: the word first, then each gate, then what makes the run count."""
    soak = f" and {verdict.soak_id}" if verdict.soak_id else ""
    word = Text(verdict.status, _STYLES[verdict.status])
    console.print(word, Text(f" {verdict.run_id}{soak}, {verdict.arm or 'no arm'}"), sep="")
    console.print(Text(verdict.reason))
    for each in verdict.reasons:
        console.print(Text(f"- {each}"))
    console.print(_gates(verdict))
    for gate in verdict.gates:
        for told in _told(gate):
            console.print(Text(f"{gate.id}: {told}"))
    console.print(Text(_FILES, "dim"))
    console.print(_validity(verdict))
    if verdict.disabled:
        console.print(Text(f"Switched off by the policy: {', '.join(verdict.disabled)}."))


def print_policy(console: Console, policy: GatesPolicy) -> None:
    """Print what a policy demands."""
    table = Table("gate", "bound", "needs", "about", box=None, pad_edge=False, header_style="bold")
    for name, gate in policy.gates.items():
        unit = "ratio" if gate.over_autoregressive else MEASURES[gate.measure].unit
        bound = f"{WORDS[gate.bound]} {amount(gate.limit, unit)}" if gate.enabled else "off"
        needs = f"{gate.series} x {gate.samples}" if gate.series else f"{gate.samples}"
        about = gate.about if gate.measure == name else f"{gate.about} ({gate.measure})".lstrip()
        table.add_row(*map(Text, (name, bound, needs, about)))
    console.print(table)
    for waiver in policy.waivers:
        console.print(Text(f"{waiver.gate} waived until {waiver.expires} by {waiver.who}: {waiver.reason}"))


def amount(value: float, unit: str) -> str:
    """Return a number as people read it.

    Args:
        value: It.
        unit: That of a measure.
    """
    if unit == "s":
        return f"{value * 1000:.1f} ms" if 0 < abs(value) < 1 else f"{value:.4g} s"
    if unit == "bytes":
        size, name = next((each for each in _SIZES if abs(value) >= each[0]), (1, "B"))
        return f"{value / size:.4g} {name}"
    if unit == "ratio":
        return f"x{value:.3f}"
    return f"{value:.1f} tok/s" if unit == "tokens/s" else f"{value:.4g}"


def status_of(gate: GateResult) -> str:
    """Return the word for a gate: a failure that is only told is a warning."""
    return "warning" if gate.level == "warning" and gate.status == "fail" else gate.status


def _gates(verdict: Verdict) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("gate", "", "value", "bound", "made of"):
        table.add_column(title, no_wrap=title in ("gate", ""))
    for gate in verdict.gates:
        status = status_of(gate)
        table.add_row(
            Text(gate.id),
            Text(status, _STYLES[status]),
            Text(_value(gate)),
            Text(f"{gate.bound} {amount(gate.threshold, gate.unit)}"),
            Text(", ".join(f"{each.samples} {each.of}" for each in gate.evidence)),
        )
    return table


def _validity(verdict: Verdict) -> Table:
    table = Table("the run counts if", "", "", box=None, pad_edge=False, header_style="bold")
    for each in verdict.validity:
        table.add_row(
            Text(each.title), Text(each.status, _STYLES[each.status] if each.counts else "dim"), Text(each.why)
        )
    return table


def _value(gate: GateResult) -> str:
    """Return the value with its interval."""
    if gate.value is None:
        return ""
    value = amount(gate.value, gate.unit)
    if gate.low is None or gate.high is None or gate.low == gate.high:
        return value
    return f"{value} [{amount(gate.low, gate.unit)}, {amount(gate.high, gate.unit)}]"


def _told(gate: GateResult) -> Iterator[str]:
    if gate.why:
        yield gate.why
    waiver = gate.waiver
    if waiver is not None:
        until = f"expired on {waiver.expires}, so it does not count" if waiver.expired else f"until {waiver.expires}"
        unused = ", not needed" if gate.status == "pass" else ""
        yield f"waiver by {waiver.who} ({waiver.reason}), {until}{unused}"
