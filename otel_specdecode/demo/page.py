"""The page: one file that loads nothing from anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from bokeh.embed import components
from bokeh.resources import Resources
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from otel_specdecode.demo import results as sentences
from otel_specdecode.demo.engines.interface import DRAFT_LENGTH
from otel_specdecode.demo.fields import ABSENT, meanings, rows
from otel_specdecode.demo.measures import Verdict, of_mode
from otel_specdecode.demo.plots import Plot, plots
from otel_specdecode.demo.results import Report, Result
from otel_specdecode.demo.runs import Run
from otel_specdecode.version import __version__


@dataclass(frozen=True)
class _Example:
    """One span as a column."""

    engine: str
    mode: str
    run: Run


@dataclass(frozen=True)
class _Drawn:
    """A plot, the place it is drawn in, and the script that draws it."""

    plot: Plot
    place: Markup
    script: Markup


@dataclass(frozen=True)
class _Section:
    result: Result
    padding: str | None
    plots: Sequence[_Drawn]
    notes: Sequence[str]


def page(report: Report) -> str:
    """Return the page as HTML."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(factor=sentences.factor, plain=sentences.plain, interval=sentences.interval)
    environment.filters["css"] = _css_class
    source = resources.files(__package__).joinpath("page.html.jinja").read_text(encoding="utf-8")
    library = Resources(mode="inline", components=["bokeh"], minified=True).js_raw
    examples = [example for result in report.honest for example in _examples(result)]
    return environment.from_string(source).render(
        sections=[_section(result) for result in report.results],
        table=_table(report),
        notes=sentences.field_notes(report),
        examples=examples,
        span_rows=_span_rows(examples),
        how_to_read=sentences.HOW_TO_READ,
        economics=sentences.ECONOMICS,
        length=DRAFT_LENGTH,
        version=__version__,
        library=[Markup(part) for part in library],  # noqa: S704 - bokeh's own script
    )


def _css_class(verdict: Verdict) -> str:
    return verdict.word if verdict.word in ("pays", "hurts") else "open"


def _section(result: Result) -> _Section:
    return _Section(
        result=result,
        padding=sentences.padding_note(result),
        plots=[_drawn(plot) for plot in plots(result)],
        notes=(sentences.interval_note(result), sentences.parted_note(result), sentences.method_note(result)),
    )


def _drawn(plot: Plot) -> _Drawn:
    # One by one: bokeh's time for several at once grows with the square of their number.
    script, place = components(plot.figure, wrap_script=False)
    return _Drawn(plot, Markup(place), Markup(script))  # noqa: S704 - bokeh's own HTML and script


def _table(report: Report) -> list[tuple[str, ...]]:
    """Return the rows of all modes side by side: a field's name, its unit, and a cell a mode."""
    modes = [of_mode(result.runs, mode.name) for result in report.results for mode in result.lineup.modes]
    return [(field.name, field.unit, *(field.show(runs) for runs in modes)) for field in rows()]


def _examples(result: Result) -> tuple[_Example, _Example]:
    """Return an autoregressive request and a speculative one of the same prompt."""
    title, draft = result.lineup.engine.title, result.lineup.drafts[0].name
    speculative = of_mode(result.runs, draft)[0]
    baseline = next(run for run in result.runs if run.pair == speculative.pair and run is not speculative)
    return _Example(title, baseline.mode, baseline), _Example(title, draft, speculative)


def _span_rows(examples: Sequence[_Example]) -> list[tuple[str, list[str], str]]:
    """Return every attribute that one of the spans has: its name, a cell a span, its meaning."""
    keys = sorted({key for example in examples for key in example.run.taken.attributes})
    return [(key, [_shown(example.run, key) for example in examples], meanings().get(key, "")) for key in keys]


def _shown(run: Run, key: str) -> str:
    value: Any = run.taken.attributes.get(key, ABSENT)
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (tuple, list)):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
