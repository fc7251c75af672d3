"""The output folder: replaced whole, never mixed, never somebody else's."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_specdecode.demo import files
from otel_specdecode.demo.needs import DemoError

CONTENTS = {files.SPANS: "s\n", files.METRICS: "m\n", files.LOGS: "", files.PAGE: "<html>"}


def test_an_earlier_run_is_replaced(tmp_path: Path) -> None:
    out = tmp_path / "new" / "demo-out"
    files.write(out, dict.fromkeys(CONTENTS, "old"))
    files.write(out, CONTENTS)
    assert {path.name: path.read_text() for path in out.iterdir()} == CONTENTS


def test_what_an_interrupted_write_left_is_cleared(tmp_path: Path) -> None:
    (tmp_path / ".unfinished").mkdir()
    (tmp_path / ".unfinished" / files.SPANS).write_text("half")
    files.write(tmp_path, CONTENTS)
    assert {path.name for path in tmp_path.iterdir()} == set(CONTENTS)


def test_a_write_that_fails_leaves_the_earlier_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write(tmp_path, CONTENTS)

    def full(self: Path, *args: object, **kwargs: object) -> int:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="no space"):
        files.write(tmp_path, dict.fromkeys(CONTENTS, "new"))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == CONTENTS


@pytest.mark.parametrize("name", ["thesis.txt", "index.html/"])
def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path, name: str) -> None:
    if name.endswith("/"):
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).touch()
    with pytest.raises(DemoError, match="did not write; name another folder with --out"):
        files.write(tmp_path, CONTENTS)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(DemoError, match="is a file"):
        files.check(tmp_path / "out")
    with pytest.raises(DemoError, match="is not a folder"):
        files.check(tmp_path / "out" / "below")
