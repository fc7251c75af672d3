"""Model names fit for telemetry."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_specdecode.identity.names import Loaded, ModelBook, public_name


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("mlx-community/Qwen3-0.6B-4bit", "mlx-community/Qwen3-0.6B-4bit"),
        ("gpt2", "gpt2"),
        ("/Users/ada/models/Qwen3-0.6B-4bit", "Qwen3-0.6B-4bit"),
        ("/Users/ada/models/Qwen3-0.6B-4bit/", "Qwen3-0.6B-4bit"),
        ("~/models/tiny", "tiny"),
        ("./tiny", "tiny"),
        ("/Users/ada/.cache/huggingface/hub/models--acme--Tiny-1M/snapshots/0123abc", "acme/Tiny-1M"),
        ("C:\\Users\\ada\\hub\\models--acme--Tiny-1M\\snapshots\\0123abc", "acme/Tiny-1M"),
        ("C:\\Users\\ada\\models\\tiny", "tiny"),
        ("", None),
        ("/", None),
        ("~", None),
        ("~ada", None),
        ("/home/ada", None),
        ("/Users/ada/", None),
        ("C:\\Users\\ada", None),
        ("/root", None),
        ("/Users/ada/hub/models--acme--Tiny-1M/snapshots/0123abc/4bit", "acme/Tiny-1M"),
    ],
)
def test_the_name_is_what_the_caller_knows(location: str, name: str | None) -> None:
    """A repository id stays, a folder gives its own name, a hub snapshot its repository."""
    assert public_name(location) == name


def test_a_relative_folder_gives_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`models/target` looks like a repository id, but is a folder here; `.` is the folder one stands in."""
    (tmp_path / "models" / "target").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "models")
    assert public_name(".") == "models"
    monkeypatch.chdir(tmp_path)
    assert public_name("models/target") == "target"


def test_the_home_folder_has_no_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its name is the user's, wherever it lies, and however it is written."""
    home = tmp_path / "ada"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home)
    assert [public_name(location) for location in (str(home), f"{home}/", ".", "~")] == [None] * 4


@given(st.text(max_size=60))
def test_no_path_comes_through(location: str) -> None:
    """Whatever the location, the name has one slash at most and no home folder."""
    name = public_name(f"/home/ada/{location}") or ""
    assert "ada/" not in name
    assert name.count("/") <= 1


class Model(dict[str, int]):
    """Unhashable, as mlx's modules are."""

    __hash__ = None  # type: ignore[assignment]


def test_a_name_lasts_as_long_as_its_model() -> None:
    """Remembered by identity, replaced by a newer name, forgotten with the object."""
    book, model = ModelBook(), Model()
    assert book.name_of(model) is None
    book.remember(model, Loaded("one", 512))
    book.remember(model, Loaded("two", 1_024))
    assert (book.name_of(model), book.vocabulary_of(model)) == ("two", 1_024)
    assert book.name_of(Model()) is None
    del model
    gc.collect()
    assert book._known == {}


@pytest.mark.parametrize(
    "location",
    [
        "/home//alice",
        "//home/alice",
        "/home/./alice",
        "c:/users/alice",
        "C:\\Users\\alice",
        "/var/home/alice",
        "/export/home/alice",
        "/private/home/alice",
        "/System/Volumes/Data/Users/alice",
        "/mnt/c/Users/alice",
    ],
)
def test_a_home_folder_has_no_name_however_it_is_written(location: str) -> None:
    assert public_name(location) is None


def test_the_own_home_has_no_name_by_any_way_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "alice"
    home.mkdir()
    (tmp_path / "link").symlink_to(home)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path)
    assert [public_name(way) for way in ("alice", "link", f"{tmp_path}//alice", "alice/.")] == [None] * 4
    monkeypatch.delenv("HOME")
    assert public_name("/models/tiny") == "tiny"


def test_a_name_is_printable_and_short() -> None:
    assert public_name("/models/esc\x1b[31mred\n\u202e") == "esc?[31mred??"
    assert public_name("/models/" + "x" * 500) == "x" * 128
