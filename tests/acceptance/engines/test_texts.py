"""Prompts as tokens, and where answers end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_specdecode.acceptance.engines.given import shipped_model, shown, whole_numbers, without_paths
from otel_specdecode.acceptance.engines.texts import PromptTokens, until
from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.prompts import Prompt

few = st.text("ab.", max_size=12)


@given(pieces=st.lists(few), stops=st.lists(st.text("ab.", min_size=1, max_size=4), max_size=3))
def test_an_answer_ends_before_its_first_stop_text_however_it_is_cut_into_pieces(
    pieces: list[str], stops: list[str]
) -> None:
    seen, whole = "", "".join(pieces)
    for piece in pieces:  # a text is only known as far as it has come, and what has come is never taken back
        seen += piece
        if any(stop in seen for stop in stops):
            whole = seen[: min(place for place in map(seen.find, stops) if place >= 0)]
            break
    assert "".join(until(pieces, stops)) == whole


def test_nothing_is_held_back_but_what_may_begin_a_stop_text() -> None:
    assert list(until(["ab", "c<", "d", "<e", "nd>", "more"], ["<end>"])) == ["ab", "c", "<d", "", ""]


def test_without_stop_texts_pieces_are_left_as_they_are() -> None:
    assert list(until(["a", "", "b"], ())) == ["a", "", "b"]


def test_nothing_is_asked_for_after_a_stop_text() -> None:
    pieces = iter(["a stop", "never read"])
    assert "".join(until(pieces, ["stop"])) == "a "
    assert next(pieces) == "never read"


def test_tokens_of_a_prompt_are_made_once_and_handed_out_as_copies() -> None:
    made: list[str] = []
    tokens = PromptTokens("m", lambda prompt: made.append(prompt.id) or [1, 2], None)
    prompt = Prompt("p", text="a")
    tokens.of(prompt).append(3)
    assert tokens.of(prompt) == [1, 2]
    assert made == ["p"]


def test_another_prompt_of_the_same_name_has_its_own_tokens() -> None:
    tokens = PromptTokens("m", lambda prompt: list((prompt.text or "").encode()), None)
    assert [tokens.of(Prompt("p", text=text)) for text in ("a", "b")] == [[97], [98]]


def test_a_prompt_fits_with_its_answer_or_is_refused_with_the_numbers() -> None:
    tokens = PromptTokens("m", lambda _: [1] * 90, 100)
    assert len(tokens.of(Prompt("p", text="a", max_tokens=10))) == 90
    with pytest.raises(AcceptanceError, match=r"^prompt 'q' does not fit: 90 .* 11 are 101, .* of m has 100\.$"):
        tokens.of(Prompt("q", text="a", max_tokens=11))


@pytest.mark.parametrize(
    ("name", "folder"), [("tiny", "target"), ("tiny:draft", "draft"), ("tiny:draft-kd", "draft-kd")]
)
def test_models_of_the_tiny_pair_have_short_names(name: str, folder: str) -> None:
    found = shipped_model(name)
    assert found is not None
    assert found.name == folder


@pytest.mark.parametrize("name", ["./tiny", "tinyllama", "folder/tiny"])
def test_other_names_are_not_of_the_tiny_pair(name: str) -> None:
    assert shipped_model(name) is None


def test_a_model_that_does_not_ship_is_told_with_those_that_do() -> None:
    with pytest.raises(AcceptanceError, match=r"'tiny:huge'.* tiny and tiny:draft, tiny:draft-kd, tiny:draft-weak"):
        shipped_model("tiny:huge")


@pytest.mark.parametrize("value", [0, -1, 1.5, "many", True])
def test_an_option_is_a_whole_number_from_its_least_on(value: float | str | bool) -> None:
    with pytest.raises(AcceptanceError, match=r"n_ctx must be a whole number from 1 on"):
        whole_numbers("E", {"n_ctx": value}, {"n_ctx": 1})


def test_messages_name_no_folder() -> None:
    error = OSError("cannot open /home/somebody/models/big.gguf: no")
    assert without_paths(error, "/home/somebody/models/big.gguf") == "cannot open big.gguf: no"
    assert shown("/home/somebody/models/big/") == "big"
