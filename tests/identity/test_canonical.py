"""One content, one JSON text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_specdecode.identity.canonical import canonical_json, sha256_of

CONTENT = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)


def turned_round(content: Any) -> Any:
    """The same content, with every table filled from its end."""
    if isinstance(content, dict):
        return {key: turned_round(content[key]) for key in reversed(content)}
    return [turned_round(each) for each in content] if isinstance(content, list) else content


@given(CONTENT)
def test_content_comes_back_from_its_json(content: Any) -> None:
    assert json.loads(canonical_json(content)) == content


@given(CONTENT)
def test_order_of_keys_has_no_meaning(content: Any) -> None:
    assert canonical_json(turned_round(content)) == canonical_json(content)


@given(CONTENT)
def test_what_is_canonical_stays_as_it_is(content: Any) -> None:
    text = canonical_json(content)
    assert canonical_json(json.loads(text)) == text


def test_the_form_is_pinned() -> None:
    content = {"b": [1.0, 0.1, -0.0, 1e300, True, None], "a": "\u00e9\n", "c": (1, 2)}
    assert canonical_json(content) == '{"a":"\u00e9\\n","b":[1,0.1,0,1e+300,true,null],"c":[1,2]}'
    assert sha256_of({}) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


def test_what_is_no_unicode_is_replaced() -> None:
    """A file's name may hold bytes of any kind."""
    assert canonical_json({"\udcff": "a\udc80"}) == '{"?":"a?"}'


@pytest.mark.parametrize("content", [float("nan"), float("inf"), {1: 2}, {"a": {1, 2}}, b"a", object()])
def test_what_json_cannot_hold_is_refused(content: Any) -> None:
    with pytest.raises(ValueError, match=r"^(holds|has) (a|the)"):
        canonical_json([content] if isinstance(content, dict) else {"a": content})


def test_content_nested_without_an_end_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="nested more than"):
        canonical_json(endless)
