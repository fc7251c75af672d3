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
from otel_specdecode.demo.fields import ABSENT, meanings, rows
from otel_specdecode.demo.lineups import DRAFT_LENGTH
from otel_specdecode.demo.measures import Verdict, of_mode
from otel_specdecode.demo.plots import Plot, plots
from otel_specdecode.demo.results import Result
from otel_specdecode.demo.runs import Run
from otel_specdecode.version import __version__


@dataclass(frozen=True)
class _SpanRow:
    name: str
    autoregressive: str
    speculative: str
    meaning: str


@dataclass(frozen=True)
class _Section:
    result: Result
    padding: str | None
    plots: Sequence[tuple[Plot, Markup]]
    notes: Sequence[str]
    table: Sequence[Sequence[str]]


def page(results: Sequence[Result]) -> str:
    """Return the page as HTML."""
    drawn = [plots(result) for result in results]
    script, divs = components([plot.figure for each in drawn for plot in each], wrap_script=False)
    remaining = iter(divs)
    sections = [
        _section(result, [(plot, Markup(next(remaining))) for plot in each])  # noqa: S704 - bokeh's own HTML
        for result, each in zip(results, drawn, strict=True)
    ]
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(factor=sentences.factor, plain=sentences.plain, interval=sentences.interval)
    environment.filters["css"] = _css_class
    source = resources.files(__package__).joinpath("page.html.jinja").read_text(encoding="utf-8")
    library = Resources(mode="inline", components=["bokeh"], minified=True).js_raw
    return environment.from_string(source).render(
        sections=sections,
        span_rows=_span_rows(results[0]),
        draft=results[0].lineup.drafts[0].name,
        how_to_read=sentences.HOW_TO_READ,
        economics=sentences.ECONOMICS,
        length=DRAFT_LENGTH,
        version=__version__,
        library=[Markup(part) for part in library],  # noqa: S704 - bokeh's own script
        script=Markup(script),  # noqa: S704 - bokeh's own script
    )


def _css_class(verdict: Verdict) -> str:
    return verdict.word if verdict.word in ("pays", "hurts") else "open"


def _section(result: Result, drawn: Sequence[tuple[Plot, Markup]]) -> _Section:
    modes = [of_mode(result.runs, mode.name) for mode in result.lineup.modes]
    return _Section(
        result=result,
        padding=sentences.padding_note(result),
        plots=drawn,
        notes=(sentences.interval_note(result), sentences.parted_note(result), sentences.method_note(result)),
        table=[(field.name, field.unit, *(field.show(runs) for runs in modes)) for field in rows()],
    )


def _span_rows(result: Result) -> list[_SpanRow]:
    """Return all attributes of one autoregressive and one speculative span of the same prompt."""
    speculative = of_mode(result.runs, result.lineup.drafts[0].name)[0]
    baseline = next(run for run in result.runs if run.pair == speculative.pair and run is not speculative)
    keys = sorted({*baseline.taken.attributes, *speculative.taken.attributes})
    return [_SpanRow(key, _shown(baseline, key), _shown(speculative, key), meanings().get(key, "")) for key in keys]


def _shown(run: Run, key: str) -> str:
    value: Any = run.taken.attributes.get(key, ABSENT)
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (tuple, list)):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
