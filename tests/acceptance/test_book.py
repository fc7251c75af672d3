"""What a run has so far: on the disk, and of hours of it next to nothing in memory."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("msgspec", reason="needs the [acceptance] extra")

from otel_specdecode.acceptance.book import Book
from otel_specdecode.acceptance.prompts import Prompt
from otel_specdecode.acceptance.records import Arm, Measured
from otel_specdecode.acceptance.storage import read_run
from otel_specdecode.acceptance.sweep import job_id
from tests.acceptance.fake_runs import FakeRuns, open_book
from tests.acceptance.fakes import BEGAN, World, fake_request

AR, DRAFTED = ARMS = Arm(0), Arm(4)


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return open_book(tmp_path / "run", FakeRuns(), ARMS)


def request(number: int, arm: Arm = DRAFTED) -> Measured:
    """One of many tokens, whose passes are a line of many kilobytes."""
    made = fake_request(arm, Prompt("p", text="Once", max_tokens=400), number, World(), BEGAN)
    return replace(made, id=job_id("test", str(number)))


def test_a_request_that_ended_is_told_and_the_run_has_it(book: Book) -> None:
    assert not book.has(request(1).id)
    book.add(request(1))
    assert book.has(request(1).id)
    assert book.run().results == (request(1),)
    book.close()


def test_a_book_that_is_opened_again_knows_what_ended_before(book: Book, tmp_path: Path) -> None:
    book.add(request(1))
    book.close()
    again = Book(tmp_path / "run")
    assert again.has(request(1).id)
    again.add_arm(Arm(6))
    again.add_arm(Arm(6))
    assert again.run().head.arms == (*ARMS, Arm(6))
    again.close()


def test_what_ended_is_not_kept_in_memory(book: Book) -> None:
    """A soak that kept it would find, after some hours, that the memory of the engine grows."""
    book.add(request(0))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(1, 400):
            book.add(request(number))
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
        book.close()
    assert len(read_run(book.folder).results) == 400
    assert grown < 400 * 300
