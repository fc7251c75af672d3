"""A sweep or a soak from beginning to end: models, manifest, files, telemetry, requests."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

from otel_specdecode.acceptance.book import Book
from otel_specdecode.acceptance.engines.interface import Engine, Models, Session, lengths
from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.frozen import conditions, differences, frozen_manifest
from otel_specdecode.acceptance.host_recorder import HostRecorder, host_sample
from otel_specdecode.acceptance.measuring import Job, Measurer, Witness, witnessed
from otel_specdecode.acceptance.prompt_files import describe, prompts_digest
from otel_specdecode.acceptance.prompts import Prompt
from otel_specdecode.acceptance.records import Arm, HostSample, Measured, Note, RunHead, RunKind
from otel_specdecode.acceptance.side_load import SideLoad
from otel_specdecode.acceptance.soak import Soak, SoakPlan
from otel_specdecode.acceptance.storage import holds_run, read_run
from otel_specdecode.acceptance.sweep import Clock, Levers, Sweep, job_id
from otel_specdecode.host.machine import this_machine
from otel_specdecode.host.readers import reader_for

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""What a run may be called: it is a label in telemetry, a part of file names, and in shell commands."""

REAL_CLOCK = Clock(time.monotonic, time.sleep)

Step = Callable[[float, float], None]

_PEAKS = ("peak_rss", "peak_footprint")


@dataclass(frozen=True, slots=True)
class Setting:
    """What sweeps and soaks have in common.

    Attributes:
        engine: The engine.
        models: What to load.
        prompts: What to ask.
        folder: Where the run is kept.
        run_id: Names the run.
        notes: What the user noted of the machine, by frozen.NOTES.
        resume: Whether an earlier run in the folder is gone on with.
        anyway: Whether that may be one of another manifest.
        command: How the run was asked for, to do it again; without the user's home.

    Raises:
        AcceptanceError: The run id cannot be one, or there is no prompt.
    """

    engine: Engine
    models: Models
    prompts: tuple[Prompt, ...]
    folder: Path
    run_id: str
    notes: Mapping[str, str] = field(default_factory=dict)
    resume: bool = False
    anyway: bool = False
    command: str = ""

    def __post_init__(self) -> None:
        check_run_id(self.run_id)
        if not self.prompts:
            raise AcceptanceError("there is no prompt to run.")


def new_run_id(now: datetime | None = None) -> str:
    """Return a name for a run: when it began, and four random hex digits."""
    moment = now or datetime.now(timezone.utc)
    return f"{moment:%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"


def check_run_id(run_id: str) -> str:
    """Return a run's name.

    Raises:
        AcceptanceError: It cannot be one.
    """
    if RUN_ID.fullmatch(run_id) is None:
        raise AcceptanceError(
            f"{run_id!r} cannot be a run id: letters, digits, '.', '_' and '-', at most 64, a letter or digit first."
        )
    return run_id


def notes_not_kept(folder: Path, notes: Mapping[str, str]) -> str:
    """Return why notes cannot go with a run that is resumed; empty where they are those that it has, or none."""
    noted = read_run(folder).head.conditions.get("notes")
    kept = noted if isinstance(noted, Mapping) else {}
    other = [name for name, value in notes.items() if value != kept.get(name, "")]
    if not other:
        return ""
    return (
        f"the notes of a run are those that it began with, and for {', '.join(other)} the one in {folder} has "
        f"{', '.join(f'{name}={kept[name]}' for name in other if name in kept) or 'none'}: leave such --note out, or "
        "begin another run without --resume, in another folder."
    )


def sweep(setting: Setting, levers: Levers, step: Step | None = None) -> bool:
    """Run a sweep, or what is left of it.

    Args:
        setting: What runs where.
        levers: What to try.
        step: Is told after each request how many ended, of how many.

    Returns:
        Whether it came to its end.

    Raises:
        AcceptanceError: It cannot be run; the text says what to do.
    """
    if levers.max_seconds is not None and levers.max_seconds <= levers.warm_up:
        raise AcceptanceError(
            f"the sweep may take {levers.max_seconds:g} s, and its warm-up alone takes {levers.warm_up:g} s: give it "
            "more time, or a shorter warm-up."
        )
    asked = {name: value for name, value in asdict(levers).items() if name not in ("warm_up", "max_seconds")}
    with _run(setting, "sweep", levers.arms(), asked, asdict(levers)) as (measurer, book):
        return Sweep(levers, setting.prompts, measurer, book, REAL_CLOCK, step).run()


def soak(setting: Setting, plan: SoakPlan, step: Step | None = None) -> None:
    """Run a soak.

    Args:
        setting: What runs where.
        plan: What to do.
        step: Is told after each request how many seconds are over, and of how many.

    Raises:
        AcceptanceError: It cannot be run; the text says what to do.
    """
    if setting.resume:
        raise AcceptanceError("a soak is one stretch, and is not resumed: begin one in another folder.")
    with _run(setting, "soak", plan.arms(), {}, asdict(plan)) as (measurer, book):
        Soak(plan, setting.prompts, measurer, book, REAL_CLOCK, step).run()


