from __future__ import annotations

import json
import os
import random
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_specdecode.generation.transition import Lane, Transition
from otel_specdecode.guard.audit_files import FORMAT
from otel_specdecode.guard.lines import fields_of, transition_of
from otel_specdecode.guard.sealing import sealed, stamp, unsealed
from otel_specdecode.guard.trail import Trail, read_trail
from tests.guard.trails import A_TRANSITION, NOON, files_in, transition, write_trail

LINES = 8


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file: a header and LINES lines, about the samples 1 and so on."""
    folder = tmp_path_factory.mktemp("written")
    write_trail(folder, [transition(number, samples=number) for number in range(1, LINES + 1)])
    (path,) = folder.iterdir()
    return path.read_bytes()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a test may write a file of a trail."""
    return tmp_path_factory.mktemp("file") / "guard-1-20260101T120000.000000000Z-1.jsonl"


def of(file: Path, content: bytes) -> Trail:
    """What a file of this content says."""
    file.write_bytes(content)
    return read_trail(file)


def samples(trail: Trail) -> list[int]:
    return [entry.transition.samples for entry in trail.entries]


def in_files(folder: Path, number: int = 40) -> list[Path]:
    """Files of one process that rotated."""
    write_trail(folder, [transition(each, samples=each) for each in range(number)], most_bytes=4096, files=1000)
    return files_in(folder)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    few = Transition(
        NOON, Lane(), "open", "probing", "autoregressive", "k=2", "probe", None, None, None, 0, 0.0, "", True
    )
    odd = transition(lane=Lane("session", 'a"\n\x00\ud800é', None, None, None), samples=10**12)
    for each in (A_TRANSITION, few, odd):
        folder = tmp_path / str(id(each))
        write_trail(folder, [each])
        assert [entry.transition for entry in read_trail(folder).entries] == [each]


def test_a_line_has_every_field_of_a_transition_and_its_lane() -> None:
    names = {field.name for kind in (Transition, Lane) for field in fields(kind)} - {"lane"}
    assert set(fields_of(A_TRANSITION)) == names | {"at_ns"}
    assert transition_of(fields_of(A_TRANSITION)) == A_TRANSITION


def test_a_line_without_one_of_its_fields_is_no_transition() -> None:
    said = fields_of(A_TRANSITION)
    for name in set(said) - {"at"}:
        with pytest.raises(KeyError):
            transition_of({key: value for key, value in said.items() if key != name})


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "1970-01-01T00:00:00.000000000Z"),
        (-1, "1969-12-31T23:59:59.999999999Z"),
        (NOON, "2026-01-01T12:00:00.123456789Z"),
        (-62_135_596_800 * 10**9, "0001-01-01T00:00:00.000000000Z"),
        (10**30, f"{10**30}ns"),
        (-(10**30), f"{-(10**30)}ns"),
    ],
)
def test_a_time_is_told_to_the_nanosecond(ns: int, text: str) -> None:
    assert stamp(ns) == text


def test_trails_of_many_processes_are_one_in_order_of_time(tmp_path: Path) -> None:
    numbers = list(range(60))
    random.Random(1).shuffle(numbers)
    for process in range(3):
        mine = sorted(numbers[process::3])
        write_trail(tmp_path, [transition(each, samples=each) for each in mine], most_bytes=4096, files=1000)
    trail = read_trail(tmp_path)
    assert samples(trail) == list(range(60))
    assert len({entry.process for entry in trail.entries}) == 3
    assert trail.files == len(list(tmp_path.iterdir())) > 3
    assert trail.is_whole


def test_lines_of_one_time_keep_the_order_in_which_their_process_wrote_them(tmp_path: Path) -> None:
    write_trail(tmp_path, [transition(samples=each) for each in range(30)])
    assert samples(read_trail(tmp_path)) == list(range(30))


def test_a_folder_without_a_trail_has_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_text("{}\n")
    assert read_trail(tmp_path) == Trail()


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_trail(tmp_path / "nowhere")


def test_a_file_that_its_process_takes_away_meanwhile_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, *others = in_files(tmp_path)
    listed = list(tmp_path.iterdir())
    gone.unlink()
    monkeypatch.setattr(Path, "iterdir", lambda _: iter(listed))
    trail = read_trail(tmp_path)
    assert trail.files == len(others)
    assert trail.is_whole


