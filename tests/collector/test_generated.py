"""Files that a generator makes: when one of them is out of date."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.generated import Generator

GENERATOR = Generator("python -m maker", "Makes.", "made", "*.txt", lambda: {"made/a.txt": "é\n"}, ())


@pytest.mark.parametrize("content", ["é\n".encode("latin-1"), b"\xff\xfe", b"", b"e\n"])
def test_a_file_with_anything_else_in_it_is_out_of_date_if_it_is_no_text_too(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert GENERATOR.run([], tmp_path) == 0
    assert GENERATOR.run(["--check"], tmp_path) == 0
    (tmp_path / "made" / "a.txt").write_bytes(content)
    assert GENERATOR.run(["--check"], tmp_path) == 1
    assert capsys.readouterr().err == "made/a.txt is out of date: run python -m maker\n"
    assert GENERATOR.run([], tmp_path) == 0
    assert (tmp_path / "made" / "a.txt").read_text(encoding="utf-8") == "é\n"