@contextmanager
def _run(
    setting: Setting, kind: RunKind, arms: tuple[Arm, ...], asked: Mapping[str, Any], options: Mapping[str, Any]
) -> Iterator[tuple[Measurer, Book]]:
    """Load, freeze, open the files, watch the machine; leave all of it as it was."""
    if not setting.resume and holds_run(setting.folder):
        raise AcceptanceError(f"{setting.folder} holds a run already: resume it with --resume, or name another folder.")
    if setting.resume and not holds_run(setting.folder):
        raise AcceptanceError(f"{setting.folder} holds no run to resume.")
    if setting.resume and (why := notes_not_kept(setting.folder, setting.notes)):
        raise AcceptanceError(why)
    run_id = read_run(setting.folder).head.run_id if setting.resume else setting.run_id
    alone: list[Measured] = []
    side_load = SideLoad()  # over the time that loading takes: of a moment it would be chance
    with witnessed(run_id) as witness:
        watch = None if setting.resume else partial(_run_alone, setting.prompts, witness, alone)
        session = setting.engine.load(setting.models, watch)
        try:
            began = host_sample(reader_for(), side_load.read())
            head = replace(_head(setting, kind, arms, run_id, session, options, began), alone=_memory(alone))
            changed = _changed(setting, head, asked) if setting.resume else []
            book = Book(setting.folder) if setting.resume else Book.begin(setting.folder, head, alone)
            host = HostRecorder(book.sample)
            try:
                if changed:
                    book.note(Note(book.now(), "changed", "; ".join(changed)))
                for arm in arms:
                    book.add_arm(arm)  # one that another run --anyway did not have
                host.start()
                yield Measurer(session, witness), book
            finally:
                host.stop()
                book.close()
            if host.failure is not None:
                raise _not_watched(host.failure)
        finally:
            session.close()


def _run_alone(prompts: Sequence[Prompt], witness: Witness, alone: list[Measured], session: Session) -> None:
    """Run one request of the longest prompt, as long as no draft is loaded: what memory it takes is the target's."""
    longest = max(prompts, key=session.count)
    job = Job(job_id("alone", longest.id), Arm(0), longest, 0, "warm_up")
    alone.append(Measurer(session, witness).run(job))


def _memory(alone: Sequence[Measured]) -> dict[str, int]:
    """Return what memory requests took, by the names of a run's head."""
    peaks = [(name, getattr(each, name)) for each in alone if each.error is None for name in _PEAKS]
    return {name: peak for name, peak in peaks if peak is not None}


def _not_watched(failure: Exception) -> AcceptanceError:
    if isinstance(failure, AcceptanceError):
        return failure
    return AcceptanceError(f"the machine could not be watched to the end ({type(failure).__name__}); results are kept.")


def _head(
    setting: Setting,
    kind: RunKind,
    arms: Sequence[Arm],
    run_id: str,
    session: Session,
    options: Mapping[str, Any],
    began: HostSample,
) -> RunHead:
    for arm in arms:
        session.pair(arm)  # says now which of them cannot be run
    tokens = lengths(session, setting.prompts)
    manifest = frozen_manifest(session, arms, setting.models, this_machine(), prompts_digest(setting.prompts))
    return RunHead(
        run_id=run_id,
        kind=kind,
        created_at=began.at,
        engine=setting.engine.name,
        manifest=manifest,
        conditions=conditions(began, setting.notes),
        arms=tuple(arms),
        prompts=tuple({**describe(each), "tokens": tokens[each.id]} for each in setting.prompts),
        options={**options, "command": setting.command} if setting.command else dict(options),
    )


def _changed(setting: Setting, head: RunHead, asked: Mapping[str, Any]) -> list[str]:
    """Return what is not the same as it was in the run that is resumed, if that may be."""
    before = read_run(setting.folder).head
    if before.kind != head.kind:
        raise AcceptanceError(f"{setting.folder} holds a {before.kind}, not a {head.kind}: name another folder.")
    found = differences(before.manifest, head.manifest)
    found += differences({name: before.options.get(name) for name in asked}, asked)
    if found and not setting.anyway:
        raise AcceptanceError(
            f"the run in {setting.folder} was of something else: {'; '.join(found)}. Begin another one, or say "
            "--anyway."
        )
    return found


def manifest_and_conditions(engine: Engine, models: Models, notes: Mapping[str, str]) -> dict[str, Any]:
    """Return the frozen `manifest` of models, with no prompts in it, and the `conditions`, each with its id.

    Args:
        engine: The engine.
        models: What to load.
        notes: What the user noted of the machine, by frozen.NOTES.

    Raises:
        AcceptanceError: They cannot be loaded, or not be told.
    """
    side_load = SideLoad()  # over the time that loading takes, as in a run
    arms = (Arm(0), *(Arm(1, label) for label in models.drafts))
    with witnessed(new_run_id()):
        session = engine.load(models)
        try:
            return {
                "manifest": frozen_manifest(session, arms, models, this_machine(), ""),
                "conditions": conditions(host_sample(reader_for(), side_load.read()), notes),
            }
        finally:
            session.close()
