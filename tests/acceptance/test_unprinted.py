"""What a command prints may go nowhere: the disk is full, the reader went away, the encoding lacks a character."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("msgspec", reason="needs the [acceptance] extra")
pytest.importorskip("scipy", reason="needs the [acceptance] extra")
pytest.importorskip("matplotlib", reason="needs the [acceptance] extra")

from tests.acceptance.report.cases import sweep, written

FULL = Path("/dev/full")
PROGRAM = "from otel_specdecode.cli import main; main()"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(sweep(), tmp_path_factory.mktemp("unprinted") / "run")


def ended(*arguments: object, to: Path | None = None, **variables: str) -> tuple[int, str]:
    """The status of a command and what it said of errors; its output goes to a file, or to a reader that went away."""
    read, write = os.pipe()
    os.close(read)
    try:
        with open(os.devnull if to is None else to, "wb") as file:
            done = subprocess.run(
                [sys.executable, "-c", PROGRAM, *map(str, arguments)],
                stdout=write if to is None else file,
                stderr=subprocess.PIPE,
                env={**os.environ, **variables},
                text=True,
                timeout=120,
                check=False,
            )
    finally:
        os.close(write)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    return done.returncode, done.stderr


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
def test_on_a_full_disk_a_verdict_is_still_the_exit_status(folder: Path) -> None:
    status, said = ended("gate", folder, "--preset", "balanced", to=FULL)
    assert (status, said) == (3, "What was to be printed could not be written (No space left on device).\n")


def test_a_verdict_is_the_exit_status_though_nobody_reads_it(folder: Path) -> None:
    assert ended("gate", folder, "--preset", "balanced") == (3, "")


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("command", [("compare", "RUN", "RUN"), ("prompts", "show-mix", "tiny"), ("gates", "init")])
def test_on_a_full_disk_other_commands_say_so(folder: Path, command: tuple[str, ...]) -> None:
    arguments = [folder if each == "RUN" else each for each in command]
    status, said = ended(*arguments, to=FULL)
    assert (status, said) == (1, "Error: what was to be printed could not be written (No space left on device).\n")


def test_where_the_encoding_lacks_a_character_another_stands_for_it(folder: Path, tmp_path: Path) -> None:
    plain = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    status, said = ended("compare", folder, folder, to=tmp_path / "out.txt", **plain)
    assert (status, said) == (0, "")
    assert b"?" in (tmp_path / "out.txt").read_bytes()
