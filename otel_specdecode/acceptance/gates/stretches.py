"""A run in its stretches: what one process measured without a break, and what the machine was like meanwhile."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from otel_specdecode.acceptance.figures import busy_times
from otel_specdecode.acceptance.records import Arm, HostSample, Measured, Run

DAY = 86_400.0
"""Seconds of one."""


CLOCKS_APART = 0.1
"""Seconds by which two clocks may differ over a few seconds though nobody set one: they are read in turn."""

JUST_BEFORE = 1.0
"""Seconds before a process says that it begins in which it may have read the machine."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """What was measured without a break.

    Attributes:
        began: When its process began, in seconds since the epoch; None if nothing tells.
        start, end: From the first request that counts to the end of the last, likewise.
        requests: Those that count, and those that failed.
        host: Samples of the machine, from the last one before the start to the first one after the end.
        before: Those of its process before the start, and the first one after it.
    """

    began: float | None
    start: float
    end: float
    requests: tuple[Measured, ...]
    host: tuple[HostSample, ...]
    before: tuple[HostSample, ...] = ()

    @property
    def warm_up(self) -> float | None:
        """Seconds from where its process began to its start, without those slept or by which the time was set ahead."""
        if self.began is None:
            return None
        skipped = ((b.at - a.at) - (b.monotonic - a.monotonic) for a, b in pairwise(self.before))
        return self.start - self.began - sum(gap for gap in skipped if gap > CLOCKS_APART)

    @property
    def neighbours(self) -> Iterator[tuple[HostSample, HostSample]]:
        """Each sample with the next one."""
        return pairwise(self.host)

    def longest_blind(self, knows: Callable[[HostSample], bool]) -> float:
        """Return the longest time between two samples that know something, the ends included, in seconds."""
        times = [each.at for each in self.host if knows(each)]
        times = [self.start, *times] if not times or times[0] > self.start else times
        times = [*times, self.end] if times[-1] < self.end else times
        return max((after - before for before, after in pairwise(times)), default=0.0)


def stretches(run: Run) -> tuple[Stretch, ...]:
    """Return the stretches of a run in which something was measured, in order."""
    begins = sorted(note.at for note in run.notes if note.what in ("begun", "resumed"))
    measured = sorted((each for each in run.results if each.phase == "measured"), key=lambda each: each.started_at)
    found = []
    for began, ended in zip([None, *begins], [*begins, None], strict=True):
        requests = tuple(
            each
            for each in measured
            if (began is None or each.started_at >= began) and (ended is None or each.started_at < ended)
        )
        if requests:
            start, end = requests[0].started_at, max(each.ended_at for each in requests)
            samples = _around(run.host, start, end)
            found.append(Stretch(began, start, end, requests, samples, _since(run.host, began, samples)))
    return tuple(found)


def longest(run: Run, arm: Arm, pause: float = math.inf) -> float:
    """Return for how many seconds an arm ran without a break, at most.

    Args:
        run: The run.
        arm: One of its arms.
        pause: More seconds than this without any request of the arm are a break, too.
    """
    found = 0.0
    for stretch in stretches(run):
        begun = until = math.nan
        for start, end in _busy(stretch, arm):
            if not start - until <= pause:  # nor is it where there is none before
                begun = start
            found, until = max(found, end - begun), end
    return found


def pauses(run: Run, arm: Arm, least: float) -> list[float]:
    """Return the times without any request of an arm, within its stretches, that are longer than so many seconds."""
    neighbours = (pair for stretch in stretches(run) for pair in pairwise(_busy(stretch, arm)))
    return [after[0] - before[1] for before, after in neighbours if after[0] - before[1] > least]


def _busy(stretch: Stretch, arm: Arm) -> list[tuple[float, float]]:
    return busy_times(each for each in stretch.requests if each.arm == arm.name)


def _since(
    host: tuple[HostSample, ...], began: float | None, samples: tuple[HostSample, ...]
) -> tuple[HostSample, ...]:
    """Return the samples of a process up to the second of those around its stretch. Its first may be a little older."""
    if began is None or not samples:
        return ()
    until = samples[1].at if len(samples) > 1 else samples[0].at
    return tuple(each for each in sorted(host, key=lambda each: each.at) if began - JUST_BEFORE <= each.at <= until)


def _around(host: tuple[HostSample, ...], start: float, end: float) -> tuple[HostSample, ...]:
    ordered = sorted(host, key=lambda each: each.at)
    before = sum(1 for each in ordered if each.at <= start)
    behind = next((number for number, each in enumerate(ordered) if each.at >= end), len(ordered))
    return tuple(ordered[max(before - 1, 0) : behind + 1])
