"""The plots of the page, in colours that are legible on light and on dark ground: the page follows the reader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bokeh.models import ColumnDataSource, FixedTicker, NumeralTickFormatter
from bokeh.models.annotations import Legend, Span
from bokeh.plotting import figure

from otel_specdecode.demo import measures
from otel_specdecode.demo.engines.interface import DRAFT_LENGTH
from otel_specdecode.demo.measures import of_mode
from otel_specdecode.demo.results import Result
from otel_specdecode.demo.runs import Run
from otel_specdecode.telemetry.names import Attr

GREY = "#8a8f98"
COLOURS = ("#3b8fd9", "#e09b1b", "#1fa27e", "#dd5c3d", "#a877d6", "#c06c9b")
"""Of the drafts; grey is the autoregressive baseline's."""

SHADES = ("#dd5c3d", "#e8a06a", "#c9b458", "#6fae7d", "#1fa27e")
"""From no accepted token in a round to k of them."""

_ROW_HEIGHT = 46


@dataclass(frozen=True)
class Plot:
    """A figure with its heading and one sentence on how to read it."""

    heading: str
    text: str
    figure: Any


def plots(result: Result) -> list[Plot]:
    """Return the plots of one lineup."""
    return [
        Plot(
            "Speed-up over autoregressive",
            "Right of the line, speculation is faster. The bar is the interval; it must leave the line outside for a "
            "verdict.",
            _speed_up(result),
        ),
        Plot(
            "Accept rate over time",
            f"{Attr.SPECDECODE_ACCEPT_RATE}, one dot a request. Autoregressive requests have none.",
            _over_time(result, "accept rate", lambda run: measures.value(run, Attr.SPECDECODE_ACCEPT_RATE), 1.05),
        ),
        Plot(
            "Rollbacks over time",
            f"{Attr.SPECDECODE_ROLLBACKS_PER_MINUTE}, one dot a request: rounds with a rejected token, per minute of "
            "decode.",
            _over_time(
                result,
                "rollbacks per minute",
                lambda run: measures.value(run, Attr.SPECDECODE_ROLLBACKS_PER_MINUTE),
            ),
        ),
        Plot(
            "Round duration",
            f"{Attr.SPECDECODE_DECODE_DURATION} / {Attr.SPECDECODE_DECODE_PASSES}, one dot a request. The mark is the "
            "mean. A speculative round drafts, then verifies; an autoregressive one, and one for which nothing was "
            "proposed, makes one token.",
            _by_request(result, "ms a round (logarithmic)", lambda run: measures.mean_pass([run])),
        ),
        Plot(
            "Accepted tokens per round",
            f"Share of rounds by how many of up to k = {DRAFT_LENGTH} proposed tokens were accepted. Each finished "
            "round emits one token more, the target's own.",
            _accepted_per_round(result),
        ),
        Plot(
            "Time per token",
            f"1 / {Attr.SPECDECODE_DECODE_TOKENS_PER_SECOND}, one dot a request. The mark is the mean. Left is better.",
            _by_request(result, "ms per token (logarithmic)", measures.time_per_token),
        ),
        Plot(
            "Peak memory over time",
            f"{Attr.SPECDECODE_PROCESS_PEAK_RSS}, one dot a request: of the whole process, with all models in it.",
            _over_time(
                result,
                "peak RSS (MiB)",
                lambda run: (measures.value(run, Attr.SPECDECODE_PROCESS_PEAK_RSS) or 0) / 2**20,
                with_baseline=True,
            ),
        ),
    ]


def _colours(result: Result) -> dict[str, str]:
    names = [mode.name for mode in result.lineup.modes]
    return dict(zip(names, (GREY, *COLOURS), strict=False))


def _figure(**options: Any) -> Any:
    """Return an empty figure in the page's style."""
    made = figure(
        sizing_mode="stretch_width",
        toolbar_location=None,
        tools="hover",
        background_fill_alpha=0,
        border_fill_alpha=0,
        outline_line_color=None,
        **options,
    )
    for axis in made.axis:
        axis.update(
            axis_line_color=GREY,
            major_tick_line_color=GREY,
            minor_tick_line_color=None,
            major_label_text_color=GREY,
            major_label_text_font_size="12px",
            axis_label_text_color=GREY,
            axis_label_text_font_size="12px",
            axis_label_text_font_style="normal",
        )
    made.grid.grid_line_color = GREY
    made.grid.grid_line_alpha = 0.2
    return made


def _by_mode(names: Sequence[str], label: str, **options: Any) -> Any:
    """Return a figure with one row a mode, the first on top."""
    made = _figure(y_range=list(reversed(names)), height=80 + _ROW_HEIGHT * len(names), **options)
    made.xaxis.axis_label = label
    made.ygrid.grid_line_color = None
    return made