def test_a_line_that_is_given_twice_counts_once(tmp_path: Path, written: bytes) -> None:
    names = [tmp_path / "guard-1-a-1.jsonl", tmp_path / "a copy"]
    for name in names:
        name.write_bytes(written)
    trail = read_trail([tmp_path, *names])
    assert samples(trail) == list(range(1, LINES + 1))
    assert trail.is_whole


def test_files_that_were_put_into_one_are_read_as_they_were(tmp_path: Path, file: Path) -> None:
    content = b"".join(path.read_bytes() for each in ("a", "b") for path in in_files(tmp_path / each))
    trail = of(file, content)
    assert len(trail.entries) == 80
    assert len({entry.process for entry in trail.entries}) == 2
    assert trail.is_whole


@pytest.mark.parametrize("place", range(1, LINES))
def test_a_line_that_was_taken_away_is_told(file: Path, written: bytes, place: int) -> None:
    lines = written.splitlines(keepends=True)
    trail = of(file, b"".join(lines[:place] + lines[place + 1 :]))
    assert samples(trail) == [number for number in range(1, LINES + 1) if number != place]
    assert (trail.missing, trail.unreadable) == (1, 0)
    assert not trail.is_whole


def test_a_header_that_was_taken_away_is_told(file: Path, written: bytes) -> None:
    trail = of(file, written.partition(b"\n")[2])
    assert (samples(trail), trail.missing) == (list(range(1, LINES + 1)), 1)


def test_a_file_in_the_middle_that_was_taken_away_is_told(tmp_path: Path) -> None:
    paths = in_files(tmp_path)
    in_it = len(read_trail(paths[1]).entries)
    paths[1].unlink()
    assert (read_trail(tmp_path).missing, read_trail(paths[2:]).missing) == (in_it, 0)


def test_the_end_of_a_closed_file_that_was_taken_away_is_told(tmp_path: Path) -> None:
    path = in_files(tmp_path)[1]
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-2]))
    assert read_trail(tmp_path).missing == 2


@pytest.mark.parametrize("place", range(LINES + 1))
def test_an_altered_line_is_unreadable_and_not_missing(file: Path, written: bytes, place: int) -> None:
    lines = written.splitlines(keepends=True)
    lines[place] = lines[place].replace(b'"kind":', b'"kInd":')
    trail = of(file, b"".join(lines))
    assert samples(trail) == [number for number in range(1, LINES + 1) if number != place]
    assert (trail.unreadable, trail.missing) == (1, 0)


def test_two_lines_taken_away_beside_an_altered_one_are_still_told(file: Path, written: bytes) -> None:
    lines = written.splitlines(keepends=True)
    trail = of(file, b"".join([*lines[:3], b"altered\n", *lines[6:]]))
    assert (trail.unreadable, trail.missing) == (1, 2)


def test_a_line_that_was_lost_by_its_process_is_neither_missing_nor_unreadable(file: Path, written: bytes) -> None:
    told = sealed({"kind": "lost", "number": LINES + 1, "at": stamp(NOON), "at_ns": NOON, "count": 17})
    trail = of(file, written + told)
    assert trail.lost == 17
    assert trail.is_whole


def test_later_versions_may_say_more_and_have_further_kinds_of_lines(file: Path, written: bytes) -> None:
    more = sealed({**fields_of(A_TRANSITION), "kind": "transition", "number": LINES + 1, "weather": {"sun": True}})
    other = sealed({"kind": "a later one", "number": LINES + 2})
    last = sealed({**fields_of(transition(99, samples=99)), "kind": "transition", "number": LINES + 3})
    trail = of(file, written + more + other + last)
    assert samples(trail)[-1] == 99
    assert len(trail.entries) == LINES + 2
    assert trail.is_whole


@given(st.data())
def test_a_file_cut_anywhere_has_its_whole_lines(file: Path, written: bytes, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(written)))
    trail = of(file, written[:cut])
    whole = written[:cut].count(b"\n")
    # A line without its end may be being written: it counts once it has one. A header may be read without.
    assert samples(trail) == list(range(1, whole))
    assert (trail.unreadable, trail.missing) == (0, 0)
    assert trail.unfinished <= 1


