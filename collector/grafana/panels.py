"""The kinds of panels. Each has a title, a text that defines its number, a unit and its queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from grafana_foundation_sdk.builders import common as common_build
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import (
    heatmap,
    logs,
    loki,
    prometheus,
    stat,
    statetimeline,
    table,
    tempo,
    text,
    timeseries,
)
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from grafana_foundation_sdk.models.tempo import MetricsQueryType, SearchTableType

from collector.grafana.colours import Steps, colours, dashes_a_mode
from collector.grafana.texts import not_filtered
from collector.grafana.variables import LOKI, PROMETHEUS, TEMPO

NOTHING = "no traffic"

Panel: TypeAlias = dashboard.Panel
AnyPanel: TypeAlias = timeseries.Panel | stat.Panel | heatmap.Panel | table.Panel | statetimeline.Panel | logs.Panel


@dataclass(frozen=True)
class Query:
    """A question to a data source.

    Attributes:
        legend: Name of a series, with labels in double braces; of spans without labels.
        exemplar: Whether to draw exemplars, the links into traces. Of raw histograms alone.
        right: Whether its axis stands on the right, for this unit.
        bars: Whether it is drawn as bars.
    """

    expr: str
    legend: str = ""
    kind: Literal["prometheus", "loki", "tempo"] = "prometheus"
    exemplar: bool = False
    right: str = ""
    bars: bool = False
    dashed: bool = False


def lines(
    title: str,
    about: str,
    unit: str,
    *queries: Query,
    width: int = 12,
    height: int = 8,
    steps: Steps | None = None,
    stacked: bool = False,
    top: float | None = None,
) -> Panel:
    """Values over time.

    Where the value is judged, ``steps`` are drawn as lines. ``stacked`` series add up. A share's axis ends at ``top``.
    """
    panel = timeseries.Panel().fill_opacity(60 if stacked else 0).line_width(1 if stacked else 2).axis_soft_min(0)
    panel = panel.show_points(common.VisibilityMode.AUTO).tooltip(
        common_build.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING)
    )
    panel = panel.legend(
        common_build.VizLegendOptions()
        .display_mode(common.LegendDisplayMode.LIST)
        .placement(common.LegendPlacement.BOTTOM)
        .show_legend(True)
        .calcs([])
    )
    if stacked:
        panel = panel.stacking(common_build.StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
    if top is not None:
        panel = panel.max(top)
    if steps is not None:
        style = common_build.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED)
        panel = panel.thresholds(_thresholds(steps)).thresholds_style(style)
    for regexp, colour in colours(query.legend for query in queries):
        panel = panel.override_by_regexp(regexp, [_fixed(colour)])
    if any(dashes_a_mode(query.legend) for query in queries):
        panel = panel.override_by_regexp(r"/\bautoregressive\b/", _dashed())
    for place, query in enumerate(queries):
        if properties := _drawn(query):
            panel = panel.override_by_query(_ref_id(place), properties)
    return _made(panel.unit(unit).no_value(NOTHING), title, about, queries, width, height)


def tile(
    title: str,
    about: str,
    unit: str,
    *queries: Query,
    steps: Steps | None = None,
    width: int = 6,
    height: int = 4,
    decimals: int | None = None,
) -> Panel:
    """The value of each series now, in large figures. Coloured only where it is judged.

    Of a time series the last value would be shown, however long ago that was.
    """
    panel = (
        stat.Panel()
        .reduce_options(common_build.ReduceDataOptions().calcs(["lastNotNull"]))
        .graph_mode(common.BigValueGraphMode.NONE)
        .text_mode(common.BigValueTextMode.AUTO)
        .color_mode(common.BigValueColorMode.NONE if steps is None else common.BigValueColorMode.VALUE)
        .unit(unit)
        .no_value(NOTHING)
    )
    if steps is not None:
        panel = panel.thresholds(_thresholds(steps))
    if decimals is not None:
        panel = panel.decimals(decimals)
    return _made(panel, title, about, queries, width, height, now=True)


def heat(title: str, about: str, unit: str, expr: str, width: int = 12, height: int = 8) -> Panel:
    """How a histogram's values are spread over time; ``expr`` keeps `le`."""
    panel = (
        heatmap.Panel()
        .calculate(False)
        .y_axis(heatmap.YAxisConfig().unit(unit).axis_placement(common.AxisPlacement.LEFT))
        .scale_distribution(common_build.ScaleDistributionConfig().type(common.ScaleDistribution.LINEAR))
        .color(heatmap.HeatmapColorOptions().scheme("Blues").steps(32))
        .unit(unit)
        .no_value(NOTHING)
    )
    target = prometheus.Dataquery().expr(expr).legend_format("{{le}}").format(PromQueryFormat.HEATMAP).range()
    target = target.ref_id("A").datasource(PROMETHEUS)
    return _placed(panel.with_target(target), title, about, (expr,), width, height)


