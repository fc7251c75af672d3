"""`otel-specdecode prompts ...`."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

pytest.importorskip("click", reason="needs the [cli] extra")
pytest.importorskip("jsonschema", reason="needs the [acceptance] extra")

from click.testing import CliRunner, Result

from otel_specdecode.acceptance.mix import bundled
from otel_specdecode.acceptance.prompt_files import prompts_digest, read_prompts
from otel_specdecode.cli import main
from otel_specdecode.telemetry.names import Attr

GOOD = '{"id": "a", "prompt": "hello", "kind": "code", "check": {"regex": "x"}}\n{"id": "b", "prompt": "hello"}\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def invoke(*arguments: str) -> Result:
    # Before 8.2, click mixed the two outputs unless it was told not to.
    apart = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
    return CliRunner(**apart).invoke(main, ["prompts", *arguments])


def test_check_prints_ok_with_the_digest_and_what_there_is() -> None:
    Path("p.jsonl").write_text(GOOD)
    result = invoke("check", "p.jsonl")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        f"ok {prompts_digest(read_prompts(['p.jsonl']))}\n"
        "2 prompts, 1 with a check\ntier: short 2\nkind: code 1, other 1\n"
    )


def test_check_prints_every_bad_line_and_nothing_else() -> None:
    Path("p.jsonl").write_text(GOOD + "{\n" + GOOD)
    result = invoke("check", "p.jsonl", "gone.jsonl")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines() == [
        "p.jsonl:3: this is not JSON, at column 2: expecting property name enclosed in double quotes",
        "p.jsonl:4: id a is taken: p.jsonl:1 has it",
        "p.jsonl:5: id b is taken: p.jsonl:2 has it",
        "gone.jsonl:1: there is no such file",
    ]


def test_from_text_writes_a_file_that_check_takes() -> None:
    Path("a.txt").write_text("one\nmore\n\ntwo\n")
    options = ("--paragraphs", "--chat", "--kind", "summary", "--max-tokens", "40")
    result = invoke("from-text", "a.txt", "-o", "p.jsonl", *options)
    assert (result.exit_code, result.stderr) == (0, "Wrote p.jsonl.\n")
    assert result.stdout.startswith("2 prompts, 0 with a check\n")
    assert [(prompt.messages, prompt.kind, prompt.max_tokens) for prompt in read_prompts(["p.jsonl"])] == [
        (({"role": "user", "content": text},), "summary", 40) for text in ("one\nmore", "two")
    ]
    assert invoke("check", "p.jsonl").exit_code == 0


def test_from_spans_writes_a_file_that_check_takes() -> None:
    values = {Attr.GEN_AI_USAGE_INPUT_TOKENS: {"intValue": "90"}, Attr.GEN_AI_USAGE_OUTPUT_TOKENS: {"intValue": "7"}}
    values |= {Attr.GEN_AI_OPERATION_NAME: {"stringValue": "chat"}, Attr.SPECDECODE_COHORT: {"stringValue": "normal"}}
    span = {"attributes": [{"key": key, "value": value} for key, value in values.items()]}
    Path("s.jsonl").write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span] * 6}]}]}))
    result = invoke("from-spans", "s.jsonl", "-o", "p.jsonl", "--bins", "3")
    assert result.exit_code == 0
    assert [(prompt.max_tokens, prompt.weight) for prompt in read_prompts(["p.jsonl"])] == [
        (7, 3.0),
        (7, 2.0),
        (7, 1.0),
    ]
    assert invoke("check", "p.jsonl").exit_code == 0


def test_show_mix_prints_a_mix_or_writes_it() -> None:
    printed = invoke("show-mix", "tiny")
    assert printed.exit_code == 0
    assert invoke("show-mix", "tiny", "-o", "p.jsonl").exit_code == 0
    assert Path("p.jsonl").read_text(encoding="utf-8") == printed.stdout
    assert read_prompts(["p.jsonl"]) == bundled("tiny")


def test_a_mix_that_is_not_there_is_told() -> None:
    result = invoke("show-mix", "tny")
    assert result.exit_code == 1
    assert result.stderr == "Error: there is no mix 'tny'; did you mean tiny?; the mixes are default, tiny, checked\n"


@pytest.mark.parametrize(
    "command", [("from-text", "a.txt"), ("from-spans", "s.jsonl"), ("show-mix", "tiny")], ids=lambda command: command[0]
)
def test_no_file_is_replaced_unless_it_is_forced(command: tuple[str, str], folder: Path) -> None:
    test_from_spans_writes_a_file_that_check_takes()
    Path("a.txt").write_text("one")
    Path("p.jsonl").write_text("mine")
    result = invoke(*command, "-o", "p.jsonl")
    assert result.exit_code == 1
    assert result.stderr == "Error: p.jsonl is there already: name another file, or say --force\n"
    assert Path("p.jsonl").read_text() == "mine"
    assert invoke(*command, "-o", "p.jsonl", "--force").exit_code == 0
    assert read_prompts(["p.jsonl"])
    assert sorted(path.name for path in folder.iterdir()) == ["a.txt", "p.jsonl", "s.jsonl"]


def test_what_is_read_is_never_replaced() -> None:
    Path("a.txt").write_text("one")
    result = invoke("from-text", "a.txt", "-o", "./a.txt", "--force")
    assert result.exit_code == 1
    assert "./a.txt is what is read: name another file" in result.stderr
    assert Path("a.txt").read_text() == "one"


def test_bad_input_is_told_by_file_and_line_and_nothing_is_written(folder: Path) -> None:
    Path("a.txt").write_bytes(b"one\n\xff\n")
    Path("s.jsonl").write_text("{}\n")
    assert invoke("from-text", "a.txt", "-o", "p.jsonl").stderr.startswith("a.txt:2: this is not UTF-8")
    assert invoke("from-spans", "s.jsonl", "-o", "p.jsonl").stderr.startswith("s.jsonl:1: this is no export request")
    assert not Path("p.jsonl").exists()
