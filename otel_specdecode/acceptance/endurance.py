"""What a long run does that a short one does not: memory that grows without bound, and a machine that slows down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from otel_specdecode.acceptance.records import Arm, HostSample, Run
from otel_specdecode.acceptance.statistics import Estimate, slope
from otel_specdecode.thresholds import thresholds

HOUR = 3600.0
THROTTLED = ("serious", "critical")
"""Thermal states in which a machine slows down."""

Word = Literal["yes", "no", "too short to tell"]


@dataclass(frozen=True, slots=True)
class Trend:
    """How something went over a run.

    Attributes:
        of: `resident memory`, `footprint` or `time per token`.
        per_hour: Its slope, in bytes or seconds an hour; None where too few readings tell.
        start: What it was at first, by the line through all: bytes or seconds.
        rose: By what share of the start it rose over the run; None where that is not known.
        goes_up: Whether its rise is more than noise, and enough to matter.
    """

    of: str
    per_hour: Estimate | None
    start: float | None
    rose: float | None
    goes_up: Word


@dataclass(frozen=True, slots=True)
class Endurance:
    """What a run says of one arm over time.

    Attributes:
        arm: The arm.
        seconds: From its first request to the end of its last.
        memory: The process's footprint where the system tells it, else its resident memory.
        slowing: Time per token of its requests.
        throttled_seconds: Seconds in a thermal state that slows a machine down; None where no sample knows it.
    """

    arm: Arm
    seconds: float
    memory: Trend
    slowing: Trend
    throttled_seconds: float | None

    @property
    def grows(self) -> Word:
        """Whether memory grows without bound, as far as the run can tell."""
        return self.memory.goes_up

    @property
    def throttles(self) -> Word:
        """Whether the machine slows down: it says so, or each token takes ever longer."""
        return "yes" if self.throttled_seconds else self.slowing.goes_up


def endurance(run: Run, arm: Arm) -> Endurance | None:
    """Return what a run says of an arm over time; None if it has no request of it.

    Slopes are Theil and Sen's with their 95 % interval. Memory is judged after the first quarter of the time, in which
    caches fill; it goes up where even the lower end of the interval makes a rise that matters. By what share a rise
    matters, and how long a run must be, is in thresholds.toml under `endurance`.
    """
    requests = run.of(arm)
    if not requests:
        return None
    begun = min(each.started_at for each in requests)
    ended = max(each.ended_at for each in requests)
    host = [each for each in run.host if begun <= each.at <= ended]
    settled = [each for each in host if each.at >= begun + (ended - begun) / 4]
    timed = [(each.started_at - begun, each.time_per_token) for each in requests if each.time_per_token]
    return Endurance(
        arm=arm,
        seconds=ended - begun,
        memory=_memory(settled, begun),
        slowing=_trend("time per token", timed, "slower"),
        throttled_seconds=_throttled(host),
    )


def _memory(samples: Sequence[HostSample], begun: float) -> Trend:
    footprints = [(each.at - begun, float(each.footprint)) for each in samples if each.footprint is not None]
    if footprints:
        return _trend("footprint", footprints, "growth")
    resident = [(each.at - begun, float(each.rss)) for each in samples if each.rss is not None]
    return _trend("resident memory", resident, "growth")


def _trend(of: str, points: Sequence[tuple[float, float]], bound: str) -> Trend:
    bounds = thresholds()["endurance"]
    times, values = [at for at, _ in points], [value for _, value in points]
    found = slope(_thinned(times), _thinned(values))
    if found is None or found.low is None or found.high is None:
        return Trend(of, None, None, None, "too short to tell")
    first = min(times)
    lasted = max(times) - first
    ordered = sorted(value - found.value * (at - first) for at, value in points)
    start = ordered[len(ordered) // 2]
    certain = found.low * lasted / start if start > 0 else 0.0
    word: Word = "yes" if certain > bounds[bound] else "no"
    if word == "no" and lasted < bounds["seconds"]:
        word = "too short to tell"
    per_hour = Estimate(found.value * HOUR, found.low * HOUR, found.high * HOUR, len(points))
    return Trend(of, per_hour, start, found.value * lasted / start if start > 0 else None, word)


def _thinned(values: Sequence[float]) -> list[float]:
    """Return some thousand values, evenly spread: a slope over all pairs of more takes memory and tells no more."""
    step = max(len(values) // 1_000, 1)
    return list(values[::step])


def _throttled(host: Sequence[HostSample]) -> float | None:
    if not any(each.thermal_state != "unknown" for each in host):
        return None
    return sum(after.at - before.at for before, after in pairwise(host) if before.thermal_state in THROTTLED)
