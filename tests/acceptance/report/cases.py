"""Reports of runs that no engine made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from otel_specdecode.acceptance.gates.policy_file import preset_policy
from otel_specdecode.acceptance.gates.verdict import Verdict, evaluate
from otel_specdecode.acceptance.records import Measured, Run
from otel_specdecode.acceptance.report.cost import Rates
from otel_specdecode.acceptance.report.facts import Report, gather
from otel_specdecode.acceptance.report.page import page
from otel_specdecode.acceptance.storage import RunWriter, begin
from tests.acceptance.fakes import BEGAN, World, arms, fake_run, prompts

WORLD = World(accept=0.8, draft_step=0.004)
NOW = BEGAN + 9000
HOSTILE = '<script>alert("$x$")</script>|[a](b)`&'


@cache
def sweep(world: World = WORLD) -> Run:
    """A sweep of k = 2 and k = 4 over prompts of two tiers and two kinds."""
    asked = (*prompts(6, checked=True), *(replace(each, kind="summary") for each in prompts(6, "mid", checked=True)))
    return fake_run(arms((2, 4)), asked, world)


@cache
def at_once(*levels: int) -> Run:
    """A sweep with so many requests at once."""
    every = tuple(arm for level in levels for arm in arms((2, 4), concurrency=level))
    return fake_run(every, prompts(6, checked=True), WORLD)


@cache
def soak() -> Run:
    return fake_run(arms((4,)), prompts(4, max_tokens=200), WORLD, kind="soak", seconds=100)


def verdict_of(run: Run, beside: Run | None = None) -> Verdict:
    return evaluate(preset_policy("balanced"), run, beside, now=NOW)


def report_of(run: Run, beside: Run | None = None, verdict: Verdict | None = None, **said: Any) -> Report:
    evidence = {run.head.run_id: "ab" * 32}
    return gather(run, beside, verdict or verdict_of(run, beside), **{"evidence": evidence, "made_at": NOW, **said})


@cache
def good() -> Report:
    """A report of a sweep and a soak, with what an hour costs."""
    return report_of(sweep(), soak(), rates=Rates(0.12, 1.2, 110))


def changed(run: Run, change: Callable[[Measured], Measured]) -> Run:
    return replace(run, results=tuple(map(change, run.results)))


def hostile() -> Run:
    """A run in whose folder somebody wrote what a page, a spreadsheet or a table takes for its own."""
    arm = replace(sweep().head.arms[1], draft=f"={HOSTILE}")
    names = {sweep().head.arms[1].name: arm.name}
    head = replace(
        sweep().head,
        run_id=f"=cmd {HOSTILE}",
        arms=(sweep().head.arms[0], arm),
        manifest={"id": HOSTILE, "target": {"name": f"/Users/somebody/{HOSTILE}"}},
        conditions={"notes": {"ambient": HOSTILE}},
        options={"command": f"otel-specdecode sweep --model /home/somebody/{HOSTILE}"},
    )
    kept = tuple(each for each in sweep().results if each.arm in {"ar", *names})
    renamed = tuple(replace(each, arm=names.get(each.arm, each.arm)) for each in kept)
    notes = tuple(replace(note, why=HOSTILE) for note in sweep().notes)
    return replace(sweep(), head=head, results=renamed, notes=notes, faults=(f"results.jsonl:3: {HOSTILE}",))


@cache
def good_page() -> str:
    return page(good())


@cache
def hostile_page() -> str:
    return page(report_of(hostile()))


def written(run: Run, folder: Path) -> Path:
    """The folder of a run."""
    begin(folder, run.head)
    writer = RunWriter(folder)
    for line in (*run.results, *run.host, *run.notes):
        writer.add(line)
    writer.close()
    return folder
