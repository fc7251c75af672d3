"""Requests, windows and ends that a guard is told of, as the engines would tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from otel_specdecode.generation.counts import Counts
from otel_specdecode.generation.plan import Ask, Plan, Who
from otel_specdecode.generation.record import Ending, Facts, Record, Timing
from otel_specdecode.generation.request import Request
from otel_specdecode.generation.tally import Delta
from otel_specdecode.guard.clocks import Clocks
from otel_specdecode.guard.guard import Guard
from otel_specdecode.guard.policy import Baseline, Policy
from tests.guard.simulated import Clock, World

ASK = Ask("mlx", "target", "draft_model", 4, "draft", "chat")
NO_CONTROL = Baseline(share=0.0)
ENFORCE = Policy(mode="enforce", baseline=NO_CONTROL)
BAD = World(accept=0.05)
TRACE = "0" * 31 + "1"


def a_guard(policy: Policy = ENFORCE, **given: Any) -> Guard:
    clock = given.pop("clock", None) or Clock()
    return Guard(policy, clocks=Clocks(clock, clock.wall), **given)


def of(tenant: str | None = None, session: str | None = None) -> Ask:
    return replace(ASK, who=Who(tenant, session))


def request_of(plan: Plan, ask: Ask = ASK) -> Request:
    length = plan.length(ask.draft_length)
    return Request(
        "chat",
        ask.provider,
        ask.model,
        mode="speculative" if length else "autoregressive",
        requested_mode="speculative",
        method=ask.method,
        draft_max_tokens=length,
        cohort=plan.cohort,
        fallback_reason=plan.fallback_reason,
        decided=plan.decided,
    )


def rounds(emitted: int, count: int = 200, proposed: int = 4) -> Delta:
    counts = Counts(tokens=emitted * count)
    for _ in range(count):
        counts.add_round(proposed, emitted, True)
    return Delta(counts, [30_000_000] * count)


def record_of(request: Request, error: str | None = None, **timing: Any) -> Record:
    ending = Ending("complete" if error is None else "error", 0, None, error)
    counts = Counts(tokens=3, prefill_tokens=1)
    if request.mode == "speculative":
        counts.add_round(request.draft_max_tokens or 4, 2, True)
    else:
        counts.plain_passes = 2
    return Record(request, counts, Timing(1.0, **timing), Facts(100), ending)


def fail_twice(guard: Guard, ask: Ask = ASK, trace: str | None = None) -> None:
    for _ in range(2):
        guard.finish(record_of(request_of(guard.plan(ask), ask), "RuntimeError"), ask.who, trace)
