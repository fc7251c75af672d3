"""The file of the sums: tried beforehand, whole afterwards."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from otel_specdecode.demo.load import sums_file
from otel_specdecode.demo.needs import DemoError


@pytest.mark.parametrize("step", [sums_file.check, lambda path: sums_file.write(path, "{}")])
@pytest.mark.parametrize(
    ("name", "why"), [("absent/sums.json", "No such file or directory"), ("a file/sums.json", "Not a directory")]
)
def test_a_place_where_nothing_can_be_written_is_an_error(step: object, name: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "a file").touch()
    assert callable(step)
    with pytest.raises(DemoError, match=f"sums.json cannot be written: {why}"):
        step(tmp_path / name)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_file_is_an_error_though_its_folder_could_replace_it(tmp_path: Path) -> None:
    file = tmp_path / "sums.json"
    file.write_text("earlier")
    file.chmod(0o444)
    with pytest.raises(DemoError, match="it is read-only"):
        sums_file.check(file)


def test_a_check_leaves_everything_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "sums.json"
    sums_file.check(file)
    assert not list(tmp_path.iterdir())
    file.write_text("earlier")
    sums_file.check(file)
    assert [(each, each.read_text()) for each in tmp_path.iterdir()] == [(file, "earlier")]


def test_an_earlier_file_is_replaced_whole_and_whoever_has_it_open_reads_on(tmp_path: Path) -> None:
    file = tmp_path / "sums.json"
    file.write_text("earlier")
    with file.open() as reader:
        sums_file.write(file, "later")
        assert reader.read() == "earlier"
    assert [(each, each.read_text()) for each in tmp_path.iterdir()] == [(file, "later")]


def test_a_write_that_fails_leaves_the_earlier_file(tmp_path: Path) -> None:
    file = tmp_path / "sums.json"
    file.write_text("earlier")
    with pytest.raises(UnicodeEncodeError):
        sums_file.write(file, "later \udc80")
    assert [(each, each.read_text()) for each in tmp_path.iterdir()] == [(file, "earlier")]


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    link = tmp_path / "sums.json"
    link.symlink_to(tmp_path / "kept" / "sums-1.json")
    sums_file.check(link)
    sums_file.write(link, "later")
    assert link.is_symlink()
    assert (tmp_path / "kept" / "sums-1.json").read_text() == "later"


def test_what_is_no_file_is_written_to_and_not_replaced() -> None:
    reading, writing = os.pipe()
    try:
        path = Path(f"/dev/fd/{writing}")
        sums_file.check(path)
        sums_file.write(path, "later")
        assert os.read(reading, 100) == b"later"
        assert path.exists()
    finally:
        os.close(reading)
        os.close(writing)
