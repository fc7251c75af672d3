"""Reads a game day's dashboards as text: what Grafana would ask Prometheus, with the answers as rows of numbers."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from collector.grafana.reading import defaults, expand, panels, queries
from collector.programs import DIRECT
from tests.programs import ROOT

DASHBOARDS = ROOT / "collector" / "grafana" / "dashboards"
COLUMNS = 12
MOST_SERIES = 14


def main(arguments: Sequence[str] | None = None) -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["panels", "alerts", "query", "events", "spans"])
    parser.add_argument("dashboard", nargs="?", help="overview, speculation, incident or node; of query: an expression")
    parser.add_argument("--service", required=True)
    parser.add_argument("--node")
    parser.add_argument("--panel", default="", help="only panels whose title has this in it")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--where", action="append", default=[], help="events and spans: key=value")
    parser.add_argument("--last", type=int, default=20, help="events and spans: how many")
    parser.add_argument("--keys", default="", help="spans: what to print of each, comma-separated")
    parser.add_argument("--by", help="spans: how many there are of each value of this, and the mean of each of --keys")
    parser.add_argument("--url", default="http://127.0.0.1:19090")
    parser.add_argument("--out", type=Path, help="folder of events.jsonl and spans.jsonl")
    given = parser.parse_args(arguments)
    {"panels": _panels, "alerts": _alerts, "query": _query, "events": _told, "spans": _told}[given.what](given)


def _panels(given: argparse.Namespace) -> None:
    dashboard = json.loads((DASHBOARDS / f"{given.dashboard}.json").read_text())
    values = {**defaults(dashboard), "job": given.service, **({"node": given.node} if given.node else {})}
    described = {panel["title"]: panel for panel in panels(dashboard)}
    shown = ""
    for query in queries(dashboard):
        if given.panel.lower() not in query.panel.lower():
            continue
        if query.panel != shown:
            shown = query.panel
            _say(f"\n== {shown}")
            if given.panel:
                _say(f"   {described.get(shown, {}).get('description', '')}")
        expression = expand(query.expr, values, "2m")
        if query.kind == "prometheus":
            _series(given, expression)
        else:
            _say("   (made of events)" if query.kind == "loki" else "   (made of spans)")


def _alerts(given: argparse.Namespace) -> None:
    _series(given, f'ALERTS{{alertname=~"Specdecode.*", job=~"{given.service}|"}}')
    _series(given, f'ALERTS{{alertname=~"Specdecode.*", node=~"{given.service}-.*", job=""}}')


def _query(given: argparse.Namespace) -> None:
    _series(given, given.dashboard)


def _series(given: argparse.Namespace, expression: str) -> None:
    end = time.time()
    step = given.minutes * 60 / COLUMNS
    start = end - given.minutes * 60
    asked = urlencode({"query": expression, "start": start, "end": end, "step": step})
    with DIRECT.open(f"{given.url}/api/v1/query_range?{asked}", timeout=60) as response:
        found = json.load(response)["data"]["result"]
    times = [start + step * place for place in range(COLUMNS + 1)]
    if not found:
        _say("   no data")
        return
    _say("   " + " ".join(f"{time.strftime('%H:%M', time.gmtime(at)):>8}" for at in times))
    for series in found[:MOST_SERIES]:
        by_time = {round((float(at) - start) / step): float(value) for at, value in series["values"]}
        row = " ".join(f"{by_time[place]:8.4g}" if place in by_time else "       ." for place in range(COLUMNS + 1))
        labels = {name: value for name, value in series["metric"].items() if name not in {"job", "__name__"}}
        _say(f"   {row}  {series['metric'].get('__name__', '')}{labels}")
    if len(found) > MOST_SERIES:
        _say(f"   ... {len(found) - MOST_SERIES} more series")


def _told(given: argparse.Namespace) -> None:
    wanted = [condition.partition("=")[::2] for condition in [f"service={given.service}", *given.where]]
    found = [
        each for each in _lines(given.out / f"{given.what}.jsonl") if all(str(each.get(k)) == v for k, v in wanted)
    ]
    keys = [key for key in given.keys.split(",") if key]
    if given.by:
        _grouped(found, given.by, keys)
        return
    _say(f"{len(found)} in all, the last {given.last}, by when they began:")
    for each in sorted(found, key=lambda each: str(each["at"]))[-given.last :]:
        _say(json.dumps({key: each.get(key) for key in ["at", "node", *keys]} if keys else each))


def _grouped(found: Sequence[Mapping[str, Any]], by: str, keys: Sequence[str]) -> None:
    for value in sorted({str(each.get(by)) for each in found}):
        group = [each for each in found if str(each.get(by)) == value]
        numbers = {key: [each[key] for each in group if isinstance(each.get(key), (int, float))] for key in keys}
        means = {key: round(sum(some) / len(some), 4) for key, some in numbers.items() if some}
        _say(f"{value}: {len(group)}, {means}")


def _lines(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open() as file:
        for line in file:
            if line.endswith("\n"):
                yield json.loads(line)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
