"""Runs the guard that the environment asks for, or says why there is none. Needs no extra to say so."""

from __future__ import annotations

import itertools
import os
import re
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

from otel_specdecode.generation.faults import warn_once
from otel_specdecode.telemetry.guarding import show_disabled
from otel_specdecode.user_files import UnusableError, read_file

GUARD_POLICY = "OTEL_SPECDECODE_GUARD_POLICY"
"""Environment variable: the policy file of a guard that is to run in this process."""

_WRONG_USE = 2
_MISSING = 'the guard needs its extra [guard]: pip install "otel-specdecode[guard]"'
_MOST_BYTES = 1_000_000
_DISABLE = re.compile(r"""\s*(["']?)on_error\1\s*=\s*(["'])disable\2""")


def start_guard_from_environment() -> None:
    """Run the guard that the environment asks for, unless one runs.

    Raises:
        SystemExit: It cannot run, and its policy does not say that the program is to go on without.
    """
    path = os.environ.get(GUARD_POLICY)
    if not path:
        return
    try:
        from otel_specdecode.guarded import running_guard, start_guard

        if running_guard() is None:
            start_guard(path)
    except (ValueError, OSError, ModuleNotFoundError) as error:
        why = _MISSING if isinstance(error, ModuleNotFoundError) else str(error)
        unusable = f"the policy that {GUARD_POLICY} names cannot be used"
        if _says_disable(path):
            show_disabled()
            why = why.replace(path, Path(path).name)  # folders are nobody's business in a log
            warn_once(f"there is no guard, and all requests run as asked: {unusable}. {why}")
            return
        sys.stderr.write(f"otel-specdecode: {unusable}.\n{why}\n")
        _stop()


def _stop() -> NoReturn:
    """End the program as after a wrong use. While Python itself starts, an exception would end it as a crash of its."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == "site":
            sys.stderr.flush()
            os._exit(_WRONG_USE)
        frame = frame.f_back
    raise SystemExit(_WRONG_USE) from None


def _says_disable(path: str) -> bool:
    """Return whether a policy that cannot be used says at least that a program is to go on without it."""
    try:
        lines = read_file(path, "policy file", _MOST_BYTES).decode("utf-8-sig").splitlines()
    except (UnusableError, ValueError):
        return False
    top = itertools.takewhile(lambda line: not line.lstrip().startswith("["), lines)
    return any(_DISABLE.match(line) for line in top)
