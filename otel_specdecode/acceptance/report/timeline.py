"""A run over time, in windows: what its requests did, and how the machine was."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from otel_specdecode.acceptance.figures import MICROSECONDS
from otel_specdecode.acceptance.records import Arm, HostSample, Measured, Run

STEPS = (10, 15, 30, 60, 120, 300, 600, 1800, 3600)
"""Seconds that a window may have: in each of them is a sample of the machine, which is read every 5 s."""

_MOST_WINDOWS = 40
_MOMENT = 1e-3  # for a request without decode time; the clock of the epoch has no finer steps than 1e-6
PRESSURES = ("normal", "warn", "critical")
HEATS = ("nominal", "fair", "serious", "critical")


@dataclass(frozen=True, slots=True)
class ArmWindow:
    """One arm in one window. A request's counts are spread evenly over its decode time; None where there was none.

    Attributes:
        tokens_per_second: Emitted, over the window's time on the clock.
        accept_rate: Accepted over compared tokens.
        rollbacks_per_minute: Of decode time; None for an autoregressive arm.
        p50, p95, p99: Duration of the decode passes that ended in the window, in seconds.
    """

    tokens_per_second: float | None
    accept_rate: float | None
    rollbacks_per_minute: float | None
    p50: float | None
    p95: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class HostWindow:
    """The machine in one window: the highest of each; None where nothing told.

    Attributes:
        rss, footprint, swap_used: Bytes.
        memory_pressure, thermal_state: The worst; None if unknown.
    """

    rss: int | None
    footprint: int | None
    swap_used: int | None
    memory_pressure: str | None
    thermal_state: str | None


@dataclass(frozen=True, slots=True)
class Timeline:
    """A run in windows of one length; all sequences are as long as `at`.

    Attributes:
        run_id: Of the run.
        begun: Seconds since the epoch.
        seconds: Length of a window.
        at: Seconds from the begin to the middle of each window.
        arms: Each arm that has requests.
        host: The machine.
    """

    run_id: str
    begun: float
    seconds: float
    at: tuple[float, ...]
    arms: tuple[tuple[Arm, tuple[ArmWindow, ...]], ...]
    host: tuple[HostWindow, ...]


def timeline(run: Run) -> Timeline | None:
    """Return a run over time, its warm-up left out; None without a request that counts."""
    if not run.measured:
        return None
    begun = min(each.started_at for each in run.measured)
    lasted = max(each.ended_at for each in run.measured) - begun
    step = next((each for each in STEPS if lasted / each <= _MOST_WINDOWS), STEPS[-1])
    # A last window of which hardly anything is there would look like a drop.
    edges = begun + step * np.arange(max(round(lasted / step), 1) + 1)
    return Timeline(
        run_id=run.head.run_id,
        begun=begun,
        seconds=step,
        at=tuple(float(edge) - begun + step / 2 for edge in edges[:-1]),
        arms=tuple((arm, _arm_windows(arm, run.of(arm), edges)) for arm in run.head.arms if run.of(arm)),
        host=tuple(_host_window(run.host, low, low + step) for low in edges[:-1]),
    )


def _arm_windows(arm: Arm, requests: Sequence[Measured], edges: np.ndarray) -> tuple[ArmWindow, ...]:
    sums = {
        name: sum((_spread(each, take(each), edges) for each in requests), np.zeros(len(edges) - 1))
        for name, take in _COUNTS.items()
    }
    ends = np.concatenate([_pass_ends(each) for each in requests])
    passes = np.concatenate([np.asarray(each.passes.microseconds, dtype=float) for each in requests]) / MICROSECONDS
    step = float(edges[1] - edges[0])
    found = []
    for number, low in enumerate(edges[:-1]):
        inside = passes[(ends >= low) & (ends < low + step)]
        seconds, compared = sums["seconds"][number], sums["compared"][number]
        quantiles = [float(value) for value in np.quantile(inside, (0.5, 0.95, 0.99))] if len(inside) else [None] * 3
        found.append(
            ArmWindow(
                tokens_per_second=float(sums["tokens"][number]) / step if sums["tokens"][number] > 0 else None,
                accept_rate=float(sums["accepted"][number] / compared) if compared > 0 else None,
                rollbacks_per_minute=float(sums["rollbacks"][number] * 60 / seconds)
                if seconds > 0 and arm.speculative
                else None,
                p50=quantiles[0],
                p95=quantiles[1],
                p99=quantiles[2],
            )
        )
    return tuple(found)


_COUNTS: dict[str, Callable[[Measured], float]] = {
    "tokens": lambda each: each.output_tokens,
    "accepted": lambda each: each.accepted,
    "compared": lambda each: each.compared,
    "rollbacks": lambda each: each.rollbacks,
    "seconds": lambda each: each.decode or 0.0,
}


def _spread(request: Measured, count: float, edges: np.ndarray) -> np.ndarray:
    """Return a request's count by window, spread evenly over its decode time."""
    begin = request.ended_at - min(request.decode or 0.0, request.duration)
    end = max(request.ended_at, begin + _MOMENT)
    overlap = np.clip(np.minimum(edges[1:], end) - np.maximum(edges[:-1], begin), 0, None)
    spread: np.ndarray = overlap * count / (end - begin)
    return spread


def _pass_ends(request: Measured) -> np.ndarray:
    """Return when each pass ended: the last with the request, each other one by what came after it."""
    lengths = np.asarray(request.passes.microseconds, dtype=float) / MICROSECONDS
    ends: np.ndarray = request.ended_at - (lengths.sum() - np.cumsum(lengths))
    return ends


def _host_window(samples: Sequence[HostSample], low: float, high: float) -> HostWindow:
    inside = [each for each in samples if low <= each.at < high]
    return HostWindow(
        rss=_highest(each.rss for each in inside),
        footprint=_highest(each.footprint for each in inside),
        swap_used=_highest(each.swap_used for each in inside),
        memory_pressure=_worst((each.memory_pressure for each in inside), PRESSURES),
        thermal_state=_worst((each.thermal_state for each in inside), HEATS),
    )


def _highest(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _worst(states: Iterable[str], order: Sequence[str]) -> str | None:
    return max((state for state in states if state in order), key=order.index, default=None)
