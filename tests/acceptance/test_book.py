"""What a run has so far: on the disk, and of hours of it next to nothing in memory."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("msgspec", reason="needs the [acceptance] extra")

from otel_specdecode.acceptance import book as book_module
from otel_specdecode.acceptance.book import Book
from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.prompts import Prompt
from otel_specdecode.acceptance.records import Arm, Measured, Note, RunHead
from otel_specdecode.acceptance.storage import HEAD, RESULTS, RunWriter, holds_run, read_run
from otel_specdecode.acceptance.sweep import job_id
from tests.acceptance.fake_runs import FakeRuns, open_book
from tests.acceptance.fakes import BEGAN, MANIFEST, World, fake_request

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


def test_whoever_is_killed_as_a_run_begins_leaves_one_with_what_ended_before_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = RunHead("r", "sweep", BEGAN, "llama_cpp", MANIFEST, {}, ARMS, ())

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    for owner, name in ((RunWriter, "add"), (book_module, "begin"), (book_module, "read_run")):
        folder = tmp_path / name
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, killed)
            with pytest.raises(KeyboardInterrupt):
                Book.begin(folder, head, [request(1)])
        if not holds_run(folder):
            Book.begin(folder, replace(head, run_id="again"), [request(1)]).close()
        run = read_run(folder)
        assert run.results == (request(1),)
        assert not run.faults
        assert len((folder / RESULTS).read_bytes().splitlines()) == 1


def test_a_run_is_not_begun_where_there_is_one_or_what_is_left_of_one(book: Book, tmp_path: Path) -> None:
    head = book.head
    book.add(request(1))
    book.note(Note(BEGAN, "begun"))
    book.close()
    with pytest.raises(AcceptanceError, match="holds a run already: resume it with --resume"):
        Book.begin(tmp_path / "run", head)
    (tmp_path / "run" / HEAD).unlink()
    with pytest.raises(AcceptanceError, match=r"holds a run whose run\.json is gone: name another folder"):
        Book.begin(tmp_path / "run", head)
    assert (tmp_path / "run" / RESULTS).stat().st_size
    (tmp_path / "file").touch()
    with pytest.raises(AcceptanceError, match="file cannot be written: it is a file"):
        Book.begin(tmp_path / "file", head)
    with pytest.raises(AcceptanceError, match=r"file/run cannot be written \(Not a directory\)"):
        Book.begin(tmp_path / "file" / "run", head)


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
