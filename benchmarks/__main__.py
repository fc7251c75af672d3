"""Runs every benchmark, or some, and prints what they found."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.all_threads import all_threads
from benchmarks.guard import guard
from benchmarks.host_readings import host_readings
from benchmarks.in_the_loop import in_the_loop
from benchmarks.memory import memory
from benchmarks.outside_the_loop import outside_the_loop
from benchmarks.real_engine import real_engine
from benchmarks.report import machine, show, write
from benchmarks.results import Section
from benchmarks.servers import real_servers
from benchmarks.thinning import thinning
from benchmarks.token_gaps import token_gaps

BENCHMARKS: dict[str, Callable[..., Section]] = {
    "loop": in_the_loop,
    "request": outside_the_loop,
    "threads": all_threads,
    "gaps": token_gaps,
    "memory": memory,
    "thinning": thinning,
    "engine": real_engine,
    "host": host_readings,
    "guard": guard,
    "servers": real_servers,
}

QUICK: dict[str, dict[str, int]] = {
    "loop": {"repetitions": 5},
    "request": {"requests": 2, "repetitions": 5},
    "threads": {"tokens": 200, "repetitions": 3},
    "gaps": {"tokens": 100, "repetitions": 3},
    "memory": {"longest": 10_000},
    "thinning": {"draws": 5},
    "engine": {"tokens": 20, "repetitions": 3},
    "guard": {"requests": 50, "repetitions": 5},
    "host": {"readings": 4, "repetitions": 3, "calls": 5, "tokens": 20},
    "servers": {"rounds": 2, "short": 4, "long": 2},
}
"""Enough to see that everything runs; its verdicts mean nothing."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen benchmarks."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="What the instrumentation costs.")
    parser.add_argument("--out", type=Path, default=Path("bench-out"), help="folder for results.json and pyperf.json")
    parser.add_argument("--quick", action="store_true", help="a smoke run of seconds; its verdicts mean nothing")
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, metavar="NAME", help=", ".join(BENCHMARKS))
    chosen = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 150)
    before, sections = machine(), []
    for name, benchmark in BENCHMARKS.items():
        if chosen.only and name not in chosen.only:
            continue
        section = benchmark(**(QUICK[name] if chosen.quick else {}))
        show(section, console)
        sections.append(section)
    write(sections, chosen.out, before)
    console.print(f"{chosen.out}/results.json; load average {before['load_average']} to {machine()['load_average']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
