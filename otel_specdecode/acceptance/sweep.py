"""A sweep: the autoregressive baseline first, then one lever at a time, interleaved, safe to interrupt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Protocol

from otel_specdecode.acceptance.book import Book
from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.figures import in_tier, tier_of
from otel_specdecode.acceptance.knee import knee
from otel_specdecode.acceptance.measuring import Job
from otel_specdecode.acceptance.prompts import Prompt
from otel_specdecode.acceptance.records import Arm, Measured, Note, Run
from otel_specdecode.acceptance.workers import run_jobs
from otel_specdecode.thresholds import thresholds

MOST_FAILURES = 3
"""Requests of one arm that may fail in a row before the run ends: the rest would too."""


class Runs(Protocol):
    """Makes one request."""

    def run(self, job: Job, thread: int = 0) -> Measured:
        """Return what came of it."""


@dataclass(frozen=True, slots=True)
class Levers:
    """What a sweep tries.

    Attributes:
        draft_lengths: Values of k.
        drafts: Labels of the drafts. The first one is swept; the others are tried at the best draft length.
        temperatures: Tried at the best draft length, beside greedy decoding.
        top_ks: Likewise, at the first of the temperatures.
        concurrency: Requests at once; the draft lengths are tried at each level.
        repeats: How often each arm runs each prompt.
        warm_up: Seconds, before the first request that counts, of requests that do not.
        cool_down: Seconds between two requests that count; where several run at once, between two groups of them.
        max_seconds: After which no further request begins, or group of those that run at once; None: no limit.
        seed: Of the sampling; the n-th repeat takes the n-th seed from there, the same in all arms.
        stop_below: Longer drafts are not tried after some lengths in a row with a lower accept rate.
        tune_above: Other levers are tried where every context tier accepts as much at the best draft length.

    Raises:
        AcceptanceError: There is no draft, draft length or number of requests at once, or one below 1.
    """

    draft_lengths: tuple[int, ...]
    drafts: tuple[str, ...] = ("",)
    temperatures: tuple[float, ...] = ()
    top_ks: tuple[int, ...] = ()
    concurrency: tuple[int, ...] = (1,)
    repeats: int = 3
    warm_up: float = 0.0
    cool_down: float = 0.0
    max_seconds: float | None = None
    seed: int = 0
    stop_below: float = field(default_factory=lambda: float(thresholds()["sweep"]["stop_accept_rate"]))
    tune_above: float = field(default_factory=lambda: float(thresholds()["sweep"]["tuning_accept_rate"]))

    def __post_init__(self) -> None:
        """Refuse what cannot be swept."""
        if not self.draft_lengths or min(self.draft_lengths) < 1:
            raise AcceptanceError("a sweep needs draft lengths, of 1 or more; the target alone runs in any case.")
        if not self.concurrency or min(self.concurrency) < 1:
            raise AcceptanceError("a sweep needs numbers of requests at once, of 1 or more.")
        if not self.drafts:
            raise AcceptanceError("a sweep needs a draft to compare with the target alone.")

    def arms(self) -> tuple[Arm, ...]:
        """Return the arms that the sweep begins with."""
        return tuple(arm for level in self.concurrency for arm in self.arms_at(level))

    def arms_at(self, level: int) -> tuple[Arm, ...]:
        """Return the baseline and the draft lengths, at so many requests at once."""
        lengths = sorted(set(self.draft_lengths))
        return (Arm(0, concurrency=level), *(Arm(k, self.drafts[0], concurrency=level) for k in lengths))


@dataclass(frozen=True, slots=True)
class Clock:
    """Time as a run sees it.

    Attributes:
        now: Seconds, monotonic.
        sleep: Waits so many seconds.
    """

    now: Callable[[], float]
    sleep: Callable[[float], None]


class _OutOfTimeError(Exception):
    """The time that the sweep may take is over."""


class Sweep:
    """Runs what is not yet done of a sweep."""

    def __init__(
        self,
        levers: Levers,
        prompts: Sequence[Prompt],
        runs: Runs,
        book: Book,
        clock: Clock,
        step: Callable[[int, int], None] | None = None,
    ) -> None:
        """Prepare.

        Args:
            levers: What to try.
            prompts: What to ask; at least one.
            runs: Makes the requests.
            book: The run's book.
            clock: The time.
            step: Is told after each request how many ended and how many there are to be; None: nobody is.
        """
        self._levers = levers
        self._prompts = tuple(prompts)
        self._runs = runs
        self._book = book
        self._clock = clock
        self._step = step
        self._failures: Counter[str] = Counter()
        self._measured = False
        self._done = 0
        self._total = len(levers.arms()) * len(self._prompts) * levers.repeats
        self._began = clock.now()

    def run(self) -> bool:
        """Run it.

        Returns:
            Whether it came to its end; else the time was over.

        Raises:
            AcceptanceError: Requests fail one after the other, or the results cannot be written.
        """
        book = self._book
        book.note(Note(book.now(), "resumed" if book.begun else "begun"))
        try:
            self._warm_up()
            for level in self._levers.concurrency:
                self._draft_lengths(level)
            self._other_levers()
        except _OutOfTimeError:
            book.note(Note(book.now(), "interrupted", "the time that it may take was over"))
            return False
        except KeyboardInterrupt:
            book.note(Note(book.now(), "interrupted", "by hand"))
            raise
        book.note(Note(book.now(), "finished"))
        return True

    def _warm_up(self) -> None:
        """Run each arm once, and go on until the time is over; its requests are told from those of other processes."""
        arms = self._levers.arms()
        until = self._clock.now() + self._levers.warm_up
        stamp, number = f"{self._book.now():.3f}", 0
        while number < len(arms) or self._clock.now() < until:
            self._check_time()
            arm, prompt = arms[number % len(arms)], self._prompts[number % len(self._prompts)]
            jobs = [
                Job(job_id("warm up", stamp, str(number), str(each)), arm, prompt, number, "warm_up", self._levers.seed)
                for each in range(arm.concurrency)
            ]
            run_jobs(jobs, arm.concurrency, self._make, self._count)
            number += 1

    def _draft_lengths(self, level: int) -> None:
        """Run the baseline, then one draft length after the other as long as it is worth it; then all in turns."""
        baseline, *lengths = self._levers.arms_at(level)
        self._group([baseline], self._prompts, 0)
        worth: list[Arm] = []
        for arm in lengths:
            self._group([arm], self._prompts, 0)
            worth.append(arm)
            why = self._hopeless(worth)
            if why is not None and arm != lengths[-1]:
                self._book.note(Note(self._book.now(), "branch_stopped", why), once=True)
                self._total -= (len(lengths) - len(worth)) * len(self._prompts) * self._levers.repeats
                break
        self._in_turns([baseline, *worth], range(1, self._levers.repeats))

    def _hopeless(self, arms: Sequence[Arm]) -> str | None:
        """Return why longer drafts are not tried: so many lengths in a row had too low an accept rate."""
        steps, bound = thresholds()["sweep"]["stop_steps"], self._levers.stop_below
        if len(arms) < steps:
            return None
        last, run = arms[-steps:], self._book.run()
        rates = [_accept_rate(_first_time(run.of(arm))) for arm in last]
        low = [rate for rate in rates if rate is not None and rate < bound]
        if len(low) < steps:
            return None
        told = ", ".join(f"{arm.name} {rate:.2f}" for arm, rate in zip(last, low, strict=True))
        return f"accept rate below {bound:g} in {steps} steps in a row: {told}"

    def _other_levers(self) -> None:
        run = self._book.run()
        best = self._best(run)
        levers = [] if best is None else self._lever_arms(best)
        if best is None or not levers:
            return
        why = self._poor_bucket(run.of(best), best)
        if why is not None:
            self._book.note(Note(self._book.now(), "tuning_stopped", why), once=True)
            return
        for lever in levers:
            for arm in lever:
                self._book.add_arm(arm)
            added = len(set(lever) - set(self._levers.arms()))
            self._total += added * len(self._prompts) * self._levers.repeats
            self._in_turns(lever, range(self._levers.repeats))

    def _best(self, run: Run) -> Arm | None:
        level = self._levers.concurrency[0]
        best = knee(run, self._levers.arms_at(level)).best
        return None if best is None else best.arm

    def _lever_arms(self, best: Arm) -> list[list[Arm]]:
        """Return, lever by lever, the arms that differ from the best one in it, with their baselines."""
        levers = self._levers
        first = levers.temperatures[0] if levers.temperatures else 0.0
        arms = (
            *(replace(best, temperature=value) for value in levers.temperatures),
            *(replace(best, temperature=first, top_k=value) for value in levers.top_ks),
            *(replace(best, draft=label) for label in levers.drafts[1:]),
        )
        return [[arm.baseline, arm] for arm in arms]

    def _poor_bucket(self, requests: Sequence[Measured], best: Arm) -> str | None:
        """Return why nothing more is tuned: a context bucket accepts too little even at the best draft length."""
        bound = self._levers.tune_above
        for tier in dict.fromkeys(map(tier_of, requests)):
            rate = _accept_rate(list(filter(in_tier(tier), requests)))
            if rate is not None and rate < bound:
                return f"accept rate {rate:.2f} in {tier} contexts at {best.name}, below {bound:g}"
        return None

    def _in_turns(self, arms: Sequence[Arm], repeats: Iterable[int]) -> None:
        """Run all arms prompt by prompt, another one first each time: what the machine does then, it does to all."""
        turn = 0
        for repeat in repeats:
            for prompts in self._parts(arms[0].concurrency):
                shift = turn % len(arms)
                self._group([*arms[shift:], *arms[:shift]], prompts, repeat)
                turn += 1

    def _parts(self, level: int) -> Iterator[Sequence[Prompt]]:
        """Yield the prompts one by one; all of them where several run at once, which one would not fill."""
        if level > 1:
            yield self._prompts
            return
        for prompt in self._prompts:
            yield (prompt,)

    def _group(self, arms: Sequence[Arm], prompts: Sequence[Prompt], repeat: int) -> None:
        for arm in arms:
            jobs = [self._job(arm, prompt, repeat) for prompt in prompts]
            todo = [job for job in jobs if not self._book.has(job.id)]
            self._done += len(jobs) - len(todo)
            if not todo:
                continue
            for together in [todo] if arm.concurrency > 1 else [[job] for job in todo]:
                self._cool_down()
                run_jobs(together, arm.concurrency, self._make, self._count)

    def _cool_down(self) -> None:
        """Wait as long as there is to be between two requests; not before the first, nor where none may follow."""
        wait = self._levers.cool_down if self._measured else 0.0
        self._check_time(wait)
        if wait:
            self._clock.sleep(wait)
        self._measured = True

    def _check_time(self, wait: float = 0.0) -> None:
        """Raise where the time is over once so many seconds more have passed."""
        limit = self._levers.max_seconds
        if limit is not None and self._clock.now() + wait - self._began >= limit:
            raise _OutOfTimeError

    def _job(self, arm: Arm, prompt: Prompt, repeat: int) -> Job:
        return Job(
            job_id(arm.name, prompt.id, str(repeat)), arm, prompt, repeat, "measured", self._levers.seed + repeat
        )

    def _make(self, job: Job, thread: int) -> Measured:
        """Make a request and keep what came of it, on the thread that made it: whatever ends the others meanwhile."""
        result = self._runs.run(job, thread)
        self._book.add(result)
        return result

    def _count(self, result: Measured) -> None:
        self._failures[result.arm] = 0 if result.error is None else self._failures[result.arm] + 1
        if self._failures[result.arm] >= MOST_FAILURES:
            raise AcceptanceError(
                f"{MOST_FAILURES} requests of {result.arm} failed one after the other, the last with {result.error}. "
                "`otel-specdecode doctor --model ... --draft ...` says what is wrong with a pair."
            )
        if result.phase == "measured":
            self._done += 1
            if self._step is not None:
                self._step(self._done, self._total)


def job_id(*parts: str) -> str:
    """Return the id of a request: the same for the same parts, and short enough for a session id."""
    return sha256("\n".join(parts).encode()).hexdigest()[:16]


def _first_time(requests: Sequence[Measured]) -> list[Measured]:
    """Return those that a decision was first taken by: a sweep that is resumed has more, and decides the same."""
    return [each for each in requests if each.repeat == 0]


def _accept_rate(requests: Sequence[Measured]) -> float | None:
    """Return the accept rate of requests, None where they are too few to tell."""
    if sum(each.rounds for each in requests) < thresholds()["samples"]["rounds"]:
        return None
    compared = sum(each.compared for each in requests)
    return sum(each.accepted for each in requests) / compared if compared else None
