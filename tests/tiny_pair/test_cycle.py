"""The cycle pair: its arithmetic by hand, and its predictions against the real engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy", reason="needs the [mlx] extra")
pytest.importorskip("tokenizers", reason="needs the [mlx] extra")
pytest.importorskip("safetensors", reason="needs the [mlx] extra")

from otel_specdecode.tiny_pair import chat_tokens
from otel_specdecode.tiny_pair.cycle import CyclePair, Round, build, pattern_of

EOS = 2
WORKED_EXAMPLE = [2, 3, 1, 4, 2, 0, 3, 3]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> CyclePair:
    """The default pair."""
    return build(tmp_path_factory.mktemp("cycle"))


def test_the_walk_visits_every_word_once_before_it_repeats(pair: CyclePair) -> None:
    """253 words of a vocabulary of 512 lie on the cycle, and EOS is none of them."""
    walk = pair.tokens(pair.chat_end, 506)
    assert len(set(walk[:253])) == 253
    assert walk[:253] == walk[253:]
    assert EOS not in walk


@pytest.mark.parametrize("agreement", [0.0, 0.3, 0.7, 1.0])
def test_the_share_of_agreement_is_exact(tmp_path: Path, agreement: float) -> None:
    """Over one turn of the cycle the draft agrees on the chosen share, to the word."""
    pair = build(tmp_path, agreement=agreement)
    words = pair.tokens(pair.chat_end, 253)
    assert sum(pair.agrees[word] for word in words) == 253 - round((1 - agreement) * 253)


def test_a_disagreement_is_a_wrong_guess_and_nothing_else(pair: CyclePair) -> None:
    """`agrees` says of each token whether the two maps meet."""
    for token, agrees in enumerate(pair.agrees):
        assert agrees == (pair.guess[token] == pair.successor[token])


def test_the_worked_example_comes_out_of_its_pattern(tmp_path: Path) -> None:
    """Accepted per round 2, 3, 1, 4, 2, 0, 3, 3 at k = 4: eight finished rounds, 18 accepted, 26 emitted."""
    pair = build(tmp_path, pattern=pattern_of(WORKED_EXAMPLE, 4))
    rounds = pair.rounds(pair.chat_end, 26, 4)
    assert [each.accepted for each in rounds] == WORKED_EXAMPLE
    assert all(each.finished and each.proposed == 4 for each in rounds)
    assert sum(each.emitted for each in rounds) == 26
    assert sum(each.rejected for each in rounds) == 32 - 18


def test_a_budget_cuts_the_draft_and_the_last_round(tmp_path: Path) -> None:
    """With 5 tokens and k = 3 the second round proposes one token, and has no room for the target's own."""
    pair = build(tmp_path, agreement=1.0)
    assert pair.rounds(pair.chat_end, 5, 3) == [Round(3, 3, 4), Round(1, 1, 1)]
    assert pair.flags(pair.chat_end, 5, 3) == [True, True, True, False, True]


def test_an_accepted_eos_leaves_the_rest_of_the_draft_unverified(tmp_path: Path) -> None:
    """EOS as the second of four proposed tokens: two accepted, two never compared, none rejected."""
    pair = build(tmp_path, agreement=1.0, eos_after=1)
    (only,) = pair.rounds(pair.chat_end, 50, 4, until_eos=True)
    assert only == Round(proposed=4, accepted=2, emitted=2)
    assert (only.finished, only.rejected, only.unverified) == (False, 0, 2)


def test_an_eos_that_corrects_the_draft_finishes_its_round(tmp_path: Path) -> None:
    """Where the draft does not see EOS coming, the target's EOS rejects the rest of the draft."""
    pair = build(tmp_path, agreement=1.0, eos_after=1, eos_agrees=False)
    (only,) = pair.rounds(pair.chat_end, 50, 4, until_eos=True)
    assert only == Round(proposed=4, accepted=1, emitted=2)
    assert (only.finished, only.rejected, only.unverified) == (True, 3, 0)


def test_no_draft_length_means_no_rounds(pair: CyclePair) -> None:
    """At k = 0 nothing is proposed, and no token is from the draft."""
    assert pair.rounds(pair.chat_end, 9, 0) == []
    assert pair.flags(pair.chat_end, 9, 0) == [False] * 9


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"agreement": 1.1}, "agreement is a share"),
        ({"vocabulary": 200}, "vocabulary must lie in 261"),
        ({"eos_after": 253}, r"eos_after must lie in 0\.\.252"),
        ({"pattern": [True] * 300}, "does not fit a cycle of 253"),
    ],
)
def test_what_cannot_be_built_is_refused(tmp_path: Path, wrong: dict[str, Any], said: str) -> None:
    """A share above one, a vocabulary without words, an EOS or a pattern beyond the cycle."""
    with pytest.raises(ValueError, match=said):
        build(tmp_path, **wrong)


