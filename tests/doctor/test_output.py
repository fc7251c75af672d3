"""The standard output and error may be closed, full, or read by somebody who goes away; the real command, alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("click", reason="needs the [cli] extra")
pytest.importorskip("rich", reason="needs the [cli] extra")

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="takes a POSIX shell")

COMMAND = """
from otel_specdecode.cli import main
from otel_specdecode.doctor import bundle, command
from otel_specdecode.doctor.checks import Check, Report, Section
LONG = Check("a", "first", "STATUS", "\\udc80 \\U0001f999 " + "word " * 30000)
command.gather = lambda question: Report((Section("one", "One", (LONG,)),))
bundle._installed = list
main()
"""


def doctor(redirected: str, *, status: str = "ok", **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a shell that redirects its outputs."""
    program = COMMAND.replace("STATUS", status)
    shell = f'"$0" -c "$1" doctor {redirected}'
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {shell}", sys.executable, program],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
        env={**os.environ, **environ},
    )


@pytest.mark.parametrize(("status", "code"), [("ok", 0), ("error", 1)])
@pytest.mark.parametrize("redirected", ["| head -1", "--json | head -1", ">&-", "--json >&-", ">&- 2>&-"])
def test_an_output_that_nobody_reads_changes_neither_status_nor_adds_a_traceback(
    redirected: str, status: str, code: int
) -> None:
    finished = doctor(redirected, status=status)
    assert (finished.returncode, finished.stderr) == (code, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_an_output_that_is_full_is_told_with_a_status_of_its_own() -> None:
    finished = doctor("> /dev/full")
    assert finished.stderr == "The report could not be written (No space left on device).\n"
    assert finished.returncode == 3
    assert doctor("> /dev/full", status="error").returncode == 1


def test_an_output_that_knows_no_such_letters_gets_escapes() -> None:
    finished = doctor("", PYTHONIOENCODING="ascii")
    assert finished.returncode == 0
    assert r"\U0001f999" in finished.stdout
    assert r"\udc80" in finished.stdout


def test_json_is_ascii() -> None:
    text = doctor("--json").stdout
    assert text.isascii()
    assert "\U0001f999" in json.loads(text)["sections"][0]["checks"][0]["detail"]


def test_a_capture_takes_no_error_output(tmp_path: Path) -> None:
    finished = doctor(f"--json --capture '{tmp_path / 'c.json'}' 2>&- | tail -1")
    assert (finished.returncode, finished.stdout) == (0, "}\n")
    assert (tmp_path / "c.json").is_file()
