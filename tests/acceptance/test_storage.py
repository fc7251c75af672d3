from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("msgspec", reason="needs the [acceptance] extra")
pytest.importorskip("scipy", reason="needs the [acceptance] extra")

from hypothesis import given
from hypothesis import strategies as st

from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.records import Arm, HostSample, Measured, Note, Passes, RunHead
from otel_specdecode.acceptance.storage import RESULTS, RunWriter, _short, begin, read_run
from otel_specdecode.guard.sealing import sealed
from tests.acceptance.fakes import BEGAN, MANIFEST, World, arms, fake_request, fake_run, prompts

HEAD = RunHead("run-1", "sweep", BEGAN, "mlx", MANIFEST, {"id": "f"}, arms([2, 4]), ({"id": "a"},), {"repeats": 3})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    begin(tmp_path / "run", HEAD)
    return tmp_path / "run"


def request(number: int) -> Measured:
    return replace(fake_request(Arm(4), prompts(1)[0], number, world=World()), id=f"{number:016x}")


def written(folder: Path, *lines: Measured | HostSample | Note | Arm) -> None:
    writer = RunWriter(folder)
    for line in lines:
        writer.add(line)
    writer.close()


def test_what_is_written_is_read_as_it_was(folder: Path) -> None:
    run = fake_run(arms([2, 4]), prompts(3), repeats=2)
    written(folder, *run.results, *run.host, *run.notes)

    read = read_run(folder)

    assert (read.head, read.results, read.host, read.notes) == (HEAD, run.results, run.host, run.notes)
    assert read.faults == ()


@given(
    request=st.builds(
        Measured,
        id=st.text(min_size=1),
        arm=st.text(),
        prompt=st.text(),
        kind=st.sampled_from(["code", "other"]),
        repeat=st.integers(0, 10),
        phase=st.sampled_from(["warm_up", "measured"]),
        started_at=st.floats(0, 1e12),
        passes=st.builds(Passes, st.lists(st.integers(0, 99)).map(tuple), st.lists(st.integers(0, 2**40)).map(tuple)),
        check=st.none() | st.booleans(),
        time_per_token=st.none() | st.floats(1e-9, 1e3),
        hazards=st.lists(st.text(), max_size=3).map(tuple),
    )
)
def test_any_request_comes_back(tmp_path_factory: pytest.TempPathFactory, request: Measured) -> None:
    folder = tmp_path_factory.mktemp("any") / "run"
    begin(folder, HEAD)
    written(folder, request)

    assert read_run(folder).results == (request,)


def test_arms_that_a_sweep_adds_follow_those_it_began_with(folder: Path) -> None:
    added = Arm(4, temperature=0.7)
    written(folder, added, Arm(4))

    assert read_run(folder).head.arms == (*HEAD.arms, added)


def test_a_line_that_was_torn_is_told_and_the_next_writer_begins_a_new_one(folder: Path) -> None:
    written(folder, request(1), request(2))
    content = (folder / RESULTS).read_bytes()
    (folder / RESULTS).write_bytes(content[:-30])

    written(folder, request(3))

    read = read_run(folder)
    assert [each.id for each in read.results] == [request(1).id, request(3).id]
    assert read.faults == (f"{RESULTS}:2: it is not as it was written, by its checksum",)


@pytest.mark.parametrize(
    ("absurd", "said"),
    [
        ({"decode": 1e308}, "1e+308"),
        ({"started_at": -1e18}, "-1e+18"),
        ({"peak_rss": 10**30}, "10000000000000000000"),
        ({"passes": Passes((1,), (10**30,))}, "10000000000000000000"),
    ],
)
def test_a_number_that_nothing_measures_is_told_with_its_line(folder: Path, absurd: dict, said: str) -> None:
    """Whoever can make a line can make its checksum; a chart of such numbers could not be drawn."""
    lines = [sealed(_short(each)) for each in (request(1), replace(request(2), **absurd))]
    (folder / RESULTS).write_bytes(b"".join(lines))

    read = read_run(folder)
    assert read.results == (request(1),)
    assert read.faults == (f"{RESULTS}:2: it holds the number {said}, which nothing that is measured here can be",)


