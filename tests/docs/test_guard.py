"""The page on the guard says what the default policy says, and its panels, fields and commands are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("msgspec", reason="needs the [guard] extra")

from msgspec import UNSET

from otel_specdecode.guard.breaker import measure_of
from otel_specdecode.guard.policy import OF_FAILURES, OF_REQUESTS, OF_ROUNDS, RELATIVE, Policy, Trigger
from otel_specdecode.guard.policy_file import read_policy
from otel_specdecode.telemetry.names import Enum
from tests.collector.test_rules import panels_named, registry_names, titles_on
from tests.docs.pages import DOCS, ROOT, blocks, prose, rows, text_of

pytestmark = pytest.mark.source

PAGE = text_of(DOCS / "guard.md")
POLICY = Policy()
ROWS = {row[0].strip("`"): row[1:] for row in rows(PAGE, "## What it measures")}
KINDS = {"rounds": OF_ROUNDS, "requests": OF_REQUESTS, "failures": OF_FAILURES}
ACTIONS = {
    "down": "one rung down",
    "streams": "fewer streams",
    "autoregressive": "no speculation",
    "unload": "unload the draft",
}
ONE_REASON = {"service_speedup": "speedup"}
FOR_ALL = {"quality_canary", "swap_growth", "memory_pressure", "thermal_state"}


def test_every_trigger_of_the_default_policy_has_a_row() -> None:
    assert ROWS.keys() == POLICY.triggers.keys()


@pytest.mark.parametrize("name", POLICY.triggers)
def test_a_row_says_what_the_trigger_does(name: str) -> None:
    trigger = POLICY.triggers[name]
    measure = measure_of(name, trigger)
    _, kind, baseline, trips, then, reason = ROWS[name]
    assert kind == next((each for each, measures in KINDS.items() if measure in measures), "machine")
    assert baseline == ("yes" if measure in RELATIVE else "no")
    assert told(trips) == bound_of(trigger)
    if kind in ("rounds", "requests"):
        lasting = f" and {trigger.seconds:g} s" if trigger.seconds else ""
        assert re.search(rf", {trigger.windows} windows?{lasting}$", trips)
    assert then == ACTIONS[trigger.action] + (", for all" if measure in FOR_ALL else "")
    assert reason == f"`{ONE_REASON.get(measure, measure)}`"
    assert reason.strip("`") in Enum.SPECDECODE_FALLBACK_REASON


def told(trips: str) -> float | None:
    """Return the number of a bound, None where it depends on the draft length."""
    found = re.match(r"(?:below|above|from) ([\d.]+)", trips)
    return None if found is None else float(found[1])


def bound_of(trigger: Trigger) -> float | None:
    bound = trigger.above if trigger.below is UNSET else trigger.below
    return bound if isinstance(bound, (int, float)) else None


@pytest.mark.parametrize(
    ("sentence", "number"),
    [
        (r"made of ([\d,]+) rounds", POLICY.windows.rounds),
        (r"measures of requests of ([\d,]+) that", POLICY.windows.requests),
        (r"From open: after ([\d,]+) s", POLICY.probe.cool_down),
        (r"all run so; if something is, .*?, ([\d,]+) hours at most", POLICY.probe.longest_cool_down / 3600),
        (r"above: after ([\d,]+) s", POLICY.probe.dwell),
        (r"each bound was kept with ([\d,]+) % to spare", POLICY.probe.hysteresis * 100),
        (r"one session in ([\d,]+) \(", 1 / POLICY.probe.share),
        (r"runs ([\d,]+) % of the sessions", POLICY.baseline.share * 100),
        (r"takes up to ([\d,]+) %", POLICY.baseline.most_share * 100),
        (r"There must be ([\d,]+) of them", POLICY.baseline.requests),
        (r"At most ([\d,]+) scopes", POLICY.scope.most),
        (r"begun anew at ([\d,]+) MB", POLICY.audit.most_bytes / 1e6),
    ],
)
def test_its_numbers_are_those_of_the_default_policy(sentence: str, number: float) -> None:
    found = re.search(sentence, " ".join(PAGE.split()))
    assert found is not None, sentence
    assert float(found[1].replace(",", "")) == pytest.approx(number)


def test_the_parts_of_policies_that_it_shows_are_taken(tmp_path: Path) -> None:
    shown = blocks(PAGE, "toml")
    assert shown
    for number, text in enumerate(shown):
        path = tmp_path / f"{number}.toml"
        path.write_text(text, encoding="utf-8")
        read_policy(path)


def test_panels_and_fields_that_it_names_are_there() -> None:
    dashboards = ROOT / "collector" / "grafana" / "dashboards"
    titles = {dashboard.stem: titles_on(dashboard) for dashboard in dashboards.glob("*.json")}
    named = list(panels_named(prose(PAGE)))
    assert named
    assert not [(where, title) for where, title in named if title not in titles[where]]
    assert set(re.findall(r"`(specdecode\.[\w.]+)`", PAGE)) <= registry_names()
