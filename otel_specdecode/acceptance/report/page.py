"""The page that people look at and sign: one file that loads nothing, runs no script, prints, knows light and dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from otel_specdecode.acceptance.endurance import Endurance, Trend
from otel_specdecode.acceptance.records import Arm
from otel_specdecode.acceptance.report import wording
from otel_specdecode.acceptance.report.charts import Chart, svg
from otel_specdecode.acceptance.report.drawn import curves, left_out, lines
from otel_specdecode.acceptance.report.escaping import printable
from otel_specdecode.acceptance.report.facts import Holds, Report
from otel_specdecode.acceptance.report.judged import GATE_TITLES, VALIDITY_TITLES, gate_rows, validity_rows, why, word
from otel_specdecode.acceptance.report.rows import GROUPS, MAIN, Row
from otel_specdecode.acceptance.report.timeline import Timeline

_TONES = {"accepted": "good", "rejected": "bad", "invalid": "open"}
_LONGEST = 160


@dataclass(frozen=True, slots=True)
class _Drawn:
    title: str
    svg: Markup | None


@dataclass(frozen=True, slots=True)
class _Fact:
    text: str
    code: bool = False


@dataclass(frozen=True, slots=True)
class _Table:
    title: str
    titles: Sequence[str]
    rows: Sequence[object]


def page(report: Report) -> str:
    """Return the page as HTML."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["printable"] = printable
    source = resources.files(__package__).joinpath("page.html.jinja").read_text(encoding="utf-8")
    return environment.from_string(source).render(
        report=report,
        head=report.run.head,
        word=word(report.verdict),
        tone="open" if report.verdict is None else _TONES[report.verdict.status],
        why=why(report.verdict, report.knee),
        policy=_policy(report),
        signed=_signed(report),
        gate_tables=_gate_tables(report),
        curves=[_drawn(chart, f"curve{number}") for number, chart in enumerate(curves(report.arms))],
        left_out=left_out(report.arms),
        fastest=_fastest(report),
        groups=GROUPS,
        main=MAIN,
        tiers=_parts(report, "tier"),
        kinds=_parts(report, "kind"),
        worthwhile=[_worth(each) for each in report.worthwhile],
        costs=_costs(report),
        rates=_rates(report),
        timelines=[_time_lines(report, each, number) for number, each in enumerate(report.timelines)],
        documents=_documents(report),
        made=wording.moment(report.made_at),
    )


def _fastest(report: Report) -> dict[Arm, str]:
    """Return what is said beside the fastest arm, and beside that of each number of requests at once."""
    by_level = {each.best.arm: f"fastest of {level} at once" for level, each in report.knees.items() if each.best}
    return {**by_level, report.knee.best.arm: "fastest"} if report.knee.best else by_level


def _signed(report: Report) -> list[tuple[str, _Fact]]:
    """Return what a signature is for."""
    runs = [each for each in (report.run, report.soak) if each is not None]
    facts = [
        ("Verdict", _Fact(word(report.verdict))),
        ("Manifest", _Fact(str(report.run.head.manifest.get("id", wording.NOT_MEASURED)), code=True)),
    ]
    for run in runs:
        kind = run.head.kind.capitalize()
        facts.append((kind, _Fact(f"{printable(run.head.run_id)}, begun {wording.moment(run.head.created_at)}")))
        digest = report.evidence.get(run.head.run_id)
        if digest:
            facts.append((f"{kind}, sha256 of its files", _Fact(digest, code=True)))
    return facts


def _gate_tables(report: Report) -> list[_Table]:
    if report.verdict is None:
        return []
    return [
        _Table("What each gate says", ("Gate", "", *GATE_TITLES), gate_rows(report.verdict)),
        _Table("Whether the run counts", ("Condition", "", *VALIDITY_TITLES), validity_rows(report.verdict)),
    ]


def _policy(report: Report) -> str:
    """Return what the run was held against."""
    verdict = report.verdict
    if verdict is None:
        return ""
    preset = f"preset {verdict.preset}, " if verdict.preset else ""
    off = f" Switched off: {', '.join(verdict.disabled)}." if verdict.disabled else ""
    return f"Held against: {preset}policy {verdict.policy}. Arm: {printable(verdict.arm or 'none')}.{off}"


def _drawn(chart: Chart, key: str) -> _Drawn:
    drawn = Markup(svg(chart, key)) if chart.known else None  # noqa: S704 - charts.py escapes what it was given
    return _Drawn(chart.title, drawn)