def _legend_below(made: Any, items: Iterable[tuple[str, list[Any]]], columns: int) -> None:
    legend = Legend(
        items=list(items),
        location="left",
        orientation="horizontal",
        ncols=columns,
        background_fill_alpha=0,
        border_line_color=None,
        label_text_color=GREY,
        label_text_font_size="12px",
        spacing=14,
    )
    made.add_layout(legend, "below")


def _speed_up(result: Result) -> Any:
    found = [(verdict.mode.name, verdict.speed_up) for verdict in result.verdicts if verdict.speed_up is not None]
    colours = _colours(result)
    made = _by_mode([name for name, _ in found], "autoregressive / speculative time per token")
    made.add_layout(Span(location=1, dimension="height", line_color=GREY, line_width=2))
    made.x_range.start = 0
    made.x_range.end = 1.05 * max(1.0, *(speed_up.high for _, speed_up in found)) if found else 1.05
    for name, speed_up in found:
        made.segment(x0=[speed_up.low], x1=[speed_up.high], y0=[name], y1=[name], line_width=6, color=colours[name])
        made.scatter(x=[speed_up.ratio], y=[name], size=14, color=colours[name])
    return made


def _over_time(
    result: Result,
    label: str,
    read: Callable[[Run], float | None],
    highest: float | None = None,
    with_baseline: bool = False,
) -> Any:
    start = min((run.taken.start for run in result.runs), default=0)
    made = _figure(height=300)
    made.xaxis.axis_label, made.yaxis.axis_label = "seconds since the first request", label
    made.yaxis.formatter = NumeralTickFormatter(format="0,0[.]00")
    made.y_range.start = 0
    if highest is not None:
        made.y_range.end = highest
    made.hover.tooltips = [("", "$name"), ("s", "@x{0.0}"), (label, "@y{0,0.00}")]
    legend = []
    for name, colour in _colours(result).items():
        points = [
            ((run.taken.end - start) / 1e9, number)
            for run in of_mode(result.runs, name)
            if (number := read(run)) is not None
        ]
        if name == result.lineup.baseline.name and not with_baseline:
            continue
        x, y = [point[0] for point in points], [point[1] for point in points]
        line = made.line(x=x, y=y, color=colour, line_width=1.5, line_alpha=0.5, name=name)
        legend.append((name, [line, made.scatter(x=x, y=y, color=colour, size=7, name=name)]))
    _legend_below(made, legend, columns=2)
    return made


def _round_ticks(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 of each decade, up to one beyond either end."""
    steps = [factor * 10.0**power for power in range(-2, 5) for factor in (1, 2, 5)]
    return [step for step in steps if low / 2 <= step <= high * 2]


def _accepted_per_round(result: Result) -> Any:
    names = [mode.name for mode in result.lineup.drafts]
    shares = {name: measures.accepted_per_round(of_mode(result.runs, name), DRAFT_LENGTH) for name in names}
    made = _by_mode(names, "share of rounds")
    made.x_range.start, made.x_range.end = 0, 1
    made.xaxis.formatter = NumeralTickFormatter(format="0%")
    made.hover.tooltips = [("accepted", "$name"), ("share", "@share{0.0%}")]
    left, legend = dict.fromkeys(names, 0.0), []
    for accepted, shade in zip(range(DRAFT_LENGTH + 1), SHADES, strict=True):
        data: dict[str, Any] = {
            "y": names,
            "left": [left[name] for name in names],
            "right": [left[name] + shares[name][accepted] for name in names],
            "share": [shares[name][accepted] for name in names],
        }
        bars = made.hbar(
            y="y",
            left="left",
            right="right",
            height=0.6,
            source=ColumnDataSource(data),
            color=shade,
            name=str(accepted),
        )
        left = dict(zip(names, data["right"], strict=True))
        legend.append((f"{accepted}", [bars]))
    _legend_below(made, legend, columns=DRAFT_LENGTH + 1)
    return made


def _by_request(result: Result, label: str, read: Callable[[Run], float | None]) -> Any:
    """Return a figure of a duration in s, one dot a request and a mark for their mean."""
    colours = _colours(result)
    times = {
        name: [time * 1000 for run in of_mode(result.runs, name) if (time := read(run)) is not None] for name in colours
    }
    names = [name for name, found in times.items() if found]
    made = _by_mode(names, label, x_axis_type="log")
    every = [time for found in times.values() for time in found]
    for name in names:
        found = times[name]
        made.scatter(x=found, y=[name] * len(found), size=8, color=colours[name], alpha=0.45)
        mean = sum(found) / len(found)
        made.scatter(x=[mean], y=[name], marker="dash", angle=1.5708, size=26, line_width=3, color=colours[name])
    if every:
        made.xaxis.ticker = FixedTicker(ticks=_round_ticks(min(every), max(every)))
    made.xaxis.formatter = NumeralTickFormatter(format="0[.]0[0]")
    return made
