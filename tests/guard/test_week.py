"""Weeks of traffic whose faults are known: each is found in time, nothing else is, and speculation comes back."""

from __future__ import annotations

import pytest
from rich.console import Console
from rich.table import Table

from otel_specdecode.generation.transition import Transition
from otel_specdecode.guard.breaker import measure_of
from otel_specdecode.guard.policy import Policy, Scope, default_triggers
from tests.guard.weeks import DAY, HOUR, Fault, Kind, Week, at

SEEDS = (1, 2)

FOUND_WITHIN = 600.0
"""Seconds."""

BACK_WITHIN = 6 * HOUR
"""Two windows of probes, one request in ten, are 400 requests: at night more than three hours, before any rung."""

TENANTS = {"code": Kind(accept=0.8), "docs": Kind(accept=0.8, draft=0.01)}

PAYING = ("break_even", "accept_rate", "accept_rate_critical", "all_rejected", "speedup", "speedup_lost")
SLOWED = (*PAYING, "time_per_token", "service_speedup", "service_speedup_lost")
FAULTS = [
    Fault("draft gone bad", 0 * DAY + 10 * HOUR, HOUR, SLOWED, "code", {"accept": 0.05}),
    Fault("prompt mix shift", 0 * DAY + 15 * HOUR, HOUR, SLOWED, "code", {"accept": 0.2}),
    Fault("draft twice as slow", 1 * DAY + 10 * HOUR, HOUR, SLOWED, "docs", {"draft": 0.02}),
    Fault("target slow for all", 1 * DAY + 15 * HOUR, HOUR, (), "all", {"target": 0.039}),
    Fault("nothing proposed", 2 * DAY + 10 * HOUR, HOUR, ("nothing_proposed", *SLOWED), "code", {"proposes": False}),
    Fault("swap grows", 2 * DAY + 15 * HOUR, HOUR / 4, ("swap_growth",), swap=4e6),
    Fault(
        "memory pressure", 3 * DAY + 10 * HOUR, HOUR / 2, ("memory_pressure",), machine={"memory_pressure": "critical"}
    ),
    Fault("heat", 3 * DAY + 15 * HOUR, HOUR, ("thermal_state",), machine={"thermal_state": "serious"}),
    Fault("out of memory", 4 * DAY + 10 * HOUR, HOUR / 6, ("out_of_memory",), "code", {"error": "MemoryError"}),
    Fault("verifier fails", 4 * DAY + 15 * HOUR, HOUR / 6, ("verifier_error",), "docs", {"error": "RuntimeError"}),
    Fault("canaries fail", 5 * DAY + 10 * HOUR, HOUR / 2, ("quality_canary",), canary=False),
    Fault("queue", 5 * DAY + 15 * HOUR, HOUR, ("queue",), "docs", {"queued": 4.0}),
    Fault("target slow for all at night", 6 * DAY + 2 * HOUR, 2 * HOUR, (), "all", {"target": 0.052}),
]
SETTLES = {"swap grows": 300.0}
"""Seconds after a fault in which it still counts: swap has grown until it has stood still for a cool-down."""


def per_minute(now: float) -> float:
    """Requests of each tenant, by the time of day."""
    hour = now % DAY / HOUR
    return 9.0 if 9 <= hour < 17 else 2.0


@pytest.fixture(scope="module", params=SEEDS, ids=lambda seed: f"week {seed}")
def week(request: pytest.FixtureRequest) -> Week:
    week = Week(Policy(mode="enforce", scope=Scope(by="tenant")), TENANTS, FAULTS, seed=request.param)
    week.run(7 * DAY, per_minute)
    return week


def concerns(fault: Fault, transition: Transition) -> bool:
    return transition.lane.key == (None if fault.tenant is None else fault.tenant)


def trips(week: Week) -> list[Transition]:
    return [each for each in week.told if each.trigger not in ("recovered", "probe")]


