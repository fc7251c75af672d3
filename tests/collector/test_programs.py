"""What becomes of a program that does not start, and what is said of a port."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.programs import Program, ProgramError, taken
from tests.e2e.metrics_pages import served
from tests.e2e.pipeline import free_ports
from tests.proc import wait_for


def test_a_program_that_ends_at_once_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    command = ["/bin/sh", "-c", "echo 'no such option'; exit 3"]
    program = Program("the program", command, {"PATH": os.defpath}, "http://127.0.0.1:9", tmp_path / "log")
    with pytest.raises(ProgramError, match="the program ended; it said:\nno such option"):
        program.start()


def test_a_program_that_cannot_be_run_is_an_error(tmp_path: Path) -> None:
    program = Program("the program", [str(tmp_path)], {}, "http://127.0.0.1:9", tmp_path / "log")
    with pytest.raises(ProgramError, match="the program cannot be started: Permission denied"):
        program.start()


@pytest.fixture
def stubborn(tmp_path: Path) -> Iterator[Program]:
    """A program that answers and does not end when it is asked to."""
    with served("") as page:
        command = ["/bin/sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"]
        program = Program("the program", command, {"PATH": os.defpath}, f"http://{page.address}/", tmp_path / "log")
        program.start()
        wait_for(lambda: "ready" in program.said())
        yield program
        program.clean_up(hurried=lambda: True)


def test_a_program_that_is_slow_to_end_is_told_of_once_and_killed_in_the_end(
    stubborn: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collector.programs.SLOW_S", 0.1)
    monkeypatch.setattr("collector.programs.STOP_S", 0.5)
    said: list[str] = []
    stubborn.clean_up(said.append)
    assert said == ["Waiting for the program to end ..."]
    assert stubborn.process
    assert stubborn.process.returncode == -signal.SIGKILL


def test_a_program_that_is_slow_to_end_is_killed_at_once_for_one_in_a_hurry(stubborn: Program) -> None:
    said: list[str] = []
    stubborn.clean_up(said.append, lambda: True)
    assert stubborn.ended()
    assert said == []


def test_a_program_is_asked_directly_and_not_through_a_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("urllib.request._opener", None)  # keeps the proxies that the first to ask has found
    with served("") as page:
        assert Program("the program", [], {}, f"http://{page.address}/", tmp_path / "log").works()


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_a_port_is_taken_while_somebody_listens(address: str) -> None:
    (port,) = free_ports(1)
    assert not taken(port)
    with socket.create_server((address, port)):
        assert taken(port)
    assert not taken(port)


def test_a_port_is_taken_while_somebody_holds_it_without_listening() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        assert taken(holder.getsockname()[1])
