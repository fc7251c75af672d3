"""Writes the Grafana dashboards.

- ``python -m collector.grafana`` writes the files.
- ``python -m collector.grafana --check`` exits with 1 and names the files that are out of date or made by nobody.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from collector.grafana.files import FOLDER, outputs
from collector.grafana.gates import DashboardError

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Run the command line on the repository at ``root``; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m collector.grafana", description="Generate the Grafana dashboards.")
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if a file is out of date")
    options = parser.parse_args(arguments)
    try:
        generated = outputs()
    except (DashboardError, KeyError) as error:
        print(error, file=sys.stderr)
        return 1
    orphans = sorted({f"{FOLDER}/{path.name}" for path in (root / FOLDER).glob("*")} - generated.keys())
    stale = [name for name, text in generated.items() if not _holds(root / name, text)]
    if options.check:
        for name in stale:
            print(f"{name} is out of date: run python -m collector.grafana", file=sys.stderr)
        for name in orphans:
            print(f"{name} is made by nobody", file=sys.stderr)
        return 1 if stale or orphans else 0
    for name in stale:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(generated[name], encoding="utf-8")
        print(f"wrote {name}")
    return 0


def _holds(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
