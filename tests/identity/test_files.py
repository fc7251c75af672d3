"""Facts of files are read once, and errors name no folder."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from otel_specdecode.identity.files import FileCache, joined
from otel_specdecode.identity.models import Fingerprint


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
    cache = FileCache(readings)
    assert [cache.facts(tmp_path / way) for way in ("a", "./a", "folder/../a")] == ["one"] * 3
    assert readings.of == ["a"]


def test_a_link_is_read_for_itself(tmp_path: Path, readings: Readings) -> None:
    """It may point into a hub's cache, whose names tell what the file does not."""
    (tmp_path / "a").write_text("one")
    (tmp_path / "b").symlink_to("a")
    cache = FileCache(readings)
    assert [cache.facts(tmp_path / name) for name in ("a", "b", "b")] == ["one"] * 3
    assert readings.of == ["a", "b"]


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


def test_files_together_are_known_by_content_if_all_are() -> None:
    whole, sampled = Fingerprint("sha256", "a" * 64), Fingerprint("sampled", "a" * 64)
    assert joined([sampled]) == sampled
    assert [joined(each).kind for each in ([whole, whole], [whole, sampled])] == ["sha256", "sampled"]
    assert joined([whole, sampled]) != joined([sampled, whole])