def found(week: Week, fault: Fault) -> Transition | None:
    """The first trip of a fault's own triggers while it is there."""
    its = (each for each in trips(week) if concerns(fault, each) and each.trigger in fault.found_by)
    return next((each for each in its if fault.is_on(at(each))), None)


def back(week: Week, fault: Fault) -> float | None:
    """When speculation was as asked again after a fault."""
    closed = (at(each) for each in week.told if concerns(fault, each) and each.after == "closed")
    return next((each for each in closed if each >= fault.begins), None)


def is_explained(transition: Transition) -> bool:
    """A trip belongs to a fault if its last window began while that was there."""
    return any(
        concerns(fault, transition)
        and transition.trigger in fault.found_by
        and fault.begins <= at(transition)
        and at(transition) - transition.window_seconds <= fault.ends + SETTLES.get(fault.name, 60.0)
        for fault in FAULTS
    )


def test_the_figures_of_the_week(week: Week) -> None:
    table = Table("fault", "found by", "after s", "rung", "back after s", title=f"{week.requests:,} requests in a week")
    for fault in FAULTS:
        first, again = found(week, fault), back(week, fault)
        cells = (
            ("-", "-", "-") if first is None else (first.trigger, f"{at(first) - fault.begins:.0f}", first.rung_after)
        )
        table.add_row(fault.name, *cells, "-" if first is None or again is None else f"{again - fault.ends:.0f}")
    console = Console(width=120)
    console.print(table)
    for each in trips(week):
        if not is_explained(each):
            console.print(f"{at(each):.0f} s, {each.lane.key}: {each.trigger} {each.value}, to {each.rung_after}")
    console.print(f"{len(week.told)} transitions; {week.speculated / week.requests:.1%} of all requests speculated")
    assert week.requests > 50_000


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault.found_by], ids=lambda fault: fault.name)
def test_each_fault_is_found_within_ten_minutes_and_speculation_comes_back(week: Week, fault: Fault) -> None:
    first, again = found(week, fault), back(week, fault)
    assert first is not None
    assert at(first) - fault.begins <= FOUND_WITHIN
    assert again is not None
    assert again - fault.ends <= BACK_WITHIN


def test_nothing_else_trips(week: Week) -> None:
    assert [each for each in trips(week) if not is_explained(each)] == []


def test_speculation_is_on_nearly_all_the_time(week: Week) -> None:
    assert week.speculated / week.requests > 0.85


def after_a_baseline(kind: Kind, policy: Policy | None = None) -> Week:
    """Two hours of a draft that is beyond doubt, then two of one that is to be judged."""
    sound = {"draft": 0.0005, "accept": 0.85, "length": kind.length}
    week = Week(policy or Policy(mode="enforce"), {"a": kind}, [Fault("sound", 0, 2 * HOUR, (), "a", sound)])
    week.run(2 * HOUR, lambda _: 8.0)
    week.accepted = week.compared = 0
    week.run(4 * HOUR, lambda _: 8.0)
    return week


def test_an_accept_rate_of_28_percent_that_pays_stays_on() -> None:
    week = after_a_baseline(Kind(accept=0.56, draft=0.0005))
    assert 0.26 < week.accepted / week.compared < 0.30
    assert not week.told


def test_an_accept_rate_of_70_percent_that_does_not_pay_goes_off() -> None:
    """Whatever the bounds of accept rate are."""
    by_cost = {name: each for name, each in default_triggers().items() if measure_of(name, each) != "accept_rate"}
    week = after_a_baseline(Kind(accept=0.71, draft=0.022, length=1), Policy(mode="enforce", triggers=by_cost))
    assert 0.68 < week.accepted / week.compared < 0.76
    assert week.told[0].trigger in ("break_even", "speedup", "speedup_lost")
    assert at(week.told[0]) - 2 * HOUR <= FOUND_WITHIN
    off = next(each for each in week.told if each.after == "open")
    assert at(off) - 2 * HOUR <= FOUND_WITHIN
