"""What a make target says where it cannot be run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.programs import ROOT

pytestmark = pytest.mark.source


@pytest.mark.parametrize("target", ["lint", "generate", "docs"])
def test_on_a_python_without_the_classes_of_dashboards_it_says_which_is_needed(tmp_path: Path, target: str) -> None:
    if shutil.which("make") is None:
        pytest.skip("needs the program make")
    old = tmp_path / "bin" / "python"
    old.parent.mkdir()
    # As 3.10 it refuses what asks for 3.11. Anything else that is asked of it would be seen.
    old.write_text('#!/bin/sh\ncase "$2" in *"(3, 11)"*) exit 1 ;; esac\necho "asked: $*"\n')
    old.chmod(0o755)
    command = ["make", "--no-print-directory", target, f"VENV={tmp_path}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    (line,) = done.stdout.splitlines()
    assert line.startswith("Python 3.11 or newer is needed")
    assert f"make {target} PYTHON=" in line
