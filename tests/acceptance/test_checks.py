"""Whether an answer passes its check."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

pytest.importorskip("jsonschema", reason="needs the [acceptance] extra")

from otel_specdecode.acceptance.checks import LONGEST_ANSWER, passes, regex_fault, schema_fault
from otel_specdecode.acceptance.prompts import Check

FOX = Check(json_schema={"type": "object", "required": ["name"], "properties": {"name": {"const": "fox"}}})


@pytest.mark.parametrize(("answer", "passed"), [("a 42.", True), ("a 420.", False), ("", False)])
def test_a_regex_is_found_somewhere(answer: str, passed: bool) -> None:
    assert passes(Check(regex=r"\b42\b"), answer) is passed


@pytest.mark.parametrize(("answer", "passed"), [("\n a b\n", True), ("a  b", False), ("A b", False), ("a b.", False)])
def test_an_exact_answer_may_have_white_space_around_it(answer: str, passed: bool) -> None:
    assert passes(Check(exact="a b "), answer) is passed


@pytest.mark.parametrize(
    "answer",
    [
        '{"name": "fox"}',
        ' \n{"name": "fox", "age": 3}\n',
        '```json\n{"name": "fox"}\n```',
        'Here you are:\n\n```json\n{"name":\n "fox"}\n```\nEnjoy.',
        '```JSON\r\n{"name": "fox"}\r\n```',
        '```\n{"name": "fox"}\n```',
        '```python\nprint(1)\n```\n```json\n{"name": "fox"}\n```',
    ],
)
def test_json_may_stand_alone_or_in_a_fence(answer: str) -> None:
    assert passes(FOX, answer)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "fox",
        '{"name": "hen"}',
        'Here you are: {"name": "fox"}',
        '{"name": "fox"',
        '```json\n{"name": "fox"}',
        'So:\n```\n{"name": "fox"}\n```',
        '```json\n{"name": "hen"}\n```\n```json\n{"name": "fox"}\n```',
        '{"name": "fox", "age": NaN}',
        '[{"name": "fox"}]',
        "[" * 15_000,
        "1" * 15_000,
    ],
)
def test_anything_else_fails_a_schema(answer: str) -> None:
    assert not passes(FOX, answer)


def test_a_longer_answer_than_a_check_reads_fails_it() -> None:
    assert passes(Check(regex="a"), "a" * LONGEST_ANSWER)
    assert not passes(Check(regex="a"), "a" * (LONGEST_ANSWER + 1))


def test_the_draft_that_a_schema_names_is_the_one_that_counts() -> None:
    schema = {"type": "array", "items": [{"type": "string"}]}
    assert schema_fault({**schema, "$schema": "http://json-schema.org/draft-07/schema#"}) is None
    assert not passes(Check(json_schema={**schema, "$schema": "http://json-schema.org/draft-07/schema#"}), "[1]")
    assert schema_fault(schema) == "is no JSON schema: $.items breaks the rule 'type' of its draft"


def test_a_regex_that_a_later_python_may_read_otherwise_warns_nobody() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert regex_fault("[[a]b]") is None


def test_no_schema_is_read_from_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        pytest.fail("the network was asked")

    monkeypatch.setattr("socket.getaddrinfo", never)
    monkeypatch.setattr("urllib.request.urlopen", never)
    assert schema_fault({"$ref": "http://localhost/a.json"}) == (
        "is no JSON schema that can be followed: all that it refers to must be in it"
    )


def test_a_schema_that_its_library_cannot_follow_fails_every_answer() -> None:
    assert not passes(Check(json_schema={"type": "no such type"}), "7")


@pytest.mark.parametrize("hidden", [{"type": "no such type"}, {"minimum": "a text"}, {"pattern": "("}])
def test_a_schema_is_looked_at_where_a_reference_leads_too(hidden: dict[str, Any]) -> None:
    """Under a keyword that is unknown, nothing else looks at it, until an answer is held against it."""
    schema = {"anyOf": [{"type": "null"}, {"$ref": "#/hidden"}], "hidden": hidden}
    assert (schema_fault(schema) or "").startswith("is no JSON schema: ")
