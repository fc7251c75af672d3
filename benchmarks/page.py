"""Writes the tables of a run into a page: `python -m benchmarks.page bench-out/results.json docs/performance.md`.

A table stands between `<!-- results: TITLE -->` and `<!-- end -->`; nothing else of the page is touched.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from benchmarks.report import written
from benchmarks.statistics import Estimate

BLOCK = re.compile(r"(<!-- results: (?P<title>[^>]+) -->\n).*?(<!-- end -->)", re.DOTALL)
MACHINE = "Machine"


def filled(page: str, found: dict[str, Any]) -> str:
    """Return a page with the tables of a run.

    Raises:
        KeyError: If the page asks for a section that the run does not have.
    """
    tables = {section["title"]: _table(section) for section in found["sections"]}
    tables[MACHINE] = _machine(found)
    return BLOCK.sub(lambda block: f"{block[1]}{tables[block['title']]}{block[3]}", page)


def _table(section: dict[str, Any]) -> str:
    lines = ["| case | variant | median [95 %] | compared | target: verdict |", "|---|---|---|---|---|"]
    before = None
    for row in section["rows"]:
        case = "" if row["case"] == before else row["case"]
        before = row["case"]
        value = f"{written(Estimate(**row['value']))} {row['unit']}"
        told = "; ".join(map(_told, row["comparisons"]))
        held = "; ".join(_held(each) for each in row["comparisons"] if each["target"])
        lines.append(f"| {case} | {row['variant']} | {value} | {told} | {held} |")
    return "\n".join(lines) + "\n"


def _told(comparison: dict[str, Any]) -> str:
    return " ".join(filter(None, (written(Estimate(**comparison["estimate"])), comparison["unit"], comparison["what"])))


def _held(comparison: dict[str, Any]) -> str:
    target = comparison["target"]
    bound = f"{target['side']} {target['bound']:g} {comparison['unit']}".strip()
    return f"{bound}: **{comparison['verdict']}**"


def _machine(found: dict[str, Any]) -> str:
    began, ended = found["began"], found["ended"]
    packages = ", ".join(f"{name} {version}" for name, version in began["packages"].items())
    loads = " to ".join(f"{each['load_average'][0]:.1f}" for each in (began, ended) if each["load_average"])
    return (
        f"{began['cores']} shared {began['machine']} cores, {began['system']}, Python {began['python']}, {packages}; "
        f"load average {loads or 'unknown'} (above {began['cores']}: other programs had the cores as well).\n"
    )


def main(results: str, page: str) -> int:
    """Fill a page from a results file."""
    path = Path(page)
    found = json.loads(Path(results).read_text(encoding="utf-8"))
    path.write_text(filled(path.read_text(encoding="utf-8"), found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
