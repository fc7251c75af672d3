"""Which charts a report has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from otel_specdecode.acceptance.records import Arm
from otel_specdecode.acceptance.report import wording
from otel_specdecode.acceptance.report.charts import MOST_SERIES, Chart, Series
from otel_specdecode.acceptance.report.rows import Row
from otel_specdecode.acceptance.report.timeline import HEATS, PRESSURES, ArmWindow, HostWindow, Timeline
from otel_specdecode.acceptance.report.wording import Number
from otel_specdecode.acceptance.statistics import Estimate

_GIB = 2**30
_MS = 1000.0
_K = "draft length k"


def curves(rows: Sequence[Row]) -> tuple[Chart, ...]:
    """Return what changes with the draft length: a line for each way to run that differs in nothing else."""
    return (
        _curve(rows, "Decode speed", "tokens/s", lambda row: row.figures.tokens_per_second),
        _curve(rows, "Speed-up over autoregressive", "times", lambda row: row.speed_up, reference=(1.0, "as fast")),
        _curve(rows, "Time per token, p95", "ms", lambda row: row.figures.time_per_token_p95, scale=_MS),
        _curve(rows, "Accept rate", "accepted / compared", lambda row: row.figures.accept_rate),
        _curve(
            rows,
            "Rollbacks",
            "per minute of decoding",
            lambda row: row.figures.rollbacks_per_minute if row.arm.speculative else None,
        ),
        _curve(rows, "Peak resident memory", "GiB", lambda row: row.figures.peak_rss, scale=1 / _GIB),
    )


def left_out(rows: Sequence[Row]) -> int:
    """Return how many lines the curves have no room for."""
    return max(len(_families(rows)) - MOST_SERIES, 0)


def lines(found: Timeline) -> tuple[Chart, ...]:
    """Return what a run's windows show."""
    return (
        _over_time(found, "Tokens over time", "tokens/s", lambda window: window.tokens_per_second),
        _over_time(found, "Accept rate over time", "accepted / compared", lambda window: window.accept_rate),
        _over_time(found, "Rollbacks over time", "per minute of decoding", lambda window: window.rollbacks_per_minute),
        *_rounds_over_time(found),
        _machine(found, "Memory over time", {"resident": lambda w: w.rss, "footprint": lambda w: w.footprint}),
        _machine(found, "Swap in use over time", {"swap": lambda window: window.swap_used}),
        _states(found, "Memory pressure over time", PRESSURES, lambda window: window.memory_pressure),
        _states(found, "Heat over time", HEATS, lambda window: window.thermal_state),
    )


def _families(rows: Sequence[Row]) -> dict[Arm, list[Row]]:
    """Return rows by what their arms have beside the draft length; the baseline stands in each."""
    found: dict[Arm, list[Row]] = {}
    for row in rows:
        if row.arm.speculative:
            found.setdefault(replace(row.arm, draft_length=1), []).append(row)
    plain = {row.arm: row for row in rows if not row.arm.speculative}
    if not found:
        return {row.arm: [row] for row in plain.values()}
    return {
        arm: [*filter(None, [plain.get(arm.baseline)]), *sorted(each, key=lambda row: row.arm.draft_length)]
        for arm, each in found.items()
    }


def _curve(
    rows: Sequence[Row],
    title: str,
    up: str,
    value: Callable[[Row], Number],
    scale: float = 1.0,
    reference: tuple[float, str] | None = None,
) -> Chart:
    families = _families(rows)
    lengths = sorted({row.arm.draft_length for row in rows})
    places = {length: float(number) for number, length in enumerate(lengths)}
    return Chart(
        title=title,
        across=_K,
        up=up,
        series=[_series(_named(arm), family, value, scale, places) for arm, family in families.items()],
        write=wording.plain,
        reference=reference,
        ticks=[(place, str(length) if length else "AR") for length, place in places.items()],
    )


def _named(arm: Arm) -> str:
    """Return an arm's name without its draft length."""
    return arm.name.partition(" ")[2] or ("speculative" if arm.speculative else "autoregressive")


def _series(
    name: str, rows: Sequence[Row], value: Callable[[Row], Number], scale: float, places: dict[int, float]
) -> Series:
    found = [value(row) for row in rows]
    values = [wording.value_of(each) for each in found]
    estimates = [each if isinstance(each, Estimate) else None for each in found]
    return Series(
        name=name,
        x=[places[row.arm.draft_length] for row in rows],
        y=[_scaled(each, scale) for each in values],
        low=[_scaled(each.low, scale) if each else None for each in estimates],
        high=[_scaled(each.high, scale) if each else None for each in estimates],
    )


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale


def _time(found: Timeline) -> tuple[Sequence[float], str]:
    if found.at[-1] > 120:
        return [at / 60 for at in found.at], "minutes"
    return found.at, "seconds"


def _over_time(found: Timeline, title: str, up: str, value: Callable[[ArmWindow], float | None]) -> Chart:
    at, unit = _time(found)
    series = [Series(arm.name, at, [value(window) for window in windows]) for arm, windows in found.arms]
    return Chart(title, unit, up, series, wording.plain)


def _rounds_over_time(found: Timeline) -> list[Chart]:
    """Return a chart of decode passes for each arm: three quantiles of several arms are no longer read."""
    at, unit = _time(found)
    return [
        Chart(
            f"Round duration over time, {arm.name}",
            unit,
            "ms",
            [
                Series(name, at, [_scaled(getattr(window, name), _MS) for window in windows])
                for name in ("p50", "p95", "p99")
            ],
            wording.plain,
        )
        for arm, windows in found.arms
    ]


def _machine(found: Timeline, title: str, values: dict[str, Callable[[HostWindow], int | None]]) -> Chart:
    at, unit = _time(found)
    series = [
        Series(name, at, [_scaled(value(window), 1 / _GIB) for window in found.host]) for name, value in values.items()
    ]
    return Chart(title, unit, "GiB", series, wording.plain)


def _states(found: Timeline, title: str, order: Sequence[str], value: Callable[[HostWindow], str | None]) -> Chart:
    at, unit = _time(found)
    states = [value(window) for window in found.host]
    levels = [None if state is None else float(order.index(state)) for state in states]
    return Chart(
        title, unit, "worst in the window", [Series(title, at, levels)], lambda level: order[int(level)], levels=order
    )