def timeline(title: str, about: str, *queries: Query, width: int = 24, height: int = 6, word: str = "yes") -> Panel:
    """What was true when: a series that has a value is a bar with this word on it."""
    panel = (
        statetimeline.Panel()
        .merge_values(True)
        .fill_opacity(80)
        .show_value(common.VisibilityMode.NEVER)
        .row_height(0.8)
        .mappings([dashboard.ValueMap({"1": dashboard.ValueMappingResult(text=word)})])
        .color_scheme(build.FieldColor().mode(dashboard.FieldColorModeId.FIXED).fixed_color("semi-dark-blue"))
        .unit("none")
        .no_value("nothing")
    )
    for regexp, colour in colours(query.legend for query in queries):
        panel = panel.override_by_regexp(regexp, [_fixed(colour)])
    return _made(panel, title, about, queries, width, height)


def rows(
    title: str,
    about: str,
    query: Query,
    *,
    columns: Mapping[str, str],
    column_units: Mapping[str, str] | None = None,
    links: Mapping[str, dashboard.DashboardLink] | None = None,
    from_labels: bool = False,
    width: int = 24,
    height: int = 7,
) -> Panel:
    """A table of one query's labels.

    ``columns`` tells which labels are shown, in this order, and under which heading; ``column_units`` and ``links``, to
    where a cell leads, go by heading. Labels of log records have to be taken apart first: ``from_labels``.
    """
    panel = table.Panel().align(common.FieldTextAlignment.AUTO).unit("none").no_value("nothing")
    if from_labels:
        options = {"source": "labels", "format": "json", "replace": True, "keepTime": False}
        panel = panel.with_transformation(dashboard.DataTransformerConfig("extractFields", options=options))
    if column_units:
        wanted = [{"targetField": _field(columns, heading), "destinationType": "number"} for heading in column_units]
        options = {"conversions": wanted}
        panel = panel.with_transformation(dashboard.DataTransformerConfig("convertFieldType", options=options))
    options = {"include": {"names": list(columns)}}
    panel = panel.with_transformation(dashboard.DataTransformerConfig("filterFieldsByName", options=options))
    order = {"renameByName": dict(columns), "indexByName": {name: place for place, name in enumerate(columns)}}
    panel = panel.with_transformation(dashboard.DataTransformerConfig("organize", options=order))
    for heading, unit in (column_units or {}).items():
        panel = panel.override_by_name(heading, [dashboard.DynamicConfigValue("unit", unit)])
    for heading, link in (links or {}).items():
        panel = panel.override_by_name(heading, [dashboard.DynamicConfigValue("links", [link])])
    return _made(panel, title, about, (query,), width, height, now=True, form=PromQueryFormat.TABLE)


def traces(title: str, about: str, query: str, width: int = 24, height: int = 7) -> Panel:
    """A table of spans that a TraceQL query finds; each leads to its trace."""
    target = (
        tempo.TempoQuery()
        .query_type("traceql")
        .query(query)
        .limit(20)
        .table_type(SearchTableType.SPANS)
        .filters([])
        .ref_id("A")
        .datasource(TEMPO)
    )
    panel = table.Panel().align(common.FieldTextAlignment.AUTO).unit("none").no_value("nothing").with_target(target)
    return _placed(panel, title, about, (query,), width, height, TEMPO)


