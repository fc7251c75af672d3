"""Prompts out of a plain text file."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_specdecode.acceptance.plain_text import prompts_of_text
from otel_specdecode.acceptance.prompt_files import PromptError, read_prompts, write_prompts
from otel_specdecode.acceptance.prompts import Prompt


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(data: bytes, name: str = "my prompts.txt", **options: bool) -> list[str | None]:
    Path(name).write_bytes(data)
    return [prompt.text for prompt in prompts_of_text(name, **options)]


def test_a_line_is_a_prompt_and_blank_lines_are_none() -> None:
    assert made("\ufeffone\r\n\r\n  two\u2028x \nthree".encode()) == ["one", "two\u2028x", "three"]


def test_a_paragraph_is_a_prompt_where_it_is_asked_for() -> None:
    data = b"\none\n  more\n\n \t\n\n\ntwo\r\n\r\nthree"
    assert made(data, paragraphs=True) == ["one\n  more", "two", "three"]


def test_ids_are_the_files_name_and_a_number_and_a_file_takes_them() -> None:
    Path(".my prompts: (1).txt").write_text("one\ntwo")
    prompts = prompts_of_text(".my prompts: (1).txt", kind="code", max_tokens=9)
    assert prompts[0] == Prompt("my-prompts-1--1", text="one", kind="code", max_tokens=9)
    write_prompts("out.jsonl", prompts)
    assert read_prompts(["out.jsonl"]) == prompts


def test_a_name_without_a_letter_gives_ids_too() -> None:
    Path("词.txt").write_text("one")
    assert prompts_of_text("词.txt")[0].id == "prompt-1"


def test_a_prompt_may_be_the_users_turn_of_a_chat() -> None:
    Path("a.txt").write_text("one")
    assert prompts_of_text("a.txt", chat=True)[0].messages == ({"role": "user", "content": "one"},)


def test_the_tier_is_that_of_the_estimated_length() -> None:
    Path("a.txt").write_text("\n".join("word " * count for count in (1024, 1025, 4096, 4097)))
    assert [prompt.tier for prompt in prompts_of_text("a.txt")] == ["short", "mid", "mid", "long"]


def test_what_cannot_be_read_is_told_by_file_and_line() -> None:
    for name, data, message in (
        ("bad.txt", b"a\n\xff\nb\nc\xfe\n", "this is not UTF-8, at byte 1: save the file as UTF-8"),
        ("empty.txt", b" \n\n", "the file has no text"),
    ):
        Path(name).write_bytes(data)
        with pytest.raises(PromptError) as caught:
            prompts_of_text(name)
        assert message in caught.value.lines[0]
    Path("bad.txt").write_bytes(b"a\n\xff\nb\nc\xfe\n")
    with pytest.raises(PromptError) as caught:
        prompts_of_text("bad.txt")
    assert [line.partition(": ")[0] for line in caught.value.lines] == ["bad.txt:2", "bad.txt:4"]
    with pytest.raises(PromptError, match=r"^gone\.txt:1: there is no such file$"):
        prompts_of_text("gone.txt")
