"""The audit trail: its lines and files, and disks that are full, slow or away."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import subprocess
import sys
import threading
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from otel_specdecode.generation.transition import Lane
from otel_specdecode.guard import audit, audit_files
from otel_specdecode.guard.trail import read_trail
from otel_specdecode.version import __version__
from tests.guard.trails import (
    A_TRANSITION,
    NOON,
    POLICY,
    PROGRAM,
    a_trail,
    environment,
    files_in,
    samples_in,
    transition,
    write_trail,
)
from tests.proc import wait_for
from tests.programs import ROOT, run_program


def test_a_transition_is_one_line_with_everything_it_says(tmp_path: Path) -> None:
    write_trail(tmp_path, [A_TRANSITION])
    (path,) = tmp_path.iterdir()
    line = path.read_bytes().splitlines(keepends=True)[1]
    assert line.endswith(b"}\n")
    said = json.loads(line)
    crc = said.pop("crc")
    assert said == {
        "kind": "transition",
        "number": 1,
        "at": "2026-01-01T12:00:00.123456789Z",
        "at_ns": NOON,
        "scope": "tenant",
        "key": "acme",
        "provider": "mlx",
        "model": "tiny",
        "method": "draft_model",
        "before": "closed",
        "after": "open",
        "rung_before": "as_asked",
        "rung_after": "autoregressive",
        "trigger": "break_even",
        "reason": "not_paying",
        "value": 0.875,
        "threshold": 1.0,
        "samples": 200,
        "window_seconds": 12.5,
        "policy": POLICY,
        "observe_only": False,
        "trace_id": "0af7651916cd43dd8448eb211c80319c",
    }
    assert crc == f"{zlib.crc32(json.dumps(said, separators=(',', ':')).encode()):08x}"


def test_a_file_begins_with_who_writes_it_and_is_for_its_owner_alone(tmp_path: Path) -> None:
    write_trail(tmp_path / "new", [A_TRANSITION], clock=lambda: NOON)
    (path,) = (tmp_path / "new").iterdir()
    assert path.name == f"guard-{os.getpid()}-20260101T120000.123456789Z-1.jsonl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    header = json.loads(path.read_bytes().splitlines()[0])
    assert (header["kind"], header["format"], header["library"]) == ("header", 1, __version__)
    assert (header["pid"], header["policy"], header["started_at_ns"]) == (os.getpid(), POLICY, NOON)
    assert header["started_at"] == "2026-01-01T12:00:00.123456789Z"


def test_without_a_transition_there_is_no_file_no_folder_and_no_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    trail = a_trail(tmp_path / "trail")
    assert threading.active_count() == before
    assert trail.close()
    assert list(tmp_path.iterdir()) == []


def test_the_thread_bears_our_name_and_ends_with_the_trail(tmp_path: Path) -> None:
    trail = a_trail(tmp_path)
    trail.write(A_TRANSITION)
    assert [each.daemon for each in threading.enumerate() if each.name == audit.THREAD_NAME] == [True]
    assert trail.close()
    assert not [each for each in threading.enumerate() if each.name == audit.THREAD_NAME]


def test_what_comes_after_the_end_is_dropped(tmp_path: Path) -> None:
    trail = a_trail(tmp_path)
    trail.write(transition(samples=1))
    assert trail.close()
    trail.write(transition(samples=2))
    assert trail.close()
    assert samples_in(tmp_path) == [1]


def test_two_trails_of_one_start_do_not_share_a_file(tmp_path: Path) -> None:
    for number in range(3):
        write_trail(tmp_path, [transition(number, samples=number)], clock=lambda: NOON)
    assert len(list(tmp_path.iterdir())) == 3
    assert samples_in(tmp_path) == [0, 1, 2]


def test_full_files_are_closed_and_the_newest_are_kept(tmp_path: Path) -> None:
    foreign = tmp_path / "guard-1-20200101T000000.000000000Z-1.jsonl"
    foreign.write_text("")
    write_trail(tmp_path, [transition(number, samples=number) for number in range(100)], most_bytes=4096, files=3)
    files = [path for path in files_in(tmp_path) if path != foreign]
    assert foreign.exists()
    assert len(files) == 4  # and the one that was open
    assert all(2000 < path.stat().st_size <= 4096 for path in files[:-1])
    kept = samples_in(tmp_path)
    assert kept == list(range(100 - len(kept), 100))


def test_many_lines_at_once_are_spread_over_files(tmp_path: Path) -> None:
    trail = a_trail(tmp_path, most_bytes=4096, files=1000)
    for number in range(500):
        trail.write(transition(number, samples=number))
    assert trail.close()
    assert samples_in(tmp_path) == list(range(500))
    assert max(path.stat().st_size for path in tmp_path.iterdir()) <= 4096


def test_a_line_larger_than_a_file_has_one_of_its_own(tmp_path: Path) -> None:
    long = replace(A_TRANSITION, lane=Lane("tenant", "a" * 10_000))
    write_trail(tmp_path, [transition(0, samples=0), long, transition(2, samples=2)], most_bytes=4096)
    assert samples_in(tmp_path) == [0, 200, 2]
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e308, 10**30])
def test_odd_numbers_are_written_in_valid_json(tmp_path: Path, value: float) -> None:
    write_trail(tmp_path, [transition(value=value)])
    (entry,) = read_trail(tmp_path).entries
    assert repr(entry.transition.value) == repr(float(value))
    for line in next(tmp_path.iterdir()).read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)


def test_a_clock_beside_all_years_disturbs_nothing(tmp_path: Path) -> None:
    write_trail(tmp_path, [replace(A_TRANSITION, at=10**30)], clock=lambda: 10**30)
    (entry,) = read_trail(tmp_path).entries
    assert entry.transition.at == 10**30


def test_what_cannot_be_said_in_json_is_counted_as_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    odd = replace(A_TRANSITION, lane=Lane("tenant", object()))  # type: ignore[arg-type]
    write_trail(tmp_path, [odd, transition(samples=1)])
    assert samples_in(tmp_path) == [1]
    assert read_trail(tmp_path).lost == 1
    assert "could not be put into its audit trail (TypeError)" in caplog.text


def test_a_folder_that_cannot_be_made_is_told_once_and_what_was_kept_comes_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "in the way" / "trail"
    folder.parent.write_text("a file")
    trail = a_trail(folder)
    for number in range(5):
        trail.write(transition(number, samples=number))
        assert not trail.flush(10)
    folder.parent.unlink()
    assert trail.flush(10)
    assert trail.close()
    assert samples_in(folder) == [0, 1, 2, 3, 4]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "in the way" not in caplog.text


def test_lines_that_wait_are_tried_again_without_a_further_one(tmp_path: Path) -> None:
    folder = tmp_path / "in the way" / "trail"
    folder.parent.write_text("a file")
    looked = threading.Semaphore(0)
    trail = a_trail(folder, retry_seconds=0.001, afterwards=looked.release)
    trail.write(transition(samples=1))
    assert looked.acquire(timeout=10)
    folder.parent.unlink()
    wait_for(lambda: folder.exists() and read_trail(folder).entries)
    assert trail.close()
    assert samples_in(folder) == [1]


def test_lines_beyond_the_bound_are_lost_and_counted_in_a_line(tmp_path: Path) -> None:
    folder = tmp_path / "in the way" / "trail"
    folder.parent.write_text("a file")
    trail = a_trail(folder, most_waiting=10)
    for number in range(25):
        trail.write(transition(number, samples=number))
        trail.flush(10)
    folder.parent.unlink()
    assert trail.flush(10)
    trail.write(transition(99, samples=99))
    assert trail.close()
    assert samples_in(folder) == [*range(10), 99]
    assert read_trail(folder).lost == 15
    (path,) = folder.iterdir()
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [line["count"] for line in lines if line["kind"] == "lost"] == [15]


def test_a_folder_that_vanishes_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "trail"
    trail = a_trail(folder)
    trail.write(transition(1, samples=1))
    assert trail.flush(10)
    shutil.rmtree(folder)
    trail.write(transition(2, samples=2))
    assert trail.close()
    assert samples_in(folder) == [2]


def test_a_file_that_was_moved_away_is_not_written_to(tmp_path: Path) -> None:
    trail = a_trail(tmp_path / "trail")
    trail.write(transition(1, samples=1))
    assert trail.flush(10)
    (path,) = (tmp_path / "trail").iterdir()
    moved = path.rename(tmp_path / path.name)
    content = moved.read_bytes()
    trail.write(transition(2, samples=2))
    assert trail.close()
    assert moved.read_bytes() == content
    assert samples_in(tmp_path / "trail") == [2]
    both = read_trail([moved, tmp_path / "trail"])
    assert ([entry.number for entry in both.entries], both.missing) == ([1, 2], 0)


def test_what_fsync_did_not_take_is_written_to_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trail = a_trail(tmp_path)
    trail.write(transition(1, samples=1))
    assert trail.flush(10)

    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(audit_files.os, "fsync", fail)
        trail.write(transition(2, samples=2))
        assert not trail.flush(10)
    assert trail.close()
    assert samples_in(tmp_path) == [1, 2]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_disk_that_hangs_holds_up_neither_writers_nor_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, goes_on = threading.Event(), threading.Event()
    sync = os.fsync

    def hang(fd: int) -> None:
        hangs.set()
        goes_on.wait(60)
        sync(fd)

    monkeypatch.setattr(audit_files.os, "fsync", hang)
    trail = a_trail(tmp_path, most_waiting=100)
    trail.write(transition(0, samples=0))
    assert hangs.wait(10)
    for number in range(1, 1000):
        trail.write(transition(number, samples=number))
    assert not trail.close(timeout=0.01)
    goes_on.set()
    assert trail.close(timeout=10)
    assert samples_in(tmp_path) == list(range(100))
    assert read_trail(tmp_path).lost == 900


def test_state_can_be_saved_after_each_batch_and_a_failure_of_that_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    on: list[str] = []

    def afterwards() -> None:
        on.append(threading.current_thread().name)
        raise ValueError("a secret")

    write_trail(tmp_path, [transition(samples=1), transition(samples=2)], afterwards=afterwards)
    assert on == [audit.THREAD_NAME] * 2
    assert samples_in(tmp_path) == [1, 2]
    assert "a secret" not in caplog.text


def test_a_full_disk_loses_nothing_and_tears_no_line(tmp_path: Path) -> None:
    """The limit on the size of files stands for the disk: it too takes a part of a line and then nothing."""
    run_program(
        PROGRAM
        + """
    trail = a_trail(folder)
    for limit in (700, 1000, 1234, 5000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        for _ in range(10):
            trail.write(transition(samples=limit))
        assert not trail.flush(10)
        (path,) = folder.iterdir()
        assert path.stat().st_size == limit
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert trail.close()
    """,
        str(tmp_path),
    )
    assert samples_in(tmp_path) == [limit for limit in (700, 1000, 1234, 5000) for _ in range(10)]
    assert len(list(tmp_path.iterdir())) == 1


def test_a_file_system_that_is_really_full_loses_nothing(tmp_path: Path) -> None:
    """In a mount namespace of its own, where the system lets one be made."""
    program = """
import os, sys
from pathlib import Path
from otel_specdecode.guard.trail import read_trail
from tests.guard.trails import a_trail, transition
folder = Path(sys.argv[1])
ballast = folder / "ballast"
try:
    with ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
except OSError:
    pass
trail = a_trail(folder)
for number in range(50):
    trail.write(transition(number, samples=number))
    assert not trail.flush(10)
ballast.unlink()
assert trail.close()
print([entry.transition.samples for entry in read_trail(folder).entries] == list(range(50)))
"""
    mount = 'mount -t tmpfs -o size=64k,mode=700 none "$1" && exec "$2" -c "$3" "$1"'
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, "sh", str(tmp_path), sys.executable, program]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, cwd=ROOT, env=environment(), check=False
        )
    except FileNotFoundError:
        pytest.skip("no program to mount a file system with")
    if done.returncode and "Traceback" not in done.stderr:
        pytest.skip("the system lets nobody mount a file system")
    assert done.stdout == "True\n", done.stderr


def test_a_read_only_folder_is_written_to_once_it_can_be(tmp_path: Path) -> None:
    """As another user where this one is root, whom no mode stops."""
    told = run_program(
        PROGRAM
        + """
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o555)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)
        trail = a_trail(Path(folder))
        trail.write(transition(samples=1))
        assert not trail.flush(10)
        assert not os.listdir(folder)
        if root:
            os.seteuid(0)
        os.chmod(folder, 0o755)
        assert trail.close()
        print([entry.transition.samples for entry in read_trail(Path(folder)).entries])
    """,
        str(tmp_path),
    )
    assert told == "[1]\n"
