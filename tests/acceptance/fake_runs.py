"""Requests that no engine makes, on a clock that they move: what a sweep or a soak is run on without one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from otel_specdecode.acceptance.book import Book
from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.measuring import Job
from otel_specdecode.acceptance.records import Arm, Measured, RunHead, RunKind
from otel_specdecode.acceptance.storage import begin, holds_run
from otel_specdecode.acceptance.sweep import Clock
from tests.acceptance.fakes import BEGAN, MANIFEST, World, fake_request


@dataclass
class FakeRuns:
    """Makes requests in a world.

    Attributes:
        world: What is true there.
        worlds: What is true for some arms instead, by their name.
        before: Is called before each request.
        asked: The jobs that were run, in the order they began.
    """

    world: World = field(default_factory=World)
    worlds: dict[str, World] = field(default_factory=dict)
    before: Callable[[Job], None] | None = None
    seconds: float = BEGAN
    asked: list[Job] = field(default_factory=list)
    threads: set[int] = field(default_factory=set)
    slept: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._moving = threading.Lock()
        self.clock = Clock(self.now, self.sleep)

    def run(self, job: Job, thread: int = 0) -> Measured:
        with self._moving:
            self.asked.append(job)
            self.threads.add(thread)
            if self.before is not None:
                self.before(job)
            world = self.worlds.get(job.arm.name, self.world)
            made = fake_request(job.arm, job.prompt, job.repeat, world, self.seconds)
            self.seconds += made.duration / job.arm.concurrency
        return replace(made, id=job.id, phase=job.phase)

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds


class Overlapping(FakeRuns):
    """Of two requests at once one fails the run, and the other ends only then.

    Attributes:
        ended: Ids of the requests that ended.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ended: set[str] = set()
        self._failed = threading.Event()

    def run(self, job: Job, thread: int = 0) -> Measured:
        if job.phase == "measured" and thread == 1:
            self._failed.set()
            raise AcceptanceError("telemetry is gone")
        made = super().run(job, thread)
        if job.phase == "measured":
            self._failed.wait(30)
        self.ended.add(made.id)
        return made


def open_book(folder: Path, runs: FakeRuns, arms: tuple[Arm, ...], kind: RunKind = "sweep") -> Book:
    """Return the book of a run in a folder, which is made where there is none."""
    if not holds_run(folder):
        begin(folder, RunHead("fake-run", kind, BEGAN, "llama_cpp", MANIFEST, {"id": "fedcba9876543210"}, arms, ()))
    return Book(folder, runs.now)
