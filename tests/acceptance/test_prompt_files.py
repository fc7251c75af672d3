"""Prompt files: what is read, and what is said of lines that cannot be."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jsonschema", reason="needs the [acceptance] extra")
pytest.importorskip("hypothesis", reason="needs the [dev] extra")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_specdecode.acceptance import input_files
from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.prompt_files import (
    PromptError,
    describe,
    prompts_digest,
    read_prompts,
    write_prompts,
)
from otel_specdecode.acceptance.prompts import Check, Prompt

SECRET = "the blue heron sleeps"

GOOD: dict[str, Any] = {"id": "a", "prompt": SECRET}
ALL: dict[str, Any] = {
    "id": "all/1",
    "tier": "mid",
    "kind": "json_tool",
    "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": SECRET}],
    "max_tokens": 64,
    "weight": 2.5,
    "check": {"json_schema": {"type": "object", "required": ["x"]}},
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def faults(*lines: object, name: str = "p.jsonl") -> list[str]:
    """What is said of a file with these lines, each as it is or as JSON; [] if it can be read."""
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    Path(name).write_text("\n".join(texts) + "\n", encoding="utf-8")
    try:
        read_prompts([name])
    except PromptError as error:
        return list(error.lines)
    return []


def fault(**changed: object) -> str:
    """The one thing that is wrong with a good prompt with these keys changed."""
    lines = faults({**GOOD, **changed})
    assert len(lines) == 1
    return lines[0].removeprefix("p.jsonl:1: ")


def test_a_prompt_has_all_that_its_line_says() -> None:
    Path("p.jsonl").write_text(json.dumps(ALL))
    assert read_prompts(["p.jsonl"]) == (
        Prompt(
            id="all/1",
            messages=({"role": "system", "content": "be brief"}, {"role": "user", "content": SECRET}),
            tier="mid",
            kind="json_tool",
            max_tokens=64,
            weight=2.5,
            check=Check(json_schema={"type": "object", "required": ["x"]}),
        ),
    )


def test_id_and_prompt_are_enough() -> None:
    Path("p.jsonl").write_text(json.dumps(GOOD))
    assert read_prompts(["p.jsonl"]) == (Prompt(id="a", text=SECRET),)


def test_blank_lines_windows_line_ends_and_a_missing_last_one_change_nothing() -> None:
    one, two = (json.dumps({**GOOD, "id": each}) for each in "ab")
    Path("p.jsonl").write_bytes(f"\r\n{one}\r\n \t\r\n\r\n{two}".encode())
    assert [prompt.id for prompt in read_prompts(["p.jsonl"])] == ["a", "b"]


def test_every_bad_line_is_told_with_its_number_and_good_ones_are_not() -> None:
    assert faults(
        GOOD, "{", "", {"id": "c"}, {**GOOD, "id": "d", "max_tokens": 0, "weight": -1}, {**GOOD, "id": "e"}
    ) == [
        "p.jsonl:2: this is not JSON, at column 2: expecting property name enclosed in double quotes",
        "p.jsonl:4: a prompt has either prompt or messages: both are missing",
        "p.jsonl:5: max_tokens must be a whole number from 1 to 131072, not 0",
        "p.jsonl:5: weight must be a number above 0 and up to 1000000000, not -1",
    ]


def test_line_17_is_line_17_whatever_signs_end_lines_elsewhere() -> None:
    odd = {"prompt": "one\u2028two\u0085three\x0b"}
    good = [json.dumps({**odd, "id": f"n{number}"}, ensure_ascii=False) for number in range(16)]
    assert [line.split(" ")[0] for line in faults(*good, "nonsense")] == ["p.jsonl:17:"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"id": 7}, "id must be a text in quotes, not 7"),
        ({"id": "a b"}, "id must be 1 to 128 letters, digits and . _ : / # -, and begin with a letter or digit"),
        ({"id": ""}, "id must be 1 to 128 letters, digits and . _ : / # -, and begin with a letter or digit"),
        ({"tier": "shrt"}, 'tier must be one of "short", "mid", "long", not "shrt"; did you mean short?'),
        ({"kind": None}, 'kind must be one of "code", "summary", "translation", "json_tool", "other", not null'),
        ({"max_token": 3}, "a prompt has no key max_token; did you mean max_tokens?"),
        (
            {"zzz": 3},
            "a prompt has no key zzz; its keys are id, tier, kind, prompt, messages, max_tokens, weight, check",
        ),
        ({"max_tokens": 1.5}, "max_tokens must be a whole number from 1 to 131072, not 1.5"),
        ({"max_tokens": True}, "max_tokens must be a whole number from 1 to 131072, not true"),
        ({"max_tokens": 131_073}, "max_tokens must be a whole number from 1 to 131072, not 131073"),
        ({"max_tokens": 10**30}, "max_tokens must be a whole number from 1 to 131072, not so large a number"),
        ({"weight": 0}, "weight must be a number above 0 and up to 1000000000, not 0"),
        ({"weight": "2"}, 'weight must be a number above 0 and up to 1000000000, not "2"'),
        ({"prompt": " \n"}, "prompt must not be empty"),
        ({"prompt": ["x"]}, "prompt must be a text in quotes, not a list"),
        ({"prompt": "\ud800"}, "prompt has half of a character: a \\ud... without its other half"),
        ({"messages": []}, "a prompt has either prompt or messages, not both"),
        ({"check": "42"}, 'check must be an object with one of regex, json_schema, exact, not "42"'),
        ({"check": {}}, "check must have one of regex, json_schema, exact, not none"),
        ({"check": {"regex": "a", "exact": "a"}}, "check must have one of regex, json_schema, exact, not 2"),
        ({"check": {"regex": "(ab"}}, "check.regex does not compile at character 1"),
        ({"check": {"regex": "a{99999999999999999999}"}}, "check.regex does not compile: it is too large"),
        ({"check": {"exact": 3}}, "check.exact must be a text in quotes, not 3"),
        ({"check": {"json_schema": True}}, "check.json_schema must be an object in { }, not true"),
    ],
)
def test_what_is_wrong_with_a_key_is_said(changed: dict[str, object], message: str) -> None:
    assert fault(**changed) == message


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ("hello", 'messages must be a list of turns, not "hello"'),
        ([], "messages must be a list of turns, not an empty one"),
        (["hi"], 'messages[0] must be {"role": ..., "content": ...}, not "hi"'),
        (
            [{"role": "users", "content": "x"}],
            'messages[0].role must be one of "system", "user", "assistant", "tool", not "users"; did you mean user?',
        ),
        (
            [{"content": "x"}],
            'messages[0].role must be one of "system", "user", "assistant", "tool": it is missing',
        ),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content must be a text in quotes, not a list"),
        (
            [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}],
            "messages must not end with a turn of the assistant: the model is to give the answer",
        ),
        (
            [{"role": "user", "content": "x", "contents": 1}],
            "messages[0] has no key contents; did you mean content?",
        ),
    ],
)
def test_what_is_wrong_with_a_turn_is_said(messages: object, message: str) -> None:
    assert faults({"id": "a", "messages": messages}) == [f"p.jsonl:1: {message}"]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "strng"},
        {"properties": {"x": {"pattern": "(ab"}}},
        {"$schema": 3},
        {"$schema": "http://["},
        {"$ref": "#/$defs/gone"},
        {"$ref": "https://example.invalid/schema.json"},
        {"$ref": "#"},
        {"enum": ["\ud800"]},
        {"minimum": "3"},
    ],
)
def test_a_schema_that_is_none_is_told(schema: dict[str, object]) -> None:
    assert fault(check={"json_schema": schema}).startswith("check.json_schema ")


def test_a_schema_may_refer_to_its_own_parts_and_to_itself() -> None:
    tree = {"$defs": {"n": {"properties": {"next": {"$ref": "#/$defs/n"}}}}, "$ref": "#/$defs/n"}
    assert faults({**GOOD, "check": {"json_schema": tree}}) == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1]", "a prompt must be an object in { }, not a list"),
        ('"hello you"', "a prompt must be an object in { }, not that text"),
        ('{"id": "a", "id": "b"}', 'one object has the key "id" twice'),
        ('{"weight": NaN}', "NaN is no JSON: write a number"),
        ('{"id": "a", "prompt": "b"} x', "this is not JSON, at column 28: extra data"),
        ("[" * 200_000, "this is nested too deeply"),
        ('{"weight": 1' + "0" * 5000 + "}", "this has a number with too many digits"),
    ],
)
def test_what_is_wrong_with_a_line_is_said(line: str, message: str) -> None:
    assert faults(line) == [f"p.jsonl:1: {message}"]


def test_a_number_above_all_floats_is_no_weight() -> None:
    assert faults('{"id": "a", "prompt": "b", "weight": 1e999}') == ["p.jsonl:1: weight must be finite"]


def test_an_id_is_taken_once_in_all_files_and_the_other_place_is_named() -> None:
    Path("one.jsonl").write_text("\n" + json.dumps(GOOD))
    lines = "\n".join(json.dumps({**GOOD, "id": each}) for each in "baa")
    Path("two.jsonl").write_text(lines)
    with pytest.raises(PromptError) as caught:
        read_prompts(["one.jsonl", "two.jsonl"])
    assert caught.value.lines == (
        "two.jsonl:2: id a is taken: one.jsonl:2 has it",
        "two.jsonl:3: id a is taken: one.jsonl:2 has it",
    )


def test_a_file_is_named_once() -> None:
    Path("p.jsonl").write_text(json.dumps(GOOD))
    with pytest.raises(PromptError, match=r"^\./p\.jsonl:1: this file is named twice$"):
        read_prompts(["p.jsonl", "./p.jsonl"])


@pytest.mark.parametrize("text", ["", "\n \n\r\n"])
def test_a_file_without_a_prompt_is_told(text: str) -> None:
    Path("p.jsonl").write_text(text)
    with pytest.raises(PromptError, match=r"^p\.jsonl:1: the file has no prompt: write one a line, as JSON$"):
        read_prompts(["p.jsonl"])


def test_bytes_that_are_no_utf8_are_told_line_by_line() -> None:
    Path("p.jsonl").write_bytes(b'{"id": "\xe4"}\n' + json.dumps(GOOD).encode() + b"\n\xff\n")
    with pytest.raises(PromptError) as caught:
        read_prompts(["p.jsonl"])
    assert caught.value.lines == (
        "p.jsonl:1: this is not UTF-8, at byte 9: save the file as UTF-8",
        "p.jsonl:3: this is not UTF-8, at byte 1: save the file as UTF-8",
    )


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32"])
def test_a_file_of_another_encoding_is_told_once(encoding: str) -> None:
    Path("p.jsonl").write_bytes("\n".join(json.dumps(GOOD) for _ in range(9)).encode(encoding))
    with pytest.raises(PromptError, match=r"^p\.jsonl:1: the file is not UTF-8: save it as UTF-8$"):
        read_prompts(["p.jsonl"])


def test_a_byte_order_mark_is_told_and_the_rest_is_read_all_the_same() -> None:
    Path("p.jsonl").write_text(json.dumps(GOOD) + "\n{", encoding="utf-8-sig")
    with pytest.raises(PromptError) as caught:
        read_prompts(["p.jsonl"])
    assert [line.partition(": ")[0] for line in caught.value.lines] == ["p.jsonl:1", "p.jsonl:2"]
    assert "begins with a byte order mark" in caught.value.lines[0]


def test_what_is_no_file_is_told_beside_all_that_is_wrong_elsewhere(folder: Path) -> None:
    (folder / "sub").mkdir()
    os.mkfifo(folder / "pipe")
    Path("bad.jsonl").write_text("{")
    with pytest.raises(PromptError) as caught:
        read_prompts(["sub", "gone.jsonl", "pipe", "nul\0", "bad.jsonl"])
    assert caught.value.lines[:4] == (
        "sub:1: this is a folder: name a prompt file in it",
        "gone.jsonl:1: there is no such file",
        "pipe:1: this is no file: name a prompt file",
        "nul\\x00:1: no file can have this name",
    )
    assert caught.value.lines[4].startswith("bad.jsonl:1: this is not JSON")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_told() -> None:
    Path("p.jsonl").write_text(json.dumps(GOOD))
    Path("p.jsonl").chmod(0)
    with pytest.raises(PromptError, match="this user may not read it"):
        read_prompts(["p.jsonl"])


def test_a_file_that_is_too_large_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_files, "MOST_BYTES", 10)
    assert faults(GOOD) == ["p.jsonl:1: the file is larger than 10 bytes: split it into several files"]


def test_no_message_quotes_a_prompt() -> None:
    told = "\n".join(
        faults(
            '{"id": "a", "prompt": "' + SECRET,
            {"id": SECRET, "prompt": SECRET},
            {SECRET: 1, "id": "c"},
            {"id": "d", "tier": SECRET, "kind": SECRET, "max_tokens": SECRET, "weight": SECRET, "prompt": SECRET},
            {"id": "e", "messages": [{"role": SECRET, "content": [SECRET]}, SECRET]},
            {"id": "f", "prompt": SECRET, "check": {"regex": f"({SECRET}"}},
            {"id": "g", "prompt": SECRET, "check": {"json_schema": {"type": SECRET}}},
            {"id": "h", "prompt": SECRET, "check": {"exact": SECRET, "regex": SECRET}},
            {"id": "i", "messages": SECRET, "check": SECRET},
            json.dumps(SECRET),
            f'{{"{SECRET}": 1, "{SECRET}": 2}}',
        )
    )
    assert len(told.splitlines()) >= 15
    assert not any(word in told for word in SECRET.split()[1:])


def test_prompts_are_written_whole_and_never_over_a_file_unless_forced(folder: Path) -> None:
    write_prompts("p.jsonl", [Prompt("a", text="x")])
    with pytest.raises(AcceptanceError, match=r"p\.jsonl is there already: name another file, or say --force"):
        write_prompts("p.jsonl", [Prompt("b", text="x")])
    assert read_prompts(["p.jsonl"])[0].id == "a"
    write_prompts("p.jsonl", [Prompt("b", text="x")], force=True)
    assert read_prompts(["p.jsonl"])[0].id == "b"
    assert [path.name for path in folder.iterdir()] == ["p.jsonl"]


@pytest.mark.parametrize("force", [False, True])
def test_why_prompts_cannot_be_written_is_told(force: bool) -> None:
    Path("folder").mkdir()
    with pytest.raises(AcceptanceError, match=r"gone/p\.jsonl cannot be written: No such file or directory"):
        write_prompts("gone/p.jsonl", [], force=force)
    with pytest.raises(AcceptanceError, match=r"folder is there already|folder cannot be written: Is a directory"):
        write_prompts("folder", [], force=force)


def test_the_digest_is_that_of_the_content_not_of_order_or_layout() -> None:
    one, two = Prompt("a", text="x"), Prompt("b", text="x")
    assert prompts_digest([one, two]) == prompts_digest([two, one])
    assert re.fullmatch("[0-9a-f]{64}", prompts_digest([one, two]))
    changed = [
        Prompt("a", text="y"),
        Prompt("a", messages=({"role": "user", "content": "x"},)),
        Prompt("a", text="x", max_tokens=129),
        Prompt("a", text="x", weight=2),
        Prompt("a", text="x", check=Check(exact="z")),
    ]
    assert len({prompts_digest([each]) for each in [one, two, *changed]}) == 7


def test_what_a_run_keeps_of_a_prompt_holds_no_text() -> None:
    kept = describe(Prompt("a", text=SECRET, weight=2, check=Check(exact=SECRET)))
    assert set(kept) == {"id", "tier", "kind", "weight", "max_tokens", "digest"}
    assert SECRET not in json.dumps(kept)


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)
checks = st.none() | st.one_of(
    texts.map(lambda text: Check(exact=text)),
    texts.map(lambda text: Check(regex=re.escape(text))),
    st.dictionaries(st.sampled_from(["title", "description"]), texts).map(lambda schema: Check(json_schema=schema)),
)
turns = st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "tool"]), "content": texts})
prompts = st.builds(
    lambda asked, **rest: Prompt(**asked, **rest),
    asked=st.fixed_dictionaries({"text": texts})
    | st.fixed_dictionaries({"messages": st.lists(turns, min_size=1, max_size=3).map(tuple)}),
    id=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:/#-]{0,20}", fullmatch=True),
    tier=st.sampled_from(["short", "mid", "long"]),
    kind=st.sampled_from(["code", "summary", "translation", "json_tool", "other"]),
    max_tokens=st.integers(1, 131_072),
    weight=st.floats(1e-6, 1e9),
    check=checks,
)
fast = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@fast
@given(st.lists(prompts, min_size=1, max_size=5, unique_by=lambda prompt: prompt.id))
def test_what_is_written_is_read_again(folder: Path, made: list[Prompt]) -> None:
    write_prompts("p.jsonl", made, force=True)
    read = read_prompts(["p.jsonl"])
    assert read == tuple(made)
    assert prompts_digest(read) == prompts_digest(made)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
keys = st.sampled_from(["id", "tier", "kind", "prompt", "messages", "max_tokens", "weight", "check", "chek"])
schemas = st.dictionaries(
    st.sampled_from(["type", "$ref", "$schema", "$id", "pattern", "properties", "items", "enum", "allOf", "minimum"]),
    values,
    max_size=3,
)
lines = st.one_of(
    st.binary(max_size=40),
    st.dictionaries(keys, values, max_size=5).map(lambda content: json.dumps(content).encode()),
    schemas.map(lambda schema: json.dumps({"id": "a", "prompt": "x", "check": {"json_schema": schema}}).encode()),
    st.text(max_size=12).map(lambda text: json.dumps({"id": "a", "prompt": "x", "check": {"regex": text}}).encode()),
)


@settings(fast, max_examples=200)
@given(st.lists(lines, max_size=4))
def test_whatever_is_in_a_file_it_is_read_or_told_by_file_and_line(folder: Path, junk: list[bytes]) -> None:
    data = b"\n".join(junk)
    Path("p.jsonl").write_bytes(data)
    told: tuple[str, ...] = ()
    try:
        read = read_prompts(["p.jsonl"])
    except PromptError as error:
        read, told = (), error.lines
    assert bool(read) is not bool(told)
    for line in told:
        found = re.fullmatch(r"p\.jsonl:(\d+): \S.*", line)
        assert found
        assert 1 <= int(found[1]) <= data.count(b"\n") + 1
