"""What is told of files that a user names: the advice is that of who reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_specdecode.user_files import UnusableError, read_file


@pytest.mark.parametrize(
    ("advice", "told"),
    [("", "the file is larger than 1_000 bytes"), (": split it", "the file is larger than 1_000 bytes: split it")],
)
def test_what_to_do_with_a_file_that_is_too_large_is_for_its_reader_to_say(
    tmp_path: Path, advice: str, told: str
) -> None:
    path = tmp_path / "large"
    path.write_bytes(bytes(1_001))
    with pytest.raises(UnusableError) as caught:
        read_file(path, "list", 1_000, ": make one", advice)
    assert str(caught.value) == told


def test_what_to_do_where_there_is_none_is_too(tmp_path: Path) -> None:
    with pytest.raises(UnusableError, match=r"^there is no such file: make one$"):
        read_file(tmp_path / "gone", "list", 1_000, ": make one", ": split it")


def test_a_file_that_is_just_large_enough_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(1_000))
    assert read_file(tmp_path / "file", "list", 1_000) == bytes(1_000)
