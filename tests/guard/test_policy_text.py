"""The default policy as a file, and the schema that editors check policies with."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

jsonschema = pytest.importorskip("jsonschema", reason="needs the [dev] extra")
msgspec = pytest.importorskip("msgspec", reason="needs the [guard] extra")

from otel_specdecode.guard.policy import MEANING, Policy, Table, Trigger  # noqa: E402
from otel_specdecode.guard.policy_file import read_policy  # noqa: E402
from otel_specdecode.guard.policy_text import EXAMPLES, default_policy_text, policy_schema  # noqa: E402
from tests.guard.broken_policies import RULES, SHAPES  # noqa: E402

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

COMMENTED_KEY = re.compile(r"^# (\w+ = )", re.MULTILINE)


def test_the_default_file_reads_back_as_the_default_policy(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(default_policy_text(), encoding="utf-8")
    assert read_policy(path).policy == Policy()


def test_the_default_file_changes_no_request(tmp_path: Path) -> None:
    assert 'mode = "observe_only"' in default_policy_text().splitlines()


def described(lines: list[str], key: str) -> bool:
    """Whether the first line with this key, set or not, is below a comment that ends as a sentence does."""
    at = next(at for at, line in enumerate(lines) if re.match(rf"(# )?{key} = ", line))
    return re.fullmatch(r"# .*\.", lines[at - 1]) is not None


def test_every_key_is_there_below_what_it_means() -> None:
    lines = default_policy_text().splitlines()
    for each in msgspec.structs.fields(Policy):
        if isinstance(each.type, type) and issubclass(each.type, Table):
            table = lines[lines.index(f"[{each.name}]") :]
            assert all(described(table, key.name) for key in msgspec.structs.fields(each.type)), each.name
        elif each.name != "triggers":
            assert described(lines, each.name), each.name


def test_every_key_of_a_trigger_is_told_once_and_its_measure_above_each() -> None:
    lines = default_policy_text().splitlines()
    for each in msgspec.structs.fields(Trigger):
        assert len([line for line in lines if line.startswith(f"# {each.name}: ")]) == 1
    for name, trigger in Policy().triggers.items():
        measure: Any = name if trigger.measure is msgspec.UNSET else trigger.measure
        assert MEANING[measure].split()[-1] in lines[lines.index(f"[triggers.{name}]") - 1]


def test_every_example_may_be_used_as_it_stands(tmp_path: Path) -> None:
    text, keys = COMMENTED_KEY.subn(r"\1", default_policy_text())
    assert keys == len(EXAMPLES)
    text = text.replace('source = "control"', 'source = "file"')
    (tmp_path / EXAMPLES["baseline", "file"]).write_text("{}")
    path = tmp_path / "policy.toml"
    path.write_text(text, encoding="utf-8")
    policy: Any = read_policy(path).policy
    for place, value in EXAMPLES.items():
        found = policy
        for key in place:
            found = getattr(found, key)
        assert found == value


def test_lines_are_short_but_for_bounds_of_each_draft_length() -> None:
    assert [line for line in default_policy_text().splitlines() if len(line) > 100 and "16+" not in line] == []


def test_the_schema_is_a_schema_and_takes_the_default_policy() -> None:
    jsonschema.Draft202012Validator.check_schema(policy_schema())
    validator = jsonschema.Draft202012Validator(policy_schema())
    assert list(validator.iter_errors(tomllib.loads(default_policy_text()))) == []
    assert list(validator.iter_errors({})) == []


@pytest.mark.parametrize("text", [text for text, _ in SHAPES])
def test_the_schema_refuses_what_has_the_wrong_shape(text: str) -> None:
    document = tomllib.loads(text)
    assert not jsonschema.Draft202012Validator(policy_schema()).is_valid(document)


def test_the_schema_alone_is_not_enough() -> None:
    validator = jsonschema.Draft202012Validator(policy_schema())
    assert [text for text, _ in RULES if validator.is_valid(tomllib.loads(text))]


def test_every_table_and_key_of_the_schema_is_described() -> None:
    schema = policy_schema()
    for name, definition in schema["$defs"].items():
        assert definition["description"].endswith("."), name
        for key, each in definition["properties"].items():
            assert each["description"], (name, key)
            assert {"type": "null"} not in each.get("anyOf", [])
