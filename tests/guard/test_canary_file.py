"""Results of quality canaries out of a file that somebody else writes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_specdecode.guard.canary_file import CanaryFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "canary"


def add(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_each_line_that_is_added_is_told_once(path: Path) -> None:
    add(path, "fail\n")
    results = CanaryFile(path)
    assert results.news() == []
    add(path, "pass\nFAIL\n  pass \n")
    assert results.news() == [True, False, True]
    assert results.news() == []


def test_a_line_counts_when_it_is_whole(path: Path) -> None:
    results = CanaryFile(path)
    add(path, "pass\nfa")
    assert results.news() == [True]
    add(path, "il\n")
    assert results.news() == [False]


def test_other_lines_are_no_results(path: Path) -> None:
    results = CanaryFile(path)
    add(path, "\npassed\n# fail\nfail\n")
    assert results.news() == [False]


def test_a_file_that_is_begun_anew_is_read_from_its_beginning(path: Path) -> None:
    add(path, "pass\npass\n")
    results = CanaryFile(path)
    path.write_text("fail\n")
    assert results.news() == [False]
    path.unlink()
    assert results.news() == []
    add(path, "fail\n")
    assert results.news() == [False]


def test_a_line_without_an_end_does_not_stop_those_after_it(path: Path) -> None:
    results = CanaryFile(path)
    add(path, "x" * 200_000 + "\nfail\n")
    assert [result for _ in range(5) for result in results.news()] == [False]


@given(st.binary(max_size=400))
def test_whatever_is_in_it_raises_nothing(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("canary") / "results"
    results = CanaryFile(path)
    path.write_bytes(content)
    assert all(type(result) is bool for result in results.news())


def test_a_longer_file_in_its_place_is_read_from_its_beginning(tmp_path: Path) -> None:
    """As where it was rotated, and much was told since."""
    path = tmp_path / "canary"
    path.write_text("pass\n")
    canaries = CanaryFile(path)
    (tmp_path / "next").write_text("fail\nfail\n")
    (tmp_path / "next").replace(path)
    assert canaries.news() == [False, False]
    assert canaries.news() == []


def saved_anew(path: Path, text: str) -> None:
    """As `sed -i` and editors save: another file in its place."""
    aside = path.with_name("aside")
    aside.write_text(text)
    aside.replace(path)


def test_a_file_that_is_saved_anew_has_only_the_lines_that_were_added_as_news(path: Path) -> None:
    add(path, "fail\nfail\n")
    results = CanaryFile(path)
    saved_anew(path, "fail\nfail\n")
    assert results.news() == []
    saved_anew(path, "fail\nfail\npass\n")
    assert results.news() == [True]
    path.write_text("fail\nfail\npass\nfail\n")
    assert results.news() == [False]
    saved_anew(path, "fail\nfail\npass\nfail\n")
    assert results.news() == []


def test_a_file_that_begins_otherwise_is_read_from_its_beginning_whoever_wrote_it(path: Path) -> None:
    add(path, "pass\n")
    results = CanaryFile(path)
    path.write_text("fail\npass\n")
    assert results.news() == [False, True]
    saved_anew(path, "pass\npass\n")
    assert results.news() == [True, True]


def test_a_long_file_that_is_saved_anew_has_no_news(path: Path) -> None:
    """Longer than what a look reads."""
    text = "pass\nfail\n" * 30_000
    add(path, text)
    results = CanaryFile(path)
    saved_anew(path, text)
    assert results.news() == []
    saved_anew(path, f"{text}fail\n")
    assert results.news() == [False]


def test_what_is_no_file_is_not_waited_for(path: Path) -> None:
    add(path, "pass\n")
    results = CanaryFile(path)
    path.unlink()
    os.mkfifo(path)
    assert results.news() == []
    path.unlink()
    path.mkdir()
    assert results.news() == []
