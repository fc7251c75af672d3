"""A soak: one arm decodes for a long time under a chosen load, after a shorter stretch without a draft."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from otel_specdecode.acceptance.book import Book
from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.measuring import Job
from otel_specdecode.acceptance.prompts import Prompt
from otel_specdecode.acceptance.records import Arm, Measured, Note, Phase
from otel_specdecode.acceptance.sweep import MOST_FAILURES, Clock, Runs, job_id
from otel_specdecode.acceptance.workers import run_jobs

Shape = Literal["steady", "poisson", "bursts"]

_LONGEST_SLEEP = 0.5
"""Seconds after which a thread that waits for a request's time sees that the soak is over."""


@dataclass(frozen=True, slots=True)
class Load:
    """How requests come.

    Attributes:
        shape: `steady`: each thread begins its next request when the one before has ended. `poisson`: requests begin at
            random, so many a minute in the mean. `bursts`: as many at once as there are threads, so often a minute. A
            request whose time comes while all threads are busy waits for one.
        per_minute: Requests, or bursts, a minute; 0 for `steady`.

    Raises:
        AcceptanceError: A shape has no pace that needs one.
    """

    shape: Shape = "steady"
    per_minute: float = 0.0

    def __post_init__(self) -> None:
        """Refuse a pace that is none."""
        if self.shape != "steady" and not self.per_minute > 0:
            raise AcceptanceError(f"a load of shape {self.shape} needs its requests, or bursts, a minute.")


@dataclass(frozen=True, slots=True)
class SoakPlan:
    """What a soak does.

    Attributes:
        arm: What runs.
        seconds: For how long, warm-up and the stretch without a draft not included.
        baseline_seconds: How long the arm's baseline runs before it.
        warm_up: Seconds of requests that do not count, before all.
        load: How requests come.
        seed: Of the order of prompts, and of the sampling: the n-th time that an arm runs a prompt takes the n-th seed
            from there, the same in both arms.
    """

    arm: Arm
    seconds: float
    baseline_seconds: float = 0.0
    warm_up: float = 0.0
    load: Load = Load()
    seed: int = 0

    def arms(self) -> tuple[Arm, ...]:
        """Return the arms in the order in which they run."""
        first = (self.arm.baseline,) if self.baseline_seconds and self.arm.speculative else ()
        return (*first, self.arm)


class Soak:
    """Runs a soak, once: what is interrupted is no longer one stretch."""

    def __init__(
        self,
        plan: SoakPlan,
        prompts: Sequence[Prompt],
        runs: Runs,
        book: Book,
        clock: Clock,
        step: Callable[[float, float], None] | None = None,
    ) -> None:
        """Prepare.

        Args:
            plan: What to do.
            prompts: What to ask; each as often as its weight says.
            runs: Makes the requests.
            book: The run's book.
            clock: The time.
            step: Is told after each request how many seconds are over, and of how many; None: nobody is.
        """
        self._plan = plan
        self._weights = [each.weight for each in prompts]
        # What is asked as often as it weighs weighs no more than others in figures.
        self._prompts = tuple(replace(each, weight=1.0) for each in prompts)
        self._runs = runs
        self._book = book
        self._clock = clock
        self._step = step
        self._random = random.Random(plan.seed)  # noqa: S311 - nothing secret
        self._number = 0
        self._asked: Counter[tuple[Phase, str, str]] = Counter()
        self._failures = 0
        self._began = clock.now()

    def run(self) -> None:
        """Run it.

        Raises:
            AcceptanceError: Requests fail one after the other, or the results cannot be written.
        """
        plan, book = self._plan, self._book
        book.note(Note(book.now(), "begun"))
        try:
            for arm in plan.arms():
                self._stretch(arm, plan.warm_up / len(plan.arms()), "warm_up", Load())
            if plan.arm.baseline in plan.arms() and plan.arm.speculative:
                self._stretch(plan.arm.baseline, plan.baseline_seconds, "measured", plan.load)
            self._stretch(plan.arm, plan.seconds, "measured", plan.load)
        except KeyboardInterrupt:
            book.note(Note(book.now(), "interrupted", "by hand"))
            raise
        book.note(Note(book.now(), "finished"))

    def _stretch(self, arm: Arm, seconds: float, phase: Phase, load: Load) -> None:
        """Run an arm for so long; a request that has begun is let come to its end."""
        stopped = threading.Event()
        arrivals = self._arrivals(arm, phase, load, seconds, stopped)
        run_jobs(arrivals, arm.concurrency, self._make, self._count, stopped)

    def _arrivals(self, arm: Arm, phase: Phase, load: Load, seconds: float, stopped: threading.Event) -> Iterator[Job]:
        """Yield requests as their time comes, and one at least; of those that count, one as the time is over.

        So a stretch is as long as was asked for by its requests alone. Those whose time came while all threads were
        busy are left out where the time is over.
        """
        until = self._clock.now() + seconds
        for number, due in enumerate(self._times(arm, load, until)):
            self._wait(due, stopped)
            if number and self._clock.now() >= until:
                break
            yield self._job(arm, phase)
        self._wait(until, stopped)
        if phase == "measured":
            yield self._job(arm, phase)

    def _wait(self, until: float, stopped: threading.Event) -> None:
        while (left := until - self._clock.now()) > 0 and not stopped.is_set():
            self._clock.sleep(min(left, _LONGEST_SLEEP))

    def _times(self, arm: Arm, load: Load, until: float) -> Iterator[float]:
        """Yield when requests are due."""
        due = self._clock.now()
        yield due
        while True:
            if load.shape == "poisson":
                due += self._random.expovariate(load.per_minute / 60)
            elif load.shape == "bursts":
                yield from [due] * (arm.concurrency - 1)
                due += 60 / load.per_minute
            else:
                due = self._clock.now()
            if due >= until:
                return
            yield due

    def _job(self, arm: Arm, phase: Phase) -> Job:
        self._number += 1
        (prompt,) = self._random.choices(self._prompts, self._weights)
        name = job_id("soak", self._book.head.run_id, str(self._number))
        repeat = self._asked[phase, arm.name, prompt.id]
        self._asked[phase, arm.name, prompt.id] += 1
        return Job(name, arm, prompt, repeat, phase, self._plan.seed + repeat)

    def _make(self, job: Job, thread: int) -> Measured:
        """Make a request and keep what came of it, on the thread that made it: whatever ends the others meanwhile."""
        result = self._runs.run(job, thread)
        self._book.add(result)
        return result

    def _count(self, result: Measured) -> None:
        self._failures = 0 if result.error is None else self._failures + 1
        if self._failures >= MOST_FAILURES:
            raise AcceptanceError(
                f"{MOST_FAILURES} requests of {result.arm} failed one after the other, the last with {result.error}."
            )
        if self._step is not None:
            plan = self._plan
            total = plan.warm_up + plan.seconds + (plan.baseline_seconds if plan.arm.speculative else 0.0)
            self._step(self._clock.now() - self._began, total)
