"""A hundred thousand sessions: bounded memory, right totals."""

from __future__ import annotations

import gc
import tracemalloc

from otel_specdecode.generation.counts import Counts
from otel_specdecode.generation.plan import Ask, Plan, Who
from otel_specdecode.generation.record import Ending, Facts, Record, Timing
from otel_specdecode.generation.request import Request
from otel_specdecode.generation.tally import Delta
from otel_specdecode.generation.transition import Transition
from otel_specdecode.guard.clocks import Clocks
from otel_specdecode.guard.guard import Guard
from otel_specdecode.guard.policy import Budget, Policy, Scope
from tests.guard.simulated import Clock

SESSIONS = 100_000
MOST = 500
TENANTS = 20_000
MEGABYTES = 12
"""Of a guard that keeps 500 scopes; a session that is not forgotten takes some 200 bytes, all of them 20 MB."""


def rounds(emitted: int, count: int) -> Counts:
    counts = Counts(tokens=emitted * count + 1, prefill_tokens=1)
    for _ in range(count):
        counts.add_round(4, emitted, True)
    return counts


SPECULATIVE, PLAIN = rounds(4, 10), Counts(tokens=41, prefill_tokens=1, plain_passes=40)
DRAFTED, NOT_DRAFTED = Delta(SPECULATIVE, [26_000_000] * 10), Delta(PLAIN, [26_000_000] * 40)
TIMING = Timing(1.0, time_to_first_token=0.2, time_per_token=0.02)


class Load:
    """Sessions of one request each, by turns of many tenants; each tenth tenant's engine fails."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.opened = 0
        budget = Budget(share_of_streams=0.5, draft_tokens_per_minute=1_000_000)
        policy = Policy(mode="enforce", scope=Scope(by="tenant", most=MOST), budget=budget)
        self.guard = Guard(policy, tell=[self.count], clocks=Clocks(self.clock, self.clock.wall))
        self.cohorts: dict[str, int] = {}
        self.made: dict[tuple[str, int, str | None, bool], Record] = {}

    def count(self, transition: Transition) -> None:
        self.opened += transition.after == "open"

    def serve(self, session: int) -> None:
        number = session // 2 % TENANTS
        who = Who(f"tenant-{number}", f"session-{session}")
        plan = self.guard.plan(Ask("mlx", "target", "draft_model", 4, "draft", "chat", who))
        self.cohorts[plan.cohort] = self.cohorts.get(plan.cohort, 0) + 1
        failed = not plan.autoregressive and number % 10 == 0
        key = (plan.cohort, plan.decided, plan.fallback_reason, failed)
        record = self.made.get(key) or self.made.setdefault(key, record_of(plan, failed))
        delta = DRAFTED if record.counts is SPECULATIVE else NOT_DRAFTED
        self.guard.progress(record.request, who, delta, 100)
        self.guard.finish(record, who)
        self.clock.seconds += 0.05


def record_of(plan: Plan, failed: bool) -> Record:
    """The record of a request as it was planned."""
    speculates = not plan.autoregressive
    request = Request(
        "chat",
        "mlx",
        "target",
        mode="speculative" if speculates else "autoregressive",
        requested_mode="speculative",
        method="draft_model",
        draft_max_tokens=4 if speculates else 0,
        cohort=plan.cohort,
        fallback_reason=plan.fallback_reason,
        decided=plan.decided,
    )
    ending = Ending("error", 0, "error", "RuntimeError") if failed else Ending("complete", 0, "length")
    return Record(request, SPECULATIVE if speculates else PLAIN, TIMING, Facts(100), ending)


def test_memory_is_bounded_and_totals_are_right() -> None:
    load = Load()
    for session in range(SESSIONS // 20):
        load.serve(session)
    gc.collect()
    tracemalloc.start()
    try:
        for session in range(SESSIONS // 20, SESSIONS // 10):
            load.serve(session)
        gc.collect()
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    for session in range(SESSIONS // 10, SESSIONS):
        load.serve(session)
    guard = load.guard
    assert grown < MEGABYTES << 20
    assert sum(load.cohorts.values()) == SESSIONS
    assert 0.019 < load.cohorts["control"] / SESSIONS < 0.021
    assert sum(guard.scopes().values()) == MOST
    assert len(guard._streams.budgets._accounts) <= MOST
    assert len(guard._decider._chooser._sessions) <= 10 * MOST
    assert len(guard._decider._chooser._due) <= 10 * MOST
    assert guard._met.running == 0
    guard._streams.settle()
    assert (guard._streams.service.running, guard._streams.service.speculating) == (0, 0)
    assert all(not account.streams for account in guard._streams.budgets._accounts.values())
    # Two sessions in a row of a failing tenant trip, where neither is control: each turn of its two in five.
    assert 0.9 < load.opened / (SESSIONS / 2 / 10) <= 1
