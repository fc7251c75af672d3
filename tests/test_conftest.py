"""The checks that conftest.py puts around every test can fail: a pytest of its own runs tests that break them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
BROKEN = """
import subprocess, threading, pytest
stop = threading.Event()
def test_a_thread(): threading.Thread(target=stop.wait, daemon=True).start()
def test_a_child(): globals()["child"] = subprocess.Popen(["sleep", "60"])
def test_nothing(): pass
def test_not_there(): pytest.skip("needs the [otlp] extra")
def test_may_be_absent(): pytest.skip("needs the [llama-cpp] extra")
def test_another_reason(): pytest.skip("not on this system")
def teardown_module(): globals()["child"].kill(); child.wait(); stop.set()
"""


@pytest.mark.parametrize(
    ("require_all", "expected"),
    [("0", {"passed": 3, "skipped": 3, "errors": 2}), ("1", {"passed": 3, "skipped": 2, "errors": 2, "failed": 1})],
)
def test_what_is_left_behind_or_not_there_fails(tmp_path: Path, require_all: str, expected: dict[str, int]) -> None:
    shutil.copy(HERE / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    mlx: x\n    source: x\n")
    (tmp_path / "test_broken.py").write_text(BROKEN)
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "OTEL_SPECDECODE_REQUIRE_ALL": require_all},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    summary = finished.stdout.strip().splitlines()[-1]
    assert {what: int(count) for count, what in re.findall(r"(\d+) (\w+)", summary.partition(" in ")[0])} == expected
