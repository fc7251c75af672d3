"""What the guard costs: a decision before a request, and what it takes of each round and of each request's end."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.measuring import Measure, interleaved
from benchmarks.results import Comparison, Section
from benchmarks.statistics import Target, median
from otel_specdecode.generation.counts import Counts
from otel_specdecode.generation.plan import Ask, Plan, Who
from otel_specdecode.generation.record import Ending, Facts, Record, Timing
from otel_specdecode.generation.request import Request
from otel_specdecode.generation.tally import Delta
from otel_specdecode.guard.guard import Guard
from otel_specdecode.guard.policy import Budget, Policy, Scope

A_ROUND = Target(1.0)
"""Microseconds."""

A_REQUEST = Target(20.0)
"""Microseconds."""

ROUNDS = 27
"""Rounds of a stretch: those of about a second with a target pass of 26 ms."""

KNOWN = 40
"""Requests without a draft, of which the guard has its baseline."""

ASKS = [
    Ask("mlx", "target", "draft_model", 4, "draft", "chat", Who(f"tenant-{number % 50}", f"session-{number}"))
    for number in range(500)
]


def guard(*, requests: int = 500, repetitions: int = 30) -> Section:
    """Measure rounds and requests, for guards that do more and more."""
    section = Section(
        "Guard",
        f"CPU time of the guard's own calls, {requests} a sample. A request is its plan, its permit's release and its "
        f"end; a round is a stretch of {ROUNDS} of them over their number",
    )
    for case, each, target, divisor in (
        ("a round", _stretch, A_ROUND, ROUNDS),
        ("a request", _request, A_REQUEST, 1),
    ):
        variants = {name: _measure(make(), each, requests, divisor) for name, make in GUARDS.items()}
        samples = interleaved(variants, repetitions)
        section.keep(case, samples)
        for name, values in samples.items():
            compared = [Comparison("", median(values), target, "us")]
            section.add(case, name, values, "us", compared)
    return section


def _observing() -> Guard:
    return Guard(Policy())


def _enforcing() -> Guard:
    return Guard(Policy(mode="enforce"))


def _by_tenant() -> Guard:
    budget = Budget(share_of_streams=0.5, draft_tokens_per_minute=1_000_000)
    return Guard(Policy(mode="enforce", scope=Scope(by="tenant"), budget=budget))


def _fallen_back() -> Guard:
    made = _by_tenant()
    for ask in ASKS:
        for _ in range(2):
            plan = made.plan(ask)
            made.finish(_record(plan, "RuntimeError"), ask.who)
    return made


GUARDS: dict[str, Callable[[], Guard]] = {
    "observes": _observing,
    "enforces": _enforcing,
    "a scope and a budget a tenant": _by_tenant,
    "every tenant fell back": _fallen_back,
}


def _measure(made: Guard, each: Callable[[Guard], Callable[[Ask], object]], requests: int, divisor: int) -> Measure:
    take = each(made)

    def measure() -> float:
        chosen = [ASKS[number % len(ASKS)] for number in range(requests)]
        began = time.thread_time_ns()
        for ask in chosen:
            take(ask)
        return (time.thread_time_ns() - began) / requests / divisor / 1e3

    return measure


def _stretch(made: Guard) -> Callable[[Ask], object]:
    for ask in ASKS:
        made.plan(ask)
    request, delta = _record(Plan()).request, Delta(_counts(ROUNDS), [30_000_000] * ROUNDS)
    return lambda ask: made.progress(request, ask.who, delta, 100)


def _request(made: Guard) -> Callable[[Ask], object]:
    """Requests as they come when the guard has a baseline, each after its last stretch, which is not measured here."""
    _stretch(made)(ASKS[0])  # from then on it is known under which conditions requests run
    for _ in range(KNOWN):
        made.finish(_record(Plan(0, "control")), ASKS[0].who)
    plans = (Plan(None, "normal"), Plan(0, "fallback"), Plan(0, "control"), Plan(2, "probe"))
    records = {plan.cohort: _record(plan) for plan in plans}

    meet = made._met.meet  # what a stretch leaves behind, and nothing else of it
    conditions = made._met.latest(ASKS[0])
    assert conditions is not None

    def take(ask: Ask) -> None:
        plan = made.plan(ask)
        if plan.permit is not None:
            plan.permit.release()
        record = records[plan.cohort]
        meet(record.request, conditions)
        made.finish(record, ask.who)

    return take


def _counts(rounds: int) -> Counts:
    counts = Counts(tokens=4 * rounds)
    for _ in range(rounds):
        counts.add_round(4, 4, True)
    return counts


def _record(plan: Plan, error: str | None = None) -> Record:
    speculates = not plan.autoregressive
    request = Request(
        "chat",
        "mlx",
        "target",
        mode="speculative" if speculates else "autoregressive",
        requested_mode="speculative",
        method="draft_model",
        draft_max_tokens=plan.length(4),
        cohort=plan.cohort,
        fallback_reason=plan.fallback_reason,
        decided=plan.decided,
    )
    counts = _counts(30) if speculates else Counts(tokens=120, plain_passes=120)
    ending = Ending("complete", 0, "length") if error is None else Ending("error", 0, "error", error)
    timing = Timing(1.0, time_to_first_token=0.3, time_per_token=0.01 if speculates else 0.026)
    return Record(request, counts, timing, Facts(100), ending)
