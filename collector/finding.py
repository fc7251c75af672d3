"""Where the collector and Prometheus are looked for on this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from collector.programs import ProgramError

COLLECTOR_VARIABLE = "OTEL_SPECDECODE_COLLECTOR"
COLLECTOR_NAMES = ("otelcol-specdecode", "otelcol-contrib")
PROMETHEUS_VARIABLE = "OTEL_SPECDECODE_PROMETHEUS"
PROMETHEUS_NAMES = ("prometheus",)

BUILDS = "~/.cache/otel-specdecode"
"""Where a collector that was built is looked for, `XDG_CACHE_HOME` in the place of `~/.cache` where it is set."""


def find_collector(environment: Mapping[str, str]) -> str | None:
    """Return the path of a collector: named by a variable, on PATH, or the newest one built; None where there is none.

    It is absolute, since programs are started in other folders.

    Raises:
        ProgramError: The variable names no program.
    """
    return _find(environment, COLLECTOR_VARIABLE, COLLECTOR_NAMES) or _newest_built(environment)


def find_prometheus(environment: Mapping[str, str]) -> str | None:
    """Return the absolute path of Prometheus: named by a variable, or on PATH; None where there is none.

    Raises:
        ProgramError: The variable names no program.
    """
    return _find(environment, PROMETHEUS_VARIABLE, PROMETHEUS_NAMES)


def _find(environment: Mapping[str, str], variable: str, names: Sequence[str]) -> str | None:
    path = environment.get("PATH", "")
    named = environment.get(variable)
    found = next(filter(None, (shutil.which(name, path=path) for name in ([named] if named else names))), None)
    if named and found is None:
        raise ProgramError(f"{variable} names nothing that can be run.")
    return str(Path(found).absolute()) if found else None


def _newest_built(environment: Mapping[str, str]) -> str | None:
    caches = environment.get("XDG_CACHE_HOME")
    folder = Path(caches, "otel-specdecode") if caches else Path(BUILDS).expanduser()
    built = [
        path
        for pattern in ("*/otelcol-specdecode", "*/*/otelcol-specdecode")
        for path in folder.glob(pattern)
        if os.access(path, os.X_OK) and path.is_file()
    ]
    return str(max(built, key=lambda path: path.stat().st_mtime).absolute()) if built else None