@given(st.data())
def test_a_byte_changed_anywhere_makes_no_other_trail_of_it(file: Path, written: bytes, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(written) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda byte: byte != written[place]))
    trail = of(file, written[:place] + bytes([byte]) + written[place + 1 :])
    known = dict(
        zip(range(1, LINES + 1), (transition(number, samples=number) for number in range(1, 99)), strict=False)
    )
    assert all(entry.transition == known[entry.number] for entry in trail.entries)
    assert len(trail.entries) >= LINES - 2
    if len(trail.entries) < LINES:
        assert trail.unreadable or trail.unfinished


@given(st.lists(st.one_of(st.binary(), st.sampled_from([b"\n", b"{", b',"crc":"00000000"}\n', b"\x00" * 100]))))
def test_any_bytes_are_read(file: Path, parts: list[bytes]) -> None:
    content = b"".join(parts)
    trail = of(file, content)
    assert trail.entries == ()
    assert trail.unreadable == content.count(b"\n")
    assert trail.unfinished == (bool(content) and not content.endswith(b"\n"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
KEYS = st.sampled_from([*fields_of(A_TRANSITION), "kind", "number", "next", "process", "count"])


@given(st.lists(st.dictionaries(KEYS, JSON, max_size=4), max_size=4))
def test_any_sealed_lines_are_read(file: Path, odd: list[dict[str, object]]) -> None:
    """Whatever somebody makes of lines and gives a right checksum."""
    base = {"kind": "transition", "number": 1, "count": 1, "process": "1-1", "next": 1, **fields_of(A_TRANSITION)}
    lines = [{**base, **each} for each in odd]
    kept = [line for line in lines if "crc" not in line]
    trail = of(file, b"".join(map(sealed, kept)))
    assert len(trail.entries) + trail.unreadable <= len(kept)
    assert trail.unfinished == 0


@given(st.dictionaries(st.text().filter(lambda key: key != "crc"), JSON, min_size=1))
def test_what_is_sealed_is_one_line_that_can_be_unsealed(said: dict[str, object]) -> None:
    line = sealed(said)
    assert (line.count(b"\n"), line[-1:]) == (1, b"\n")
    assert unsealed(line) == json.loads(json.dumps(said))


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda line: line.replace(b":", b": ", 1), id="written anew by another program"),
        pytest.param(lambda line: b"x" + line, id="after something"),
        pytest.param(lambda line: line[:-1] + b"x\n", id="before something"),
        pytest.param(lambda line: b'"' + b"\n", id="a bit of it"),
    ],
)
def test_a_line_that_was_altered_cannot_be_unsealed(spoil: Callable[[bytes], bytes]) -> None:
    assert unsealed(spoil(sealed({"a": 1}))) is None


def test_a_sealed_line_that_is_too_deep_for_json_cannot_be_unsealed() -> None:
    body = b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    assert unsealed(b'%s,"crc":"%08x"}' % (body[:-1], zlib.crc32(body))) is None


def test_only_files_are_read_in_a_folder(tmp_path: Path, written: bytes) -> None:
    """A folder or a pipe of such a name is none, and nobody waits for it."""
    (tmp_path / "guard-2-1.jsonl").write_bytes(written)
    (tmp_path / "guard-3-1.jsonl").mkdir()
    os.mkfifo(tmp_path / "guard-4-1.jsonl")
    found = read_trail(tmp_path)
    assert found.files == 1
    assert found.is_whole


def test_a_line_longer_than_any_that_was_written_is_not_held_in_memory(file: Path, written: bytes) -> None:
    file.write_bytes(written + b"x" * (16 << 20) + b"\n")
    tracemalloc.start()
    try:
        found = read_trail(file)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert found.unreadable == 1
    file.write_bytes(written + b"x" * (16 << 20))
    assert read_trail(file).unfinished == 1


def test_a_file_of_a_later_version_is_told_and_left_out(tmp_path: Path, written: bytes) -> None:
    """Its lines would be read wrongly."""
    (tmp_path / "guard-2-1.jsonl").write_bytes(written)
    later = sealed({"kind": "header", "format": FORMAT + 1, "process": "3-x", "next": 1})
    (tmp_path / "guard-3-1.jsonl").write_bytes(later + b"whatever\n")
    found = read_trail(tmp_path)
    assert (found.newer, found.unreadable, found.missing) == (1, 0, 0)
    assert not found.is_whole
    assert len(found.entries) == len(read_trail(tmp_path / "guard-2-1.jsonl").entries)
