"""Charts as SVG for inside a page: no script, colours and font are the page's, and words for who does not see them."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from otel_specdecode.acceptance.report.escaping import printable, xml

INCHES = (4.3, 2.75)
MOST_SERIES = 6

_BELOW, _LEGEND_ROW = 0.55, 0.19
"""Inches below the axes, and of a row of a legend above them."""

_INK, _FAINT, _LINE = "#010203", "#040506", "#070809"
_SERIES = tuple(f"#0a0b{number:02x}" for number in range(MOST_SERIES))
_VARIABLES = {
    _INK: "--ink",
    _FAINT: "--faint",
    _LINE: "--line",
    **{colour: f"--series-{number}" for number, colour in enumerate(_SERIES)},
}
_MARKERS = ("o", "s", "^", "D", "v", "P")
_DASHES = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)), (0, (3, 1)), (0, (8, 3)))
_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # names may hold dollar signs
    "font.family": "sans-serif",
    "font.size": 10.5,
    "axes.edgecolor": _LINE,
    "axes.labelcolor": _FAINT,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "text.color": _INK,
    "xtick.color": _FAINT,
    "ytick.color": _FAINT,
    "grid.color": _LINE,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
}


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a chart.

    Attributes:
        name: In the legend.
        x, y: Its points; a y that is None is a gap.
        low, high: Ends of intervals, where the points have them.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """What is drawn.

    Attributes:
        title: Above it.
        across, up: What the axes are, with their unit.
        series: The lines; those after MOST_SERIES are left out.
        write: Writes a value of it in words.
        reference: A level that is drawn across, and its name.
        ticks: Names of places on the axis across; empty: numbers.
        levels: Names of the levels 0, 1, ... of the axis up, for states; empty: numbers.
        from_zero: Whether the axis up begins at 0.
    """

    title: str
    across: str
    up: str
    series: Sequence[Series]
    write: Callable[[float], str]
    reference: tuple[float, str] | None = None
    ticks: Sequence[tuple[float, str]] = ()
    levels: Sequence[str] = ()
    from_zero: bool = True

    @property
    def known(self) -> tuple[Series, ...]:
        """The lines that have a point."""
        return tuple(each for each in self.series if any(value is not None for value in each.y))

    @property
    def entries(self) -> int:
        """How many entries the legend has; none where one line stands alone."""
        count = len(self.known[:MOST_SERIES]) + (self.reference is not None)
        return count if count > 1 else 0

    @property
    def columns(self) -> int:
        """How many entries of the legend stand side by side."""
        longest = max((len(series.name) for series in self.known), default=0)
        return 3 if longest <= 8 else 2 if longest <= 16 else 1

    @property
    def in_words(self) -> str:
        """What the chart shows, in words."""
        if not self.known:
            return f"{self.title}: not measured."
        said = "; ".join(f"{printable(each.name)}: {self._points(each)}" for each in self.known[:MOST_SERIES])
        return f"{self.title}, {self.up} over {self.across}. {said}."

    def _points(self, series: Series) -> str:
        named = dict(self.ticks)
        known = [(x, y) for x, y in zip(series.x, series.y, strict=True) if y is not None]
        if len(known) > 12:
            values = [y for _, y in known]
            return f"from {self.write(min(values))} to {self.write(max(values))}, at the end {self.write(values[-1])}"
        return ", ".join(f"{self.write(y)} at {named.get(x, f'{x:g}')}" for x, y in known)


def svg(chart: Chart, key: str) -> str:
    """Return a chart as an SVG element.

    Args:
        chart: What is drawn.
        key: A word that no other chart of the page has; its ids begin with it.
    """
    with mpl.rc_context({**_SETTINGS, "svg.hashsalt": key}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Gg]lyph")  # the browser has the letters
        height, place = _shape(chart)
        figure = Figure(figsize=(INCHES[0], height))
        axes = figure.add_axes(place)
        _draw(axes, chart)
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return _embedded(file.getvalue(), chart, key)


def _shape(chart: Chart) -> tuple[float, tuple[float, float, float, float]]:
    """Return a figure's height in inches, and left, bottom, width and height of its axes as shares of it.

    A layout that matplotlib works out takes most of a page's time.
    """
    legend = _LEGEND_ROW * -(-chart.entries // chart.columns)
    height = INCHES[1] + max(legend - _LEGEND_ROW, 0)
    left = 0.245 if chart.levels else 0.16
    return height, (
        left,
        _BELOW / height,
        0.985 - left,
        (height - _BELOW - legend - (0.14 if legend else 0.08)) / height,
    )


def _draw(axes: Axes, chart: Chart) -> None:
    axes.set_xlabel(chart.across)
    axes.set_ylabel(chart.up)
    axes.grid(axis="y", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    for number, series in enumerate(chart.series[:MOST_SERIES]):
        if series in chart.known:
            _line(axes, chart, series, number)
    if chart.reference is not None:
        level, name = chart.reference
        axes.axhline(level, color=_FAINT, linewidth=1, linestyle=(0, (4, 3)), label=name)
    _axes(axes, chart)
    if chart.entries:
        axes.legend(
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=chart.columns,
            handlelength=2.4,
            columnspacing=1.0,
            borderaxespad=0.3,
        )


def _line(axes: Axes, chart: Chart, series: Series, number: int) -> None:
    colour, name = _SERIES[number], printable(series.name, 28)
    y = [float("nan") if value is None else value for value in series.y]
    style: dict[str, Any] = {"color": colour, "linestyle": _DASHES[number], "linewidth": 1.6, "label": name}
    if chart.levels:
        axes.step(series.x, y, where="mid", **style)
    else:
        axes.plot(series.x, y, marker=_MARKERS[number], markersize=4.5, **style)
    ends = [
        (x, low, high)
        for x, low, high in zip(series.x, series.low, series.high, strict=False)
        if low is not None and high is not None
    ]
    if ends:
        at, low, high = ([end[place] for end in ends] for place in range(3))
        axes.vlines(at, low, high, color=colour, linewidth=1.2)
        for tips in (low, high):
            axes.plot(at, tips, "_", color=colour, markersize=6)


def _axes(axes: Axes, chart: Chart) -> None:
    if chart.ticks:
        axes.set_xticks([at for at, _ in chart.ticks], [name for _, name in chart.ticks])
        axes.margins(x=0.06)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.margins(x=0.02)
    if chart.levels:
        axes.set_yticks(range(len(chart.levels)), list(chart.levels))
        axes.set_ylim(-0.4, len(chart.levels) - 0.6)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(5))
        if chart.from_zero:
            highest = max(
                (value for series in chart.known for value in (*series.y, *series.high) if value), default=0.0
            )
            axes.set_ylim(0, highest * 1.12 or 1.0)


def _embedded(text: str, chart: Chart, key: str) -> str:
    """Return the SVG element alone, sized by the page, with its colours from there and no id that another chart has."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{key}-", text).replace("xlink:href", "href")
    text = re.sub(r"font-family: [^;\"]*;? ?", "", text)  # the page's own
    text = re.sub(r"(fill|stroke): (#[0-9a-f]{6})", _coloured, text)
    box = re.search(r'viewBox="([\d. ]*)"', text)
    size = box[1] if box else ""
    return f'<svg class="chart" viewBox="{size}" role="img" aria-label="{xml(chart.in_words, 5000)}">{_inside(text)}'


def _inside(text: str) -> str:
    return text[text.index(">") + 1 :].rstrip()


def _coloured(found: re.Match[str]) -> str:
    return f"{found[1]}: var({_VARIABLES[found[2]]})" if found[2] in _VARIABLES else found[0]
