"""The file that switches speculation off while its first line says so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from otel_specdecode.guard.flag_file import says_on


@pytest.mark.parametrize(
    "content",
    [
        b"off",
        b"  OFF \r\nsince this morning",
        b"\xef\xbb\xbfoff\n",
        "off\n".encode("utf-16"),
        b"off" + b" " * 100_000,
    ],
)
def test_off_is_off_however_it_was_written(content: bytes, tmp_path: Path) -> None:
    """Some editors and shells begin a file with a mark, or write two bytes a letter."""
    (tmp_path / "flag").write_bytes(content)
    assert not says_on(tmp_path / "flag")


@pytest.mark.parametrize("content", [b"", b"on\n", b"\noff", b"offline", b"\xff\xfe", b"\x80\x81", b"\0" * 1000])
def test_anything_else_is_on(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "flag").write_bytes(content)
    assert says_on(tmp_path / "flag")


def test_no_file_is_on(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert says_on(tmp_path / "flag")
    assert says_on(tmp_path / "file" / "flag")


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    """A pipe that nobody writes to would hold up whoever opens it."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    for each in (tmp_path, tmp_path / "pipe", tmp_path / "loop", Path("/dev/zero")):
        with pytest.raises(OSError, match=r"no file|symbolic"):
            says_on(each)
