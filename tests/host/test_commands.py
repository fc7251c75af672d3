"""A command's output, or why there is none."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from otel_specdecode.host.commands import Commands, Output

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no shell on this system")


def program(folder: Path, script: str) -> str:
    """The full path of a small program."""
    path = folder / "tool"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_the_output_of_a_command_that_succeeds(tmp_path: Path) -> None:
    assert Commands()(program(tmp_path, 'echo "$1 $2"'), "-g", "a b; c $HOME") == Output("-g a b; c $HOME\n")


def test_a_command_speaks_no_language_and_sees_nothing_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    monkeypatch.setenv("A_SECRET", "secret")
    written = Commands()(program(tmp_path, 'echo "$LC_ALL,$LANG,$A_SECRET,$HOME"')).text
    assert written == "C,,,\n"


def test_a_program_that_is_not_there_is_a_reason_without_its_folder(tmp_path: Path) -> None:
    assert Commands()(str(tmp_path / "pmset"), "-g") == Output("", "pmset is not there")


def test_a_program_that_may_not_run_is_a_reason(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("")
    assert Commands()(str(tmp_path / "tool")) == Output("", "tool could not be run (PermissionError)")


def test_an_argument_that_no_program_can_be_given_is_a_reason(tmp_path: Path) -> None:
    assert Commands()(program(tmp_path, "true"), "\0") == Output("", "tool could not be run (ValueError)")


def test_a_command_that_fails_keeps_what_it_wrote(tmp_path: Path) -> None:
    """sysctl fails if one of many names is unknown, and still prints the others."""
    assert Commands()(program(tmp_path, "echo hw.memsize: 1; exit 3")) == Output(
        "hw.memsize: 1\n", "tool ended with status 3"
    )


def test_a_command_that_hangs_is_ended(tmp_path: Path) -> None:
    began = time.monotonic()
    output = Commands(timeout=0.1)(program(tmp_path, "exec sleep 30"))
    assert output == Output("", "tool took longer than 0.1 s")
    assert time.monotonic() - began < 5


def test_the_time_limit_is_two_seconds_unless_said_otherwise() -> None:
    assert Commands()._timeout == 2


def test_bytes_that_are_no_text_do_no_harm(tmp_path: Path) -> None:
    assert Commands()(program(tmp_path, r"printf 'a\377b'")).text == "a\ufffdb"


def test_a_command_writes_nothing_to_the_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert Commands()(program(tmp_path, "echo trouble >&2")) == Output("")
    assert capfd.readouterr() == ("", "")


def test_a_command_reads_nothing_from_the_terminal(tmp_path: Path) -> None:
    terminal, typed = os.pipe()
    kept = os.dup(0)
    os.dup2(terminal, 0)
    try:
        assert Commands()(program(tmp_path, "cat")) == Output("")
    finally:
        os.dup2(kept, 0)
        for descriptor in (kept, terminal, typed):
            os.close(descriptor)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors cannot be listed on this system")
def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    command = program(tmp_path, "echo")
    Commands()(command)
    before = sorted(os.listdir("/proc/self/fd"))
    Commands()(command)
    Commands(timeout=0.05)(program(tmp_path, "exec sleep 30"))
    assert sorted(os.listdir("/proc/self/fd")) == before
