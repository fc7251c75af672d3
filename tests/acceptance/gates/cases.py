"""A sweep and a soak that every gate accepts, and ways to spoil them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from otel_specdecode.acceptance.gates.policy import PRESETS, GatesPolicy
from otel_specdecode.acceptance.gates.policy_file import preset_policy
from otel_specdecode.acceptance.gates.verdict import GateResult, Verdict, evaluate
from otel_specdecode.acceptance.records import Arm, HostSample, Measured, Note, Run
from tests.acceptance.fakes import BEGAN, World, arms, fake_host, fake_run, prompts

Runs = tuple[Run, Run]
Spoil = Callable[[Run, Run], tuple[Run, Run | None]]

DAY = 86_400.0
NOW = BEGAN + DAY
AR, K4 = Arm(0), Arm(4)
WORLD = World()


@cache
def good(world: World = WORLD) -> Runs:
    """A sweep of k = 4 at temperature 0 and 0.7, and a soak of k = 4 after a stretch without a draft."""
    asked = prompts(200, checked=True) + prompts(20, "mid") + prompts(6, max_tokens=700, name="answer")
    sweep = fake_run((AR, K4), asked, world)
    sampled = fake_run(arms((4,), temperature=0.7), prompts(2, max_tokens=16, name="sampled"), world, repeats=60)
    plain = fake_run((AR,), prompts(10, max_tokens=300), world, kind="soak", seconds=400)
    soak = fake_run((K4,), prompts(10, max_tokens=300), world, kind="soak", seconds=1850)
    return joined(sweep, sampled), joined(plain, soak)


def joined(first: Run, second: Run) -> Run:
    """One run that goes on with what the second one measured."""
    end = max(each.started_at + each.duration for each in first.results)
    shift = end - second.results[0].started_at
    later = tuple(replace(each, started_at=each.started_at + shift) for each in second.results)
    ended = max(each.started_at + each.duration for each in later)
    return replace(
        first,
        head=replace(first.head, arms=first.head.arms + second.head.arms),
        results=first.results + later,
        host=fake_host(BEGAN, ended),
        notes=(Note(BEGAN, "begun"), Note(ended, "finished")),
    )


def judged(policy: GatesPolicy, runs: tuple[Run, Run | None], **asked: Any) -> Verdict:
    return evaluate(policy, *runs, **{"now": NOW, "arm": "k=4", **asked})


def result(gate: str, runs: tuple[Run, Run | None], **asked: Any) -> GateResult:
    """What one gate of a preset says."""
    policy = next(each for each in map(preset_policy, PRESETS) if gate in each.gates)
    alone = GatesPolicy(preset=None, validity=policy.validity, gates={gate: policy.gates[gate]})
    (found,) = judged(alone, runs, **asked).gates
    return found


def changed(run: Run, arm: str | None = None, **fields: Any) -> Run:
    """A run whose requests, or those of one arm, have other values; a function makes one of the request."""
    return replace(run, results=tuple(_changed(each, arm, fields) for each in run.results))


def _changed(request: Measured, arm: str | None, fields: dict[str, Any]) -> Measured:
    if arm is not None and request.arm != arm:
        return request
    return replace(request, **{key: value(request) if callable(value) else value for key, value in fields.items()})


def without(run: Run, takes: Callable[[Measured], bool]) -> Run:
    """A run without some of its requests."""
    return replace(run, results=tuple(each for each in run.results if not takes(each)))


def on_machine(run: Run, takes: Callable[[int, HostSample], bool] = lambda number, sample: True, **fields: Any) -> Run:
    """A run with other values in the samples of the machine that are taken, by their number."""
    return replace(
        run,
        host=tuple(
            replace(each, **{key: value(each) if callable(value) else value for key, value in fields.items()})
            if takes(number, each)
            else each
            for number, each in enumerate(run.host)
        ),
    )
