"""In which line of a TOML text each key stands."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_specdecode.guard.toml_lines import Place, line_at, lines_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def test_keys_and_tables_have_their_lines() -> None:
    text = """\
# a comment
version = 1

[scope]   # another
by = "tenant"
[windows]
rounds = 5
"""
    assert lines_of(text) == {
        ("version",): 2,
        ("scope",): 4,
        ("scope", "by"): 5,
        ("windows",): 6,
        ("windows", "rounds"): 7,
    }


def test_a_dotted_key_and_a_dotted_header_are_a_place_each_step_down() -> None:
    text = 'a . "b c".d = 1\n[x."y.z".\'w\']\n'
    lines = lines_of(text)
    assert {lines[place] for place in [("a",), ("a", "b c"), ("a", "b c", "d")]} == {1}
    assert {lines[place] for place in [("x",), ("x", "y.z"), ("x", "y.z", "w")]} == {2}


def test_items_of_an_array_over_several_lines_have_lines_of_their_own() -> None:
    text = 'a = [\n  1, # one, ]\n\n  "two]",\n  [3, { k = 4 }],\n]\nb = 2\n'
    lines = lines_of(text)
    assert [lines["a", at] for at in range(3)] == [2, 4, 5]
    assert (lines["a", 2, 1, "k"], lines[("b",)]) == (5, 7)


@pytest.mark.parametrize(
    "string",
    [
        '"""\n[not]\na = 1\n"""',
        "'''\n[not]\n'''",
        '"""a "quoted" ""end"""""',
        "''''quoted' ''''",
        '"\\" # ["',
        '"\\\\"',
        "'\\'",
        '"""\\\n  a"""',
    ],
)
def test_what_looks_like_toml_in_a_string_is_not_read(string: str) -> None:
    text = f"a = {string}\nb = 2\n"
    assert tomllib.loads(text)["b"] == 2
    assert lines_of(text) == {("a",): 1, ("b",): 2 + string.count("\n")}


def test_each_table_of_an_array_of_tables_is_an_item() -> None:
    lines = lines_of("[[t]]\na = 1\n[[t]]\n[t.b]\nc = 1\n[[t.d]]\n[[t.d]]\ne = 1\n")
    assert (lines["t", 0, "a"], lines["t", 1], lines["t", 1, "b", "c"], lines["t", 1, "d", 1, "e"]) == (2, 3, 5, 8)


def test_a_place_that_is_not_in_the_text_has_the_line_of_what_is_around_it() -> None:
    lines = lines_of("a = 1\n[b]\nc = 1\n")
    assert line_at(lines, ("b", "missing", "deeper")) == 2
    assert line_at(lines, ("missing",)) == 1
    assert line_at(lines, ()) == 1


def test_a_key_of_very_many_parts_takes_no_time_to_speak_of() -> None:
    assert lines_of("\n" + ".".join(["a"] * 20_000) + " = 1\n")[("a",)] == 2


KEYS = st.sampled_from(["a", "b-1", "16+", "c d", "[x]", "e=f", '"', "'", "#", "é", "\\", "1", "", "."])
SCALARS = st.sampled_from(
    ["1", "-2.5", "true", '"x # ]"', "'}'", '"""\n[a]\n"""', "1979-05-27 07:32:00", "inf", "0xff", "'''it's'''"]
)
BLANKS = st.sampled_from(["", "\n", "  # a ] comment\n", "\n\n"])


def written(key: str) -> str:
    return key if key.isascii() and key.isalnum() else json.dumps(key, ensure_ascii=False)


@st.composite
def arrays(draw: st.DrawFn, values: st.SearchStrategy[str]) -> str:
    items = draw(st.lists(values, max_size=3))
    return "[" + "".join(f"{draw(BLANKS)} {item}{draw(BLANKS)}," for item in items) + draw(BLANKS) + "]"


@st.composite
def inline_tables(draw: st.DrawFn, values: st.SearchStrategy[str]) -> str:
    keys = draw(st.lists(KEYS, max_size=3, unique=True))
    return "{" + ", ".join(f"{written(key)} = {draw(values)}" for key in keys) + "}"


VALUES = st.recursive(SCALARS, lambda values: arrays(values) | inline_tables(values), max_leaves=6)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Texts of which many are valid TOML."""
    text = ""
    for _ in range(draw(st.integers(1, 6))):
        path = ".".join(written(key) for key in draw(st.lists(KEYS, min_size=1, max_size=3)))
        line = draw(st.sampled_from(["[{}]", "[[{}]]", "{} = ", "{} = ", "{}="])).format(path)
        text += draw(BLANKS) + line + (draw(VALUES) if line.rstrip().endswith("=") else "") + "\n"
    return text


def places(value: Any, place: Place = ()) -> list[Place]:
    """Every place in what the standard library read."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [*([place] if place else []), *(each for key, item in pairs for each in places(item, (*place, key)))]


@given(documents())
def test_what_the_standard_library_reads_has_a_line_and_nothing_else_has(text: str) -> None:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    shallow = {place for place in places(document) if len(place) <= 8}
    lines = lines_of(text)
    assert set(lines) == shallow
    assert all(1 <= line <= text.count("\n") for line in lines.values())
