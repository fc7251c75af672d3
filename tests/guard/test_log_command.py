from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("click", reason="needs the [cli] extra")
pytest.importorskip("rich", reason="needs the [cli] extra")

import click

from otel_specdecode.cli import main
from otel_specdecode.generation.transition import Lane
from otel_specdecode.guard import log_command
from otel_specdecode.guard.log_command import following
from otel_specdecode.guard.trail import Trail, read_trail
from tests.guard.trails import A_TRANSITION, NOON, a_trail, transition, write_trail

MACHINE = transition(
    60,
    lane=Lane(),
    before="closed",
    after="limited",
    rung_after="streams",
    trigger="swap_growth",
    value=1.6e9,
    threshold=1.5e9,
    samples=1,
    window_seconds=0.0,
    observe_only=True,
)
BACK = transition(
    120,
    before="open",
    after="probing",
    rung_before="autoregressive",
    rung_after="k=2",
    trigger="probe",
    reason=None,
    value=None,
    threshold=None,
)
SESSION = transition(180, lane=Lane("session", "acme", "llama_cpp"))

Run = Callable[..., tuple[int, list[str], str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Trails of two processes."""
    write_trail(tmp_path, [A_TRANSITION, BACK])
    write_trail(tmp_path, [MACHINE, SESSION])
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `guard log` and returns its exit status, the lines that it printed, and what it said of itself."""

    def run(*arguments: object) -> tuple[int, list[str], str]:
        with pytest.raises(SystemExit) as ended:
            main(["guard", "log", *map(str, arguments)])
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out.splitlines(), err

    return run


def test_a_pipe_is_no_trail_and_is_not_waited_for(tmp_path: Path, run: Run) -> None:
    os.mkfifo(tmp_path / "fifo.jsonl")
    status, _, err = run(tmp_path / "fifo.jsonl")
    assert status == 2
    assert "is neither a folder nor a file" in " ".join(err.split())


def test_in_a_pipe_a_timeline_is_aligned_text(folder: Path, run: Run) -> None:
    status, lines, err = run(folder)
    pid = str(os.getpid())
    assert (status, err) == (0, "")
    cells = [[cell.strip() for cell in line.split("  ") if cell] for line in lines]
    assert cells == [
        [
            "2026-01-01T12:00:00.123Z",
            pid,
            "tenant acme",
            "mlx tiny draft_model",
            "closed -> open",
            "as_asked -> autoregressive",
            "break_even",
            "0.875, bound 1 (200 in 12.5 s)",
        ],
        [
            "2026-01-01T12:01:00.123Z",
            pid,
            "process",
            "machine",
            "closed -> limited",
            "as_asked -> streams",
            "swap_growth",
            "1.6e+09, bound 1.5e+09 (1 in 0 s)",
            "observe only",
        ],
        [
            "2026-01-01T12:02:00.123Z",
            pid,
            "tenant acme",
            "mlx tiny draft_model",
            "open -> probing",
            "autoregressive -> k=2",
            "probe",
        ],
        [
            "2026-01-01T12:03:00.123Z",
            pid,
            "session acme",
            "llama_cpp",
            "closed -> open",
            "as_asked -> autoregressive",
            "break_even",
            "0.875, bound 1 (200 in 12.5 s)",
        ],
    ]
    for column in range(7):
        assert len({line.index(cell[column]) for line, cell in zip(lines, cells, strict=True)}) == 1


def test_on_a_terminal_it_is_a_table(folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "250")
    status, lines, _ = run(folder)
    assert status == 0
    assert "trigger" in "\n".join(lines)
    assert "\x1b[1;31mclosed -> open" in "\n".join(lines)


def test_a_terminal_that_is_too_narrow_for_the_table_has_the_lines_of_a_pipe(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_a_pipe = run(folder)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    assert run(folder) == in_a_pipe


def test_a_folder_that_is_not_there_is_said_to_come_with_the_first_decision(tmp_path: Path, run: Run) -> None:
    status, lines, err = run(tmp_path / "audit")
    assert (status, lines) == (2, [])
    assert "audit is not there. A guard makes its folder at its first decision" in " ".join(err.split())


def test_that_there_is_nothing_to_show_is_said(folder: Path, run: Run) -> None:
    (folder / "empty").mkdir()
    assert run(folder / "empty") == (0, [], "Nothing was decided yet.\n")
    assert run(folder, "--tenant", "other") == (0, [], "None of 4 decisions was asked for.\n")


def test_a_reader_who_has_enough_is_no_error(folder: Path) -> None:
    script = "import sys; from otel_specdecode.cli import main; main()"
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-c", script, "guard", "log", str(folder)]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    os.close(write)
    assert "cannot be read" not in done.stderr
    assert "Traceback" not in done.stderr


def test_as_json_it_is_a_line_with_everything_for_each(folder: Path, run: Run) -> None:
    status, lines, _ = run(folder, "--json")
    said = [json.loads(line) for line in lines]
    assert status == 0
    assert [each["trigger"] for each in said] == ["break_even", "swap_growth", "probe", "break_even"]
    assert said[0]["at_ns"] == NOON
    assert {each["number"] for each in said} == {1, 2}
    assert said[0]["process"] == said[2]["process"] != said[1]["process"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--since", "2026-01-01T12:01:00.123456789Z"], [1, 2, 3]),
        (["--since", "2026-01-01T13:01:01+01:00"], [2, 3]),
        (["--until", "2026-01-01T12:01:00Z"], [0]),
        (["--until", "2026-01-01 12:01"], [0]),
        (["--since", "1s"], []),
        (["--until", "1d"], [0, 1, 2, 3]),
        (["--scope", "process"], [1]),
        (["--scope", "session"], [3]),
        (["--tenant", "acme"], [0, 2]),
        (["--session", "acme"], [3]),
        (["--tenant", "other"], []),
        (["--trigger", "probe"], [2]),
        (["--trigger", "probe", "--trigger", "swap_growth"], [1, 2]),
        (["--tenant", "acme", "--trigger", "probe"], [2]),
    ],
)
def test_some_can_be_asked_for(
    folder: Path, run: Run, options: list[str], expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_command, "time", SimpleNamespace(time_ns=lambda: NOON + 2 * 86_400 * 10**9))
    status, lines, _ = run(folder, "--json", *options)
    assert status == 0
    assert [(json.loads(line)["at_ns"] - NOON) // (60 * 10**9) for line in lines] == expected
    assert len(run(folder, *options)[1]) == len(expected)


def test_a_time_that_is_none_is_refused(folder: Path, run: Run) -> None:
    status, lines, err = run(folder, "--since", "yesterday")
    assert (status, lines) == (2, [])
    assert "'yesterday' is neither a time" in err


def test_lines_that_were_taken_away_or_altered_are_told_and_the_status_is_1(folder: Path, run: Run) -> None:
    first, second = sorted(folder.iterdir())
    lines = first.read_bytes().splitlines(keepends=True)
    first.write_bytes(lines[0] + lines[2])
    second.write_bytes(second.read_bytes().replace(b"session", b"tenant"))
    status, lines_out, err = run(folder)
    assert (status, len(lines_out)) == (1, 2)
    assert err.splitlines() == [
        "1 line not as written: torn or altered.",
        "1 line missing: taken away after they were written.",
    ]


def test_a_line_that_is_being_written_is_told_and_the_status_is_0(folder: Path, run: Run) -> None:
    first, _ = sorted(folder.iterdir())
    first.write_bytes(first.read_bytes()[:-10])
    status, lines, err = run(folder)
    assert (status, len(lines)) == (0, 3)
    assert err.startswith("1 line without an end: being written")


def test_lines_that_were_lost_are_told_and_the_status_is_0(tmp_path: Path, run: Run) -> None:
    trail = a_trail(tmp_path, most_waiting=0)
    for _ in range(3):
        trail.write(A_TRANSITION)
    trail.close()
    status, lines, err = run(tmp_path)
    assert (status, lines) == (0, [])
    assert err.startswith("3 lines lost when written")


def test_an_error_names_a_file_without_its_folder(folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    path = min(folder.iterdir())

    def fail(*_: object) -> Trail:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(log_command, "read_trail", fail)
    status, _, err = run(folder)
    assert status == 1
    assert err == f"Error: {path.name} cannot be read: Permission denied\n"


def test_an_id_cannot_command_the_terminal(tmp_path: Path, run: Run) -> None:
    write_trail(tmp_path, [transition(lane=Lane("tenant", "a\x1b[2J\nb\ud800é"))])
    (line,) = run(tmp_path)[1]
    assert "tenant a\\x1b[2J\\nb\\ud800é  " in line
    (line,) = run(tmp_path, "--json")[1]
    assert json.loads(line)["key"] == "a\x1b[2J\nb\ud800é"


def test_following_yields_what_was_added_since(tmp_path: Path) -> None:
    write_trail(tmp_path, [transition(samples=1)])
    more = iter([[2], [], [4, 3]])

    def wait() -> None:
        write_trail(tmp_path, [transition(samples=samples) for samples in next(more)])

    looks = following(lambda: read_trail(tmp_path), read_trail(tmp_path), wait)
    assert [[entry.transition.samples for entry in next(looks).entries] for _ in range(3)] == [[2], [], [4, 3]]


def test_following_ends_with_ctrl_c(folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(log_command, "time", SimpleNamespace(sleep=interrupted))
    status, lines, _ = run(folder, "--follow")
    assert (status, len(lines)) == (130, 4)


def test_a_moment_that_was_not_given_is_none() -> None:
    option = click.Option(["--since"])
    assert log_command.moment(click.Context(log_command.log), option, None) is None
