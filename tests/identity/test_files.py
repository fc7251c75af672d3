"""Facts of files are read once, and errors name no folder."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

import pytest

from otel_specdecode.identity.files import FileCache, hub_digest, joined, open_plain
from tests.identity.weight_files import in_hub


class Readings:
    """Reads a file's text, and counts how often."""

    def __init__(self) -> None:
        self.of: list[str] = []

    def __call__(self, path: Path) -> str:
        self.of.append(path.name)
        content = path.read_text()
        if content == "broken":
            raise ValueError("is broken")
        return content


@pytest.fixture
def readings() -> Readings:
    return Readings()


def test_a_file_is_read_once_by_whatever_way_it_is_reached(tmp_path: Path, readings: Readings) -> None:
    (tmp_path / "a").write_text("one")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("a")
    cache = FileCache(readings)
    assert [cache.facts(tmp_path / way) for way in ("a", "./a", "folder/../a", "link")] == ["one"] * 4
    assert readings.of == ["a"]


@pytest.mark.parametrize("change", ["size", "time"])
def test_a_file_that_changed_is_read_again(tmp_path: Path, readings: Readings, change: str) -> None:
    file, cache = tmp_path / "a", FileCache(readings)
    file.write_text("one")
    cache.facts(file)
    before = file.stat()
    file.write_text("three" if change == "size" else "two")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + (0 if change == "size" else 1)))
    assert cache.facts(file) == ("three" if change == "size" else "two")


def test_the_file_that_nobody_asked_for_longest_is_forgotten(tmp_path: Path, readings: Readings) -> None:
    for name in "abc":
        (tmp_path / name).write_text(name)
    cache = FileCache(readings, most=2)
    for name in "abaca":
        cache.facts(tmp_path / name)
    assert readings.of == ["a", "b", "c"]
    cache.facts(tmp_path / "b")
    assert readings.of == ["a", "b", "c", "b"]


def test_what_fails_is_tried_again_and_told_without_the_folder(tmp_path: Path, readings: Readings) -> None:
    file, cache = tmp_path / "a", FileCache(readings)
    with pytest.raises(FileNotFoundError) as missing:
        cache.facts(file)
    file.write_text("broken")
    with pytest.raises(ValueError, match=r"^a is broken$") as broken:
        cache.facts(file)
    assert str(tmp_path) not in f"{missing.value} {broken.value}"
    file.write_text("good")
    assert cache.facts(file) == "good"


def test_many_threads_may_ask_at_once(tmp_path: Path, readings: Readings) -> None:
    """With fewer places than files, so that each forgets what the others read."""
    for number in range(4):
        (tmp_path / str(number)).write_text(str(number))
    cache, wrong = FileCache(readings, most=2), []

    def ask() -> None:
        wrong.extend(n for n in list(range(4)) * 50 if cache.facts(tmp_path / str(n)) != str(n))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (wrong, len(cache._known)) == ([], 2)


def test_a_file_may_be_asked_for_while_another_one_is_read(tmp_path: Path) -> None:
    """As by a child that was forked meanwhile: nothing is held."""
    for name in "ab":
        (tmp_path / name).write_text(name)

    def read(path: Path) -> str:
        return path.read_text() + (cache.facts(tmp_path / "b") if path.name == "a" else "")

    cache = FileCache(read)
    assert cache.facts(tmp_path / "a") == "ab"


def test_files_together_have_the_digest_of_theirs_in_order() -> None:
    one, other = "1" * 64, "2" * 64
    assert joined([one]) == one
    assert joined([one, other]) == hashlib.sha256(f"{one}\n{other}".encode()).hexdigest()
    assert joined([one, other]) != joined([other, one])


def test_a_hub_cache_has_the_sha256_of_the_content(tmp_path: Path) -> None:
    """Of several files, over theirs; not if one lies elsewhere."""
    links = [in_hub(tmp_path, name, name.encode()) for name in ("one", "two")]
    digests = [hashlib.sha256(link.read_bytes()).hexdigest() for link in links]
    assert hub_digest(links[:1]) == digests[0]
    assert hub_digest(links) == joined(digests)
    links[0].unlink()
    links[0].write_bytes(b"one")
    assert hub_digest(links) is None
    assert hub_digest([]) is None


def test_no_other_link_has_one(tmp_path: Path) -> None:
    """One to a blob that is named by a git hash, one to a like name elsewhere, and a blob that is no link."""
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    targets = [blobs / ("a" * 40), tmp_path / ("a" * 64), blobs / ("a" * 64)]
    links = [tmp_path / name for name in ("git", "elsewhere")]
    for target in targets:
        target.touch()
    for link, target in zip(links, targets, strict=False):
        link.symlink_to(target)
    assert [hub_digest([file]) for file in (*links, targets[-1])] == [None] * 3


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="is not a plain file"):
        open_plain(tmp_path / "pipe")
    with pytest.raises(OSError):  # noqa: PT011 - which one differs between systems
        open_plain(tmp_path / "none")
