"""Runs a program in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[1]
QUIET = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def run_program(program: str, *arguments: str, timeout: float = 120, **variables: str) -> str:
    """Run a program without the OTEL_* variables of this process, with a limit of time in seconds; return its stdout.

    Raises:
        AssertionError: It failed, did not end in time, or wrote of an exception to stderr. Its output comes last.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(ROOT))))
    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program), *arguments],
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=ROOT,
            env={**inherited, **QUIET, "PYTHONPATH": path, **variables},
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _failed(f"it did not end within {timeout:g} s", error.stdout, error.stderr) from None
    # Not by assert: pytest adds the program and what it wrote once more, and the end of a long message is what is read.
    if done.returncode != 0:
        raise _failed(f"it ended with code {done.returncode}", done.stdout, done.stderr)
    if "Traceback" in done.stderr:
        raise _failed("it told of an exception", done.stdout, done.stderr)
    return done.stdout


def _failed(why: str, *outputs: str | bytes | None) -> AssertionError:
    """Return an error that ends with what a program wrote: to stdout, then to stderr."""
    written = [each.decode(errors="replace") if isinstance(each, bytes) else each or "" for each in outputs]
    return AssertionError("\n".join([why, *filter(None, written)]))