def records(title: str, about: str, query: str, width: int = 24, height: int = 9) -> Panel:
    """Log records as they come."""
    panel = logs.Panel().show_time(True).enable_log_details(True).wrap_log_message(True)
    panel = panel.sort_order(common.LogsSortOrder.DESCENDING).unit("none").no_value("nothing")
    return _made(panel, title, about, (Query(query, kind="loki"),), width, height)


def note(title: str, about: str, content: str, width: int = 12, height: int = 4) -> Panel:
    """A text in Markdown, where there is nothing to draw."""
    made = text.Panel().title(title).description(about).content(content).build()
    made.grid_pos = dashboard.GridPos(h=height, w=width)
    return made


def _made(
    panel: AnyPanel,
    title: str,
    about: str,
    queries: Sequence[Query],
    width: int,
    height: int,
    now: bool = False,
    form: PromQueryFormat = PromQueryFormat.TIME_SERIES,
) -> Panel:
    for place, query in enumerate(queries):
        panel = panel.with_target(_target(query, _ref_id(place), now, form))
    source = {"prometheus": PROMETHEUS, "loki": LOKI, "tempo": TEMPO}[queries[0].kind]
    return _placed(panel, title, about, [query.expr for query in queries], width, height, source)


def _placed(
    panel: AnyPanel,
    title: str,
    about: str,
    expressions: Sequence[str],
    width: int,
    height: int,
    source: dashboard.DataSourceRef = PROMETHEUS,
) -> Panel:
    whole = " ".join(filter(None, [about, not_filtered(*expressions)]))
    made = panel.title(title).description(whole).datasource(source).build()
    made.grid_pos = dashboard.GridPos(h=height, w=width)
    return made


def _target(query: Query, ref_id: str, now: bool, form: PromQueryFormat) -> Builder[Dataquery]:
    if query.kind == "loki":
        asked = loki.Dataquery().expr(query.expr).legend_format(query.legend).query_type("range").max_lines(200)
        return asked.ref_id(ref_id).datasource(LOKI)
    if query.kind == "tempo":
        found = tempo.TempoQuery().query_type("traceql").query(query.expr).filters([]).ref_id(ref_id).datasource(TEMPO)
        return found.metrics_query_type(MetricsQueryType.RANGE).exemplars(0)
    target = prometheus.Dataquery().expr(query.expr).legend_format(query.legend).format(form)
    target = target.ref_id(ref_id).datasource(PROMETHEUS)
    target = target.instant() if now else target.range()
    return target.exemplar(True) if query.exemplar else target


def _drawn(query: Query) -> list[dashboard.DynamicConfigValue]:
    properties = []
    if query.kind == "tempo" and query.legend:
        properties.append(dashboard.DynamicConfigValue("displayName", query.legend))
    if query.right:
        properties.append(dashboard.DynamicConfigValue("custom.axisPlacement", "right"))
        properties.append(dashboard.DynamicConfigValue("unit", query.right))
    if query.bars:
        properties.append(dashboard.DynamicConfigValue("custom.drawStyle", "bars"))
        properties.append(dashboard.DynamicConfigValue("custom.fillOpacity", 40))
    if query.dashed:
        properties += _dashed()
    return properties


def _dashed() -> list[dashboard.DynamicConfigValue]:
    return [
        dashboard.DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [6, 6]}),
        dashboard.DynamicConfigValue("custom.lineWidth", 1),
    ]


def _fixed(colour: str) -> dashboard.DynamicConfigValue:
    return dashboard.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": colour})


def _thresholds(steps: Steps) -> build.ThresholdsConfig:
    made = [dashboard.Threshold(value, colour) for value, colour in steps]
    return build.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(made)


def _field(columns: Mapping[str, str], heading: str) -> str:
    return next(name for name, shown in columns.items() if shown == heading)


def _ref_id(place: int) -> str:
    return chr(ord("A") + place)


__all__ = ["Panel", "Query", "heat", "lines", "note", "records", "rows", "tile", "timeline", "traces"]