def test_an_accepted_count_beyond_the_draft_is_refused() -> None:
    """No round of draft length 4 accepts 5."""
    with pytest.raises(ValueError, match=r"0\.\.4"):
        pattern_of([5], 4)


PAIRS: dict[str, dict[str, Any]] = {
    "default": {},
    "always": {"agreement": 1.0},
    "never": {"agreement": 0.0},
    "one-wrong": {"agreement": 252 / 253},
    "worked-example": {"pattern": pattern_of(WORKED_EXAMPLE, 4)},
    "eos": {"agreement": 0.9, "eos_after": 7},
    "unseen-eos": {"eos_after": 0, "eos_agrees": False},
    "large": {"vocabulary": 3000, "layers": (2, 2), "seed": 3},
}


@pytest.mark.parametrize("name", PAIRS)
def test_the_engine_does_exactly_what_is_predicted(
    name: str,
    tmp_path: Path,
    load: Callable[..., Any],
    autoregressive: Callable[..., list[int]],
    speculative: Callable[..., tuple[list[int], list[bool]]],
) -> None:
    """Tokens and flags of mlx-lm equal the arithmetic, for every k from 0 to 6 and budgets that cut rounds."""
    pair = build(tmp_path, **PAIRS[name])
    (model, tokenizer), (draft, _) = load(pair.target), load(pair.draft)
    for text in ("hello", "Is it so?"):
        prompt = chat_tokens(tokenizer, text)
        assert prompt[-1] == pair.chat_end
        assert autoregressive(model, prompt, 40) == pair.tokens(pair.chat_end, 40)
        for k in range(7):
            for n in (1, 4, 26):
                expected = pair.tokens(pair.chat_end, n), pair.flags(pair.chat_end, n, k)
                assert speculative(model, draft, prompt, n, k) == expected


def test_any_prompt_leads_onto_the_cycle(
    pair: CyclePair, load: Callable[..., Any], autoregressive: Callable[..., list[int]]
) -> None:
    """A prompt may end in a letter, a sign or a word: its last token alone decides."""
    model, tokenizer = load(pair.target)
    for text in ("x", "why?", "ba", " bobu", "ö"):
        prompt = tokenizer.encode(text)
        assert autoregressive(model, prompt, 12) == pair.tokens(prompt[-1], 12)


def test_the_draft_alone_says_what_is_predicted(
    pair: CyclePair, load: Callable[..., Any], autoregressive: Callable[..., list[int]]
) -> None:
    """`drafted` is the draft's own greedy walk."""
    model, _ = load(pair.draft)
    assert autoregressive(model, [pair.chat_end], 20) == pair.drafted(pair.chat_end, 20)


@pytest.mark.parametrize("k", [1, 2, 4, 6])
@pytest.mark.parametrize("eos_agrees", [True, False])
def test_a_stream_ends_at_eos_inside_the_draft(
    tmp_path: Path, load: Callable[..., Any], k: int, eos_agrees: bool
) -> None:
    """`stream_generate` stops at EOS, wherever in a round it falls, with the predicted flags."""
    mlx_lm = pytest.importorskip("mlx_lm", reason="needs the [mlx] extra")
    pair = build(tmp_path, agreement=1.0, eos_after=6, eos_agrees=eos_agrees)
    (model, tokenizer), (draft, _) = load(pair.target), load(pair.draft)
    prompt = chat_tokens(tokenizer, "hello")
    responses = list(
        mlx_lm.stream_generate(model, tokenizer, prompt, max_tokens=50, draft_model=draft, num_draft_tokens=k)
    )
    assert [each.token for each in responses] == pair.tokens(pair.chat_end, 50, until_eos=True)
    assert [each.from_draft for each in responses] == pair.flags(pair.chat_end, 50, k, until_eos=True)
    assert responses[-1].finish_reason == "stop"


def test_the_text_is_pronounceable_nonsense(pair: CyclePair, load: Callable[..., Any]) -> None:
    """What comes out is plain ASCII words, so no token waits for another half of a character."""
    _, tokenizer = load(pair.target)
    text = tokenizer.decode(pair.tokens(pair.chat_end, 50))
    assert text.isascii()
    assert text.replace(" ", "").isalpha()
