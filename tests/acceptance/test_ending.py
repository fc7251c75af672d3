from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

pytest.importorskip("msgspec", reason="needs the [acceptance] extra")

from otel_specdecode.acceptance.ending import interruptible, told
from otel_specdecode.acceptance.records import RunHead
from otel_specdecode.acceptance.storage import begin

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    """Every signal does what it usually does, whoever runs these tests."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    begin(tmp_path / "a run", RunHead("run", "sweep", 0.0, "mlx", {}, {}, (), ()))
    return tmp_path / "a run"


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_a_run_with_its_status_and_how_to_go_on(
    number: int, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended, interruptible(folder, resumable=True):
        os.kill(os.getpid(), number)

    assert ended.value.code == 128 + number
    said = capsys.readouterr().err
    assert f"what ended is kept in {folder}." in said
    assert f"--resume --out '{folder}'" in said
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_can_be_cleaned_up_is_before_it_ends(folder: Path) -> None:
    cleaned = []

    def run() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            cleaned.append(signal.getsignal(signal.SIGTERM))

    with pytest.raises(SystemExit), interruptible(folder, resumable=True):
        run()
    assert cleaned == [signal.SIG_DFL]  # a second one no longer waits for this


def test_a_run_that_has_not_begun_keeps_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), interruptible(tmp_path / "none", resumable=True):
        raise KeyboardInterrupt
    assert "before there was anything to keep" in capsys.readouterr().err


def test_a_soak_is_not_said_to_go_on(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), interruptible(folder, resumable=False):
        raise KeyboardInterrupt
    assert "--resume" not in capsys.readouterr().err


def test_a_closed_terminal_that_is_to_be_ignored_is_ignored(folder: Path) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup has it
    with interruptible(folder, resumable=True):
        os.kill(os.getpid(), signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


def test_another_thread_runs_without_handlers(folder: Path) -> None:
    found: list[object] = []

    def run() -> None:
        with interruptible(folder, resumable=True):
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [signal.SIG_DFL]


def test_ctrl_c_before_a_run_has_the_same_status() -> None:
    with pytest.raises(SystemExit) as ended, told():
        raise KeyboardInterrupt
    assert ended.value.code == 130


def test_an_extra_that_is_missing_is_named() -> None:
    with pytest.raises(click.ClickException, match=r"needs the extra \[acceptance\]"), told():
        raise ModuleNotFoundError("no", name="scipy")
