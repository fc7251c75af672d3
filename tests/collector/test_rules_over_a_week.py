"""The shipped rules over a simulated week: every fault is found in time, and nothing else is reported."""

from __future__ import annotations

import re
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.collector import week
from tests.collector.promtool import PROMETHEUS, promtool

pytestmark = pytest.mark.source

STEP = 5
# Two halves side by side, cut where no fault is near.
HALVES = ((0, 3 * week.DAY), (3 * week.DAY, week.MINUTES))
RULES = sorted((PROMETHEUS / "rules").glob("*.yaml"), key=lambda path: path.stem != "recording")
MINUTES_IN = {"d": week.DAY, "h": week.HOUR, "m": 1, "s": 0}


def written(record: week.Record, start: int, end: int) -> str:
    """A promtool test that expects no alert at any time, so that promtool tells of every one that fires."""
    lines = ["rule_files:", *(f"  - {path}" for path in RULES), f"evaluation_interval: {STEP}m"]
    lines += ["group_eval_order:", "  - specdecode-recording"]
    lines += [f"  - specdecode-{path.stem.removeprefix('alerts-')}" for path in RULES[1:]]
    lines += ["tests:", "  - interval: 1m", "    input_series:"]
    for name in record.changes:
        values = record.notation(name, start, end)
        if values != f"_x{end - start}":
            lines += [f"      - series: '{name}'", f"        values: '{values}'"]
    lines.append("    promql_expr_test:")
    for minute in range(0, end - start, STEP):
        lines += [
            "      - expr: ALERTS{alertstate='firing'}",
            f"        eval_time: {minute}m",
            "        exp_samples: []",
        ]
    return "\n".join(lines)


def fired(output: str, start: int) -> dict[int, set[str]]:
    """What promtool tells of: the alerts that fired, by the minute of the week."""
    found: dict[int, set[str]] = defaultdict(set)
    minute = 0
    for line in output.splitlines():
        if time := re.search(r"time: ([\ddhms]+),", line):
            parts = re.findall(r"(\d+)([dhms])", time[1])
            minute = start + sum(int(number) * MINUTES_IN[unit] for number, unit in parts)
        found[minute] |= set(re.findall(r'alertname="(\w+)"', line))
    return {at: alerts for at, alerts in found.items() if alerts}


def report(alerts: dict[int, set[str]]) -> tuple[list[str], list[str]]:
    """The faults that were not found in time, and the alerts that fired for nothing. Prints both."""
    missed = []
    for fault in week.faults():
        times = [at - fault.start for at, names in alerts.items() if names & fault.first and at >= fault.start]
        delay = min(times, default=week.MINUTES)
        print(f"{fault.name}: {sorted(fault.first)} after {delay} minutes")  # noqa: T201
        if delay > fault.within:
            missed.append(fault.name)
    wrong = [f"{name} at {at}" for at, names in alerts.items() for name in sorted(names) if not week.allowed(name, at)]
    print(f"{len(list(week.faults()))} faults, {len(missed)} missed; {len(wrong)} false alerts {wrong[:5]}")  # noqa: T201
    return missed, wrong


def test_what_promtool_tells_of_is_read() -> None:
    output = """
    expr: "ALERTS{alertstate='firing'}", time: 1d2h5m,
        exp: nil
        got: {__name__="ALERTS", alertname="B", node="mac-1"} 1E+00
        {__name__="ALERTS", alertname="A"} 1E+00
    expr: "ALERTS{alertstate='firing'}", time: 0s,
    """
    assert fired(output, start=60) == {60 + week.DAY + 2 * week.HOUR + 5: {"A", "B"}}


def test_a_fault_that_is_found_late_is_missed_and_an_alert_without_a_fault_is_false() -> None:
    first = next(week.faults())
    (name,) = first.first
    missed, wrong = report({first.start + first.within + STEP: {name}, first.end + week.DAY: {name}})
    assert missed == [fault.name for fault in week.faults()]
    assert wrong == [f"{name} at {first.end + week.DAY}"]
    assert first.name not in report({first.start + first.within: {name}})[0]


@pytest.mark.e2e
@pytest.mark.slow
def test_every_fault_is_found_in_time_and_nothing_else_is_reported(tmp_path: Path) -> None:
    record = week.week(seed=1)

    def run(half: tuple[int, int]) -> dict[int, set[str]]:
        path = tmp_path / f"from_{half[0]}_test.yaml"
        path.write_text(written(record, *half))
        done = promtool("test", "rules", path, timeout=600)
        assert "FAILED" in done.stdout + done.stderr
        return fired(done.stdout + done.stderr, half[0])

    with ThreadPoolExecutor() as pool:
        alerts = {at: names for part in pool.map(run, HALVES) for at, names in part.items()}
    assert report(alerts) == ([], [])
