"""What a terminal shows of a run."""

from __future__ import annotations

import errno
import io
import sys
from pathlib import Path

import pytest

pytest.importorskip("rich", reason="needs the [cli] extra")
pytest.importorskip("msgspec", reason="needs the [acceptance] extra")
pytest.importorskip("scipy", reason="needs the [acceptance] extra")

from rich.console import Console

from otel_specdecode.acceptance import terminal
from otel_specdecode.acceptance.records import Arm
from tests.acceptance.fakes import arms, fake_run, prompts
from tests.acceptance.report.cases import written


def test_a_run_fits_a_terminal_of_80_columns_and_its_commands_can_be_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("runs/first")
    run = fake_run(arms([2, 4]), prompts(12))
    written(run, folder)
    screen = io.StringIO()
    monkeypatch.setattr(terminal, "make_console", lambda: Console(file=screen, width=80, highlight=False))

    terminal.show_run(folder)

    lines = [line.rstrip() for line in screen.getvalue().splitlines()]
    assert [line for line in lines if "…" in line] == []
    words = [len(line.split()) for line in lines if line.startswith("k=")]
    assert words == [10, 10]  # of 8 columns, one with an interval
    assert lines[-3:] == [
        "Next: otel-specdecode report runs/first -o report.html",
        "      otel-specdecode gates init -o gates.toml",
        "      otel-specdecode gate runs/first --policy gates.toml",
    ]


def test_names_that_look_like_markup_and_folders_with_spaces_are_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = fake_run((Arm(0), Arm(2, "[/red]")), prompts(3))
    written(run, tmp_path / "a [b]")
    screen = io.StringIO()
    monkeypatch.setattr(terminal, "make_console", lambda: Console(file=screen, width=300, highlight=False))

    terminal.show_run(tmp_path / "a [b]")

    assert "k=2 [/red]" in screen.getvalue()
    assert f"report '{tmp_path}/a [b]' -o" in screen.getvalue()


def test_the_best_of_each_number_of_requests_at_once_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    levels = tuple(arm for level in (1, 2, 4) for arm in arms([2, 4], concurrency=level))
    run = fake_run(levels, prompts(6))
    written(run, tmp_path / "run")
    screen = io.StringIO()
    monkeypatch.setattr(terminal, "make_console", lambda: Console(file=screen, width=300, highlight=False))

    terminal.show_run(tmp_path / "run")

    told = screen.getvalue()
    for begins in ("Take k=4: ", "With 2 requests at once, take k=4 c=2: ", "With 4 requests at once, take k=4 c=4: "):
        assert f"\n{begins}" in told


@pytest.mark.parametrize("error", [BrokenPipeError, SystemExit, OSError(errno.ENOSPC, "No space left on device")])
def test_a_reader_that_goes_away_or_a_full_disk_ends_no_run(
    error: type[BaseException] | BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        asked.append(1)
        raise error

    asked: list[int] = []
    monkeypatch.setattr(terminal, "say", gone)
    with terminal.progress("Requests") as step:
        step(5, 10)
        step(10, 10)
    assert len(asked) == 2


def test_a_closed_output_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with terminal.progress("Requests") as step:
        step(10, 10)
