"""Runs the real promtool on the shipped rules."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

PROMETHEUS = Path(__file__).parents[2] / "collector" / "prometheus"


def promtool(*arguments: str | Path, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """Run promtool. Skips the test where it is not installed."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("needs the program promtool, of Debian's package prometheus")
    return subprocess.run(
        [program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        # Short-lived and small: more memory for fewer collections.
        env={**os.environ, "GOGC": "400"},
        check=False,
    )