@given(place=st.integers(0), bit=st.integers(0, 7))
def test_one_altered_bit_loses_at_most_the_two_lines_it_is_between(
    tmp_path_factory: pytest.TempPathFactory, place: int, bit: int
) -> None:
    folder = tmp_path_factory.mktemp("bit") / "run"
    begin(folder, HEAD)
    written(folder, *map(request, range(5)))
    content = bytearray((folder / RESULTS).read_bytes())
    content[place % len(content)] ^= 1 << bit
    (folder / RESULTS).write_bytes(content)

    read = read_run(folder)

    whole = {each.id: each for each in map(request, range(5))}
    assert all(whole[each.id] == each for each in read.results)
    assert len(read.results) >= 3
    assert bool(read.faults) == (len(read.results) < 5)


def test_of_two_results_of_one_request_the_first_counts(folder: Path) -> None:
    written(folder, request(1), replace(request(1), output_tokens=1), request(2))

    assert [each.output_tokens for each in read_run(folder).results] == [128, 128]


def test_a_run_has_one_writer_at_a_time(folder: Path) -> None:
    first = RunWriter(folder)
    with pytest.raises(AcceptanceError, match="another process adds to the run"):
        RunWriter(folder)
    first.close()
    RunWriter(folder).close()


def test_a_folder_is_not_used_for_two_runs(folder: Path) -> None:
    with pytest.raises(AcceptanceError, match="holds a run already: resume it"):
        begin(folder, HEAD)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda path: path.unlink(), "holds no run: name the folder"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b"run-1", b"run-2")), "not as it was written"),
        (lambda path: path.write_bytes(b""), "not as it was written"),
        (lambda path: (path.unlink(), path.mkdir()), "cannot be read"),
    ],
)
def test_a_head_that_cannot_be_used_is_told(folder: Path, spoil, told: str) -> None:
    spoil(folder / "run.json")
    with pytest.raises(AcceptanceError, match=told):
        read_run(folder)


def test_a_file_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AcceptanceError, match="is a file: name the folder of a run"):
        read_run(tmp_path / "file")


def test_a_head_of_another_format_is_told(tmp_path: Path) -> None:
    begin(tmp_path / "run", replace(HEAD, format=2))
    with pytest.raises(AcceptanceError, match="is of format 2; this release reads format 1"):
        read_run(tmp_path / "run")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_is_told_and_keeps_what_was_written(folder: Path) -> None:
    written(folder, request(1))
    before = (folder / RESULTS).read_bytes()
    writer = RunWriter(folder)
    with open("/dev/full", "wb", buffering=0) as full:
        os.dup2(full.fileno(), writer._files[RESULTS].fileno())
    with pytest.raises(AcceptanceError, match=r"No space left.*make room and resume"):
        writer.add(request(2))
    writer.close()

    assert (folder / RESULTS).read_bytes() == before


def test_of_a_line_for_which_there_is_no_room_nothing_stays(folder: Path) -> None:
    writer = RunWriter(folder)
    writer.add(request(1))
    size, limits = (folder / RESULTS).stat().st_size, resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 40, limits[1]))  # room for half a line
    try:
        with pytest.raises(AcceptanceError, match="What ended before is kept"):
            writer.add(request(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (folder / RESULTS).stat().st_size == size
    writer.add(request(2))
    writer.close()

    assert (read_run(folder).results, read_run(folder).faults) == ((request(1), request(2)), ())


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AcceptanceError, match="cannot be written"):
        begin(tmp_path / "file" / "run", HEAD)


def test_a_process_that_is_killed_while_it_writes_loses_one_line_at_most(folder: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from tests.acceptance.test_storage import RunWriter, request\n"
        "writer = RunWriter(Path(sys.argv[1]))\n"
        "for number in range(10**6): writer.add(request(number)); print(number, flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(folder)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(20):
            told = int(process.stdout.readline())
        process.kill()
        for line in process.stdout:
            told = int(line)

    read = read_run(folder)

    assert [each.id for each in read.results][: told + 1] == [request(each).id for each in range(told + 1)]
    assert len(read.faults) <= 1


def test_a_folder_that_is_removed_meanwhile_is_told_with_the_next_line(folder: Path) -> None:
    writer = RunWriter(folder)
    writer.add(request(1))
    shutil.rmtree(folder)
    with pytest.raises(AcceptanceError, match="was removed while it was written to: begin another run"):
        writer.add(request(2))
    writer.close()


def test_of_two_that_begin_at_the_same_time_one_has_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(tmp_path / "run", HEAD)
    monkeypatch.setattr(Path, "exists", lambda _: False)  # as it was when both looked
    with pytest.raises(AcceptanceError, match="another run began in it"):
        begin(tmp_path / "run", replace(HEAD, run_id="run-2"))
    assert read_run(tmp_path / "run").head.run_id == HEAD.run_id
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["run.json"]
