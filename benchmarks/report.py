"""The tables on the terminal, and the files for programs: results.json, and samples in pyperf's own format."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pyperf
from rich.console import Console
from rich.table import Table

from benchmarks.results import Comparison, Section
from benchmarks.statistics import CONFIDENCE, Estimate, Target

PACKAGES = (
    "opentelemetry-sdk",
    "opentelemetry-util-genai",
    "opentelemetry-instrumentation-fastapi",
    "mlx-lm",
    "llama-cpp-python",
    "genai-otel-instrument",
)
COLOURS = {"met": "green", "missed": "red", "unresolved": "yellow"}
TIME_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "us a token": 1e-6}


def show(section: Section, console: Console) -> None:
    """Print one section as a table."""
    table = Table(title=section.title, caption=section.note, title_justify="left", caption_justify="left")
    for heading in ("case", "variant", f"median [{CONFIDENCE:.0%}]", "unit", "compared", "target", "verdict"):
        table.add_column(heading)
    before = None
    for row in section.rows:
        if before not in (None, row.case):
            table.add_section()
        first = (row.case if row.case != before else "", row.variant, written(row.value), row.unit)
        before = row.case
        for place, line in enumerate(_lines(row.comparisons)):
            table.add_row(*(("", "", "", "") if place else first), *line)
    console.print(table)


def _lines(comparisons: Sequence[Comparison]) -> list[tuple[str, str, str]]:
    """Return a line for each comparison that is held against a target, and one for all others."""
    lines = [_held(each, each.target) for each in comparisons if each.target is not None]
    others = ", ".join(_told(each) for each in comparisons if each.target is None)
    return lines + ([(others, "", "")] if others or not lines else [])


def _told(comparison: Comparison) -> str:
    return " ".join(filter(None, (written(comparison.estimate), comparison.unit, comparison.what)))


def _held(comparison: Comparison, target: Target) -> tuple[str, str, str]:
    verdict = target.verdict(comparison.estimate)
    bound = f"{target.side} {target.bound:g} {comparison.unit}".strip()
    return _told(comparison), bound, f"[{COLOURS[verdict]}]{verdict}[/]"


def written(estimate: Estimate) -> str:
    """Return `value [low, high]` with digits that fit the value; the value alone where there is no spread."""
    digits = 0 if abs(estimate.value) >= 100 else 1 if abs(estimate.value) >= 10 else 2
    if estimate.low == estimate.high:
        return f"{estimate.value:.{digits}f}"
    return f"{estimate.value:.{digits}f} [{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]"


def machine() -> dict[str, Any]:
    """Return what a figure depends on, without names of hosts or users."""
    return {
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "load_average": os.getloadavg() if hasattr(os, "getloadavg") else None,
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def write(sections: list[Section], folder: Path, before: dict[str, Any]) -> None:
    """Write results.json and pyperf.json into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {"began": before, "ended": machine(), "sections": [_as_json(section) for section in sections]}
    (folder / "results.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    runs = [bench for section in sections for bench in _as_pyperf(section)]
    if runs:
        pyperf.BenchmarkSuite(runs).dump(str(folder / "pyperf.json"), replace=True)


def _as_json(section: Section) -> dict[str, Any]:
    found = asdict(section)
    for row, kept in zip(section.rows, found["rows"], strict=True):
        for comparison, each in zip(row.comparisons, kept["comparisons"], strict=True):
            each["verdict"] = comparison.target.verdict(comparison.estimate) if comparison.target else None
    return found


def _as_pyperf(section: Section) -> list[pyperf.Benchmark]:
    """Return samples that are times, for `python -m pyperf stats`, `hist` and `compare_to`."""
    units = {f"{row.case}/{row.variant}": row.unit for row in section.rows}
    made = []
    for name, samples in section.samples.items():
        factor = TIME_UNITS.get(units.get(name, ""))
        if factor is not None and min(samples) > 0:
            metadata = {"name": f"{section.title}: {name}", "unit": "second", "inner_loops": 1}
            run = pyperf.Run([each * factor for each in samples], metadata=metadata, collect_metadata=False)
            made.append(pyperf.Benchmark([run]))
    return made
