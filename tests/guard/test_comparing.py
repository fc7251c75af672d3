"""That a scope has lost its baseline, or found one, is told once, with why; a window in between tells nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from otel_specdecode.generation.comparison import BaselineChange
from otel_specdecode.generation.plan import NOBODY, Ask, Who
from otel_specdecode.generation.transition import Lane
from otel_specdecode.guard.baseline import Conditions, Usual
from otel_specdecode.guard.guard import Guard
from otel_specdecode.guard.machine import MachineState
from otel_specdecode.guard.policy import Baseline, Policy, Scope, Trigger, Windows
from tests.guard.asked import ASK, a_guard, of, record_of, request_of
from tests.guard.simulated import START_NS, Clock

NEEDED = 3
WINDOW = 5
DAY = 86_400.0
COMPARES = Policy(
    mode="enforce",
    windows=Windows(requests=WINDOW),
    triggers={"speedup": Trigger(below=0.1)},
    baseline=Baseline(share=0.0, most_share=0.0, requests=NEEDED),
)
COMPARES_BY_TENANT = Policy(
    mode="enforce",
    scope=Scope(by="tenant"),
    windows=COMPARES.windows,
    triggers=COMPARES.triggers,
    baseline=COMPARES.baseline,
)
HERE = Conditions("mlx", "target", "chat", "short")
KNOWN = Usual(0.02, 0.02, 0.02, 0.3, 50.0, 40)


class Seen:
    """A guard, and what it tells of baselines."""

    def __init__(self, policy: Policy = COMPARES, fixed: dict[Conditions, Usual] | None = None) -> None:
        self.clock = Clock()
        self.told: list[BaselineChange] = []
        self.guard: Guard = a_guard(policy, clock=self.clock, tell_baseline=[self.told.append], fixed=fixed)

    @property
    def standings(self) -> list[str]:
        return [each.standing for each in self.told]

    def windows(self, count: int, ask: Ask = ASK) -> None:
        """Full windows of requests that speculate."""
        for _ in range(count * WINDOW):
            self.clock.seconds += 1
            request = request_of(self.guard.plan(ask), ask)
            self.guard.finish(record_of(request, time_per_token=0.02, time_to_first_token=0.3), ask.who)

    def control(self, count: int) -> None:
        """Requests without a draft."""
        for _ in range(count):
            self.clock.seconds += 1
            request = replace(request_of(self.guard.plan(ASK)), mode="autoregressive", cohort="control")
            self.guard.finish(record_of(request, time_per_token=0.02, time_to_first_token=0.3), NOBODY)


def test_a_scope_without_a_baseline_is_told_once_and_once_more_when_it_has_one() -> None:
    seen = Seen()
    seen.windows(1)
    assert seen.told == []
    seen.windows(10)
    assert seen.standings == ["missing"]
    seen.control(NEEDED)
    seen.windows(1)
    assert seen.standings == ["missing"]
    seen.windows(10)
    assert seen.standings == ["missing", "known"]


def test_a_scope_that_had_a_baseline_from_its_first_window_on_is_not_told_of() -> None:
    seen = Seen()
    seen.control(NEEDED)
    seen.windows(10)
    assert seen.told == []


def test_windows_that_say_now_this_and_now_that_tell_nothing() -> None:
    """The mix of a service with two power modes, one of which was never measured."""
    seen = Seen()
    seen.control(NEEDED)
    for number in range(20):
        seen.guard.machine(MachineState(power_mode=("unknown", "low")[number % 2]))
        seen.windows(1)
    assert seen.told == []


def test_all_of_it_is_told() -> None:
    seen = Seen(COMPARES_BY_TENANT)
    seen.control(NEEDED - 1)
    seen.windows(2, of("acme"))
    assert seen.told == [
        BaselineChange(
            at=START_NS + int(seen.clock.seconds * 1e9),
            lane=Lane("tenant", "acme", "mlx", "target", "draft_model"),
            standing="thin",
            operation="chat",
            tier="short",
            at_once=1,
            power_mode="unknown",
            thermal_state="unknown",
            requests=NEEDED - 1,
            policy=COMPARES_BY_TENANT.digest,
            observe_only=False,
        )
    ]


def test_a_baseline_that_has_grown_old_is_stale() -> None:
    seen = Seen()
    seen.control(NEEDED)
    seen.windows(1)
    seen.clock.seconds += DAY + 10
    seen.windows(2)
    assert seen.standings == ["stale"]


def test_a_baseline_of_a_cool_machine_is_not_comparable_with_a_hot_one() -> None:
    seen = Seen()
    seen.control(NEEDED)
    seen.guard.machine(MachineState(thermal_state="serious"))
    seen.windows(2)
    assert [(each.standing, each.thermal_state, each.requests) for each in seen.told] == [
        ("not_comparable", "serious", 0)
    ]


@pytest.mark.parametrize(
    ("fixed", "standings"),
    [
        ({HERE: KNOWN}, []),
        ({HERE._replace(tier="long"): KNOWN}, ["not_comparable"]),
        ({HERE._replace(model="another"): KNOWN}, ["missing"]),
    ],
    ids=["of these conditions", "of others", "of another model"],
)
def test_numbers_of_a_file_are_told_of_likewise(fixed: dict[Conditions, Usual], standings: list[str]) -> None:
    seen = Seen(fixed=fixed)
    seen.windows(3)
    assert seen.standings == standings


def test_a_policy_that_compares_nothing_misses_nothing() -> None:
    seen = Seen(Policy(mode="enforce", windows=COMPARES.windows, triggers={"queue": Trigger(above=2)}))
    seen.windows(5)
    assert seen.told == []


def test_each_tenant_is_told_of_by_itself() -> None:
    seen = Seen(COMPARES_BY_TENANT)
    for tenant in ("acme", "bravo"):
        seen.windows(3, of(tenant))
    assert [each.lane.key for each in seen.told] == ["acme", "bravo"]


def test_who_is_told_may_fail(caplog: pytest.LogCaptureFixture) -> None:
    def fail(change: BaselineChange) -> None:
        raise OSError(change.standing)

    guard, clock = a_guard(COMPARES, tell_baseline=[fail]), Clock()
    for _ in range(2 * WINDOW):
        clock.seconds += 1
        guard.finish(record_of(request_of(guard.plan(ASK))), Who())
    assert "could not be told" in caplog.text
    assert not guard.plan(ASK).autoregressive