def _parts(report: Report, part: str) -> list[tuple[str, list[Row]]]:
    names = dict.fromkeys(row.of for row in report.rows if row.part == part)
    return [(name, [row for row in report.rows if row.part == part and row.of == name]) for name in names]


def _worth(each: Holds) -> dict[str, str]:
    write = wording.percent if each.high is None else wording.fraction
    ends = [f"{word} {write(end)}" for word, end in (("at least", each.low), ("at most", each.high)) if end is not None]
    said = {
        True: ("good", "✓", "holds"),
        False: ("bad", "✗", "does not hold"),
        None: ("open", "?", wording.NOT_MEASURED),
    }
    tone, mark, word_ = said[each.holds]
    return {
        "what": each.what,
        "value": wording.said(each.value, write),
        "tone": tone,
        "mark": mark,
        "word": word_,
        "bounds": ", ".join(ends),
    }


def _costs(report: Report) -> list[dict[str, str]]:
    return [
        {
            "what": printable(each.what),
            "tokens": wording.said(each.tokens_per_hour, wording.whole),
            "price": "no rate given" if each.per_million is None else wording.money(each.per_million),
        }
        for each in report.costs.each
    ]


def _rates(report: Report) -> str:
    rates = report.costs.rates
    said = [
        f"; an hour of {name} costs {wording.money(rate)}"
        for name, rate in (("this machine", rates.own), ("the rented one", rates.rented))
        if rate is not None
    ]
    return "".join(said)


def _time_lines(report: Report, found: Timeline, number: int) -> dict[str, object]:
    lasted, lasting = wording.duration(found.seconds * len(found.at)), report.endurance[found.run_id]
    return {
        "run_id": found.run_id,
        "about": f"{lasted} from {wording.moment(found.begun)}, in windows of {found.seconds:g} s. "
        "A request's counts are spread evenly over its decode time.",
        "rows": report.soak_rows if report.soak and found.run_id == report.soak.head.run_id else (),
        "trends": [_trend(each.arm.name, trend) for each in lasting for trend in (each.memory, each.slowing)],
        "throttled": _throttled(lasting),
        "charts": [_drawn(chart, f"time{number}-{place}") for place, chart in enumerate(lines(found))],
    }


def _trend(arm: str, trend: Trend) -> dict[str, str]:
    write = wording.milliseconds if trend.of == "time per token" else wording.size
    tone, mark = {"yes": ("bad", "✗"), "no": ("good", "✓")}.get(trend.goes_up, ("open", "?"))
    return {
        "arm": printable(arm),
        "of": trend.of,
        "per_hour": wording.said(trend.per_hour, write),
        "ends": wording.interval(trend.per_hour, write),
        "rose": wording.said(trend.rose, wording.signed_percent),
        "goes_up": trend.goes_up,
        "tone": tone,
        "mark": mark,
    }


def _throttled(found: Sequence[Endurance]) -> str:
    """Return for how long the machine was in a thermal state that slows it down."""
    known = [each.throttled_seconds for each in found if each.throttled_seconds is not None]
    return f"Throttled by heat: {wording.duration(sum(known)) if known else wording.NOT_MEASURED}."


def _documents(report: Report) -> list[tuple[str, list[tuple[str, str]]]]:
    runs = [each for each in (report.run, report.soak) if each is not None]
    found = [("Manifest", _pairs(report.run.head.manifest))]
    for run in runs:
        name = run.head.kind
        found.append((f"Conditions of the {name}", _pairs(run.head.conditions)))
        found.append((f"Options of the {name}", _pairs(run.head.options)))
        told = [(wording.moment(note.at), printable(f"{note.what} {note.why}".strip())) for note in run.notes]
        found.append((f"What happened to the {name}", told))
    return [(name, pairs) for name, pairs in found if pairs]


def _pairs(document: object, place: str = "") -> list[tuple[str, str]]:
    """Return the leaves of a document by their place."""
    if isinstance(document, Mapping):
        return [
            pair for key, value in document.items() for pair in _pairs(value, f"{place}.{key}" if place else str(key))
        ]
    if isinstance(document, (list, tuple)):
        return [(printable(place), printable(", ".join(map(str, document)) or "none", _LONGEST))]
    return [] if document is None else [(printable(place), printable(str(document), _LONGEST))]
