"""A pair of models whose every token is known beforehand: the next token is a fixed map of the last one.

The target walks a cycle through all word tokens. The draft knows the same map but is wrong on a chosen set of words, so
the tokens, the from-draft flag of each and the accepted count of every round follow from arithmetic, for any prompt and
any k. Tests that count exactly, on the real engines, use it.

How: attention and MLP write nothing back (their output matrices are zero), so a token's hidden state is its normalised
embedding e(x), a random unit code. The untied head has the row head[f(x)] = e(x); the logit of y is then
<e(f^-1(y)), e(x)>, which is greatest at y = f(x). The engines still run every block, cache and trim.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .folders import (
    CONTROL_TOKENS,
    END_OF_TURN,
    Config,
    Weights,
    llama_config,
    parameter_shapes,
    write_model,
    write_tokenizer,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_BYTES = 256
_FIRST_WORD = len(CONTROL_TOKENS) + _BYTES
_LINE_FEED = "Ċ"  # as byte-level BPE writes it
_WIDTH = 64
_LEAST_MARGIN = 0.1
_CONSONANTS, _VOWELS = "bdfgklmnprst", "aeiou"
_SYLLABLES = tuple(consonant + vowel for consonant in _CONSONANTS for vowel in _VOWELS)
_MOST_TOKENS = _FIRST_WORD + 2 * len(_SYLLABLES) + len(_SYLLABLES) ** 2


class Round(NamedTuple):
    """One target pass that verifies a draft, as far as its tokens were handed out."""

    proposed: int
    """Tokens the draft put forward: k, or what is left of the token budget."""
    accepted: int
    """Proposed tokens equal to the emitted token at their place."""
    emitted: int
    """Tokens handed out: the accepted ones and, in a finished round, the target's own."""

    @property
    def finished(self) -> bool:
        """Whether the target's token (correction or bonus) was handed out."""
        return self.emitted > self.accepted

    @property
    def rejected(self) -> int:
        """Tokens from the first differing one to the end of the draft; 0 in a round that was cut before it."""
        return self.proposed - self.accepted if self.finished else 0

    @property
    def unverified(self) -> int:
        """Tokens that were never compared, since the stream ended before them."""
        return 0 if self.finished else self.proposed - self.accepted


@dataclass(frozen=True)
class CyclePair:
    """Two model folders and the map they follow. All predictions are of greedy decoding."""

    target: Path
    """Folder of the target."""
    draft: Path
    """Folder of the draft."""
    successor: tuple[int, ...]
    """By token id: the target's next token."""
    guess: tuple[int, ...]
    """By token id: the draft's next token."""
    agrees: tuple[bool, ...]
    """By token id: whether the draft's next token is the target's."""
    chat_end: int
    """The last token of every chat prompt (a line feed): where a chat's walk begins."""

    def tokens(self, last_prompt_token: int, n: int, *, until_eos: bool = False) -> list[int]:
        """The first `n` tokens after a prompt.

        With `until_eos`, none after the first EOS: `stream_generate` stops there, while `generate_step` and
        `speculative_generate_step` run on.
        """
        out: list[int] = []
        for _ in range(n):
            last_prompt_token = self.successor[last_prompt_token]
            out.append(last_prompt_token)
            if until_eos and last_prompt_token == END_OF_TURN:
                break
        return out

    def drafted(self, last_token: int, n: int) -> list[int]:
        """The `n` tokens that the draft alone proposes after a token."""
        out: list[int] = []
        for _ in range(n):
            last_token = self.guess[last_token]
            out.append(last_token)
        return out

    def rounds(self, last_prompt_token: int, n: int, k: int, *, until_eos: bool = False) -> list[Round]:
        """The rounds in which mlx-lm's `speculative_generate_step(num_draft_tokens=k, max_tokens=n)` yields its tokens.

        Each round proposes k tokens or what is left of the budget; the last may lack the target's own token, where the
        draft filled the budget or, with `until_eos`, an accepted EOS ended the stream. With k = 0 there are none.
        """
        return list(self._rounds(last_prompt_token, n, k, until_eos)) if k else []

    def _rounds(self, last: int, n: int, k: int, until_eos: bool) -> Iterator[Round]:
        tokens = self.tokens(last, n, until_eos=until_eos)
        places = [self.agrees[token] for token in [last, *tokens[:-1]]]
        start = 0
        while start < len(tokens):
            proposed = min(k, n - start)
            ahead = places[start : start + proposed]
            accepted = ahead.index(False) if False in ahead else len(ahead)
            emitted = min(accepted + 1, len(tokens) - start)
            yield Round(proposed, accepted, emitted)
            start += emitted

    def flags(self, last_prompt_token: int, n: int, k: int, *, until_eos: bool = False) -> list[bool]:
        """By token of `tokens(...)`: whether the engine marks it as from the draft."""
        if not k:
            return [False] * len(self.tokens(last_prompt_token, n, until_eos=until_eos))
        out: list[bool] = []
        for each in self.rounds(last_prompt_token, n, k, until_eos=until_eos):
            out += [True] * each.accepted + [False] * (each.emitted - each.accepted)
        return out


def pattern_of(accepted: Sequence[int], k: int) -> list[bool]:
    """The agreement by place that makes rounds of draft length `k` accept the given counts, one a round, all finished.

    `build(directory, pattern=pattern_of([2, 3, 1, 4, 2, 0, 3, 3], 4))` gives, after a chat prompt, those eight rounds
    in the first 26 tokens.
    """
    if not all(0 <= count <= k for count in accepted):
        raise ValueError(f"each accepted count must lie in 0..{k}, not {list(accepted)}")
    out: list[bool] = []
    for count in accepted:
        out += [True] * count + [count == k]
    return out


def build(
    directory: Path | str,
    *,
    agreement: float = 0.7,
    pattern: Sequence[bool] = (),
    eos_after: int | None = None,
    eos_agrees: bool = True,
    vocabulary: int = 512,
    context: int = 4096,
    seed: int = 0,
    layers: tuple[int, int] = (4, 1),
) -> CyclePair:
    """Write `target/` and `draft/` under `directory` and return what they will do.

    - `agreement`: the share of words, 0..1, after which the draft agrees (rounded to a whole number of words).
    - `pattern`: after a chat prompt, whether the draft agrees on the first token, the second, and so on. It overrides
      `agreement` for those places, on every turn of the cycle.
    - `eos_after`: after a chat prompt, this many words come and then EOS (the walk goes on after it). Without it EOS
      never comes.
    - `eos_agrees`: whether the draft agrees on that EOS; a `pattern` that reaches it decides instead.
    - `vocabulary`: tokens, 3 control tokens and 256 bytes among them; the rest are the words of the cycle.
    - `context`: tokens that fit.
    - `layers`: blocks of target and draft.
    """
    if not _FIRST_WORD + 2 <= vocabulary <= _MOST_TOKENS:
        raise ValueError(f"vocabulary must lie in {_FIRST_WORD + 2}..{_MOST_TOKENS}, not {vocabulary}")
    if not 0 <= agreement <= 1:
        raise ValueError(f"agreement is a share and must lie in 0..1, not {agreement}")
    tokenizer = word_tokenizer(vocabulary)
    chat_end = tokenizer.get_vocab()[_LINE_FEED]
    random = np.random.default_rng(seed)
    walk = _walk(random, vocabulary, eos_after)
    twins = _twins(random, walk, chat_end, vocabulary)
    right = _agreement(random, walk, agreement, pattern, eos_agrees)
    successor, guess = _maps(walk, right, twins)
    codes = _codes(random, twins)
    directory = Path(directory)
    for name, depth, follows in (("target", layers[0], successor), ("draft", layers[1], guess)):
        config = llama_config(
            vocabulary=vocabulary,
            width=_WIDTH,
            layers=depth,
            heads=1,
            kv_heads=1,
            hidden=64,
            context=context,
            tied=False,
        )
        write_model(directory / name, config, _weights(config, codes, follows, walk, seed), dtype="float32")
        write_tokenizer(directory / name, tokenizer, context=context)
    return CyclePair(
        target=directory / "target",
        draft=directory / "draft",
        successor=tuple(successor.tolist()),
        guess=tuple(guess.tolist()),
        agrees=tuple((successor == guess).tolist()),
        chat_end=chat_end,
    )


def word_tokenizer(vocabulary: int) -> Tokenizer:
    """A byte-level BPE tokenizer without a corpus: control tokens, bytes, then syllables and words of two syllables."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    pairs = [(consonant, vowel) for consonant in _CONSONANTS for vowel in _VOWELS]
    pairs += [("Ġ", syllable) for syllable in _SYLLABLES]
    pairs += [("Ġ" + first, second) for first in _SYLLABLES for second in _SYLLABLES]
    merges = pairs[: vocabulary - _FIRST_WORD]
    tokens = [*CONTROL_TOKENS, *sorted(pre_tokenizers.ByteLevel.alphabet()), *(a + b for a, b in merges)]
    tokenizer = Tokenizer(models.BPE({token: index for index, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(CONTROL_TOKENS))
    return tokenizer


def _walk(random: np.random.Generator, vocabulary: int, eos_after: int | None) -> NDArray[np.int64]:
    """The cycle's tokens in order. A chat prompt's end acts like the first, so a chat goes on with the second."""
    words = random.permutation(np.arange(_FIRST_WORD, vocabulary))
    if eos_after is None:
        return words
    if not 0 <= eos_after < len(words):
        raise ValueError(f"eos_after must lie in 0..{len(words) - 1}, the cycle's length less one, not {eos_after}")
    return np.insert(words, eos_after + 1, END_OF_TURN)


def _twins(random: np.random.Generator, walk: NDArray[np.int64], chat_end: int, vocabulary: int) -> NDArray[np.int64]:
    """By token id: the token of the cycle that it acts like, itself for those on the cycle, any for the rest."""
    twins = random.choice(walk[walk != END_OF_TURN], vocabulary)
    twins[walk] = walk
    twins[chat_end] = walk[0]
    return twins


def _agreement(
    random: np.random.Generator,
    walk: NDArray[np.int64],
    agreement: float,
    pattern: Sequence[bool],
    eos_agrees: bool,
) -> NDArray[np.bool_]:
    """By place in the walk: whether the draft agrees on the token after it."""
    if len(pattern) > len(walk):
        raise ValueError(f"a pattern of {len(pattern)} places does not fit a cycle of {len(walk)}: raise vocabulary")
    right = np.ones(len(walk), dtype=bool)
    right[random.permutation(len(walk))[: round((1 - agreement) * len(walk))]] = False
    right[np.flatnonzero(np.roll(walk, -1) == END_OF_TURN)] = eos_agrees
    right[: len(pattern)] = pattern
    return right


def _maps(
    walk: NDArray[np.int64], right: NDArray[np.bool_], twins: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The target's and the draft's next token, by token id.

    Where it is wrong the draft says what follows the next wrong place: still one word for one word, so that each row of
    the head holds one code. A single wrong place skips a word instead.
    """
    following = np.roll(walk, -1)
    guessed = following.copy()
    wrong = np.flatnonzero(~right)
    guessed[wrong] = following[np.roll(wrong, -1)] if len(wrong) > 1 else np.roll(walk, -2)[wrong]
    successor, guess = np.zeros_like(twins), np.zeros_like(twins)
    successor[walk], guess[walk] = following, guessed
    return successor[twins], guess[twins]


def _codes(random: np.random.Generator, twins: NDArray[np.int64]) -> NDArray[np.float32]:
    """Unit vectors by token id, shape (vocabulary, width); a token off the cycle has its twin's."""
    codes = random.standard_normal((len(twins), _WIDTH)).astype(np.float32)
    codes /= np.linalg.norm(codes, axis=1, keepdims=True)
    return codes[twins]


def _weights(
    config: Config, codes: NDArray[np.float32], follows: NDArray[np.int64], walk: NDArray[np.int64], seed: int
) -> Weights:
    """A model that embeds `codes`, computes blocks that write nothing back, and answers `follows[x]` to x."""
    random = np.random.default_rng(seed)
    weights: dict[str, NDArray[Any]] = {}
    for name, shape in parameter_shapes(config).items():
        if len(shape) == 1:
            weights[name] = np.ones(shape, np.float32)
        elif name.endswith(("o_proj.weight", "down_proj.weight")):
            weights[name] = np.zeros(shape, np.float32)
        else:
            weights[name] = random.standard_normal(shape).astype(np.float32) / np.float32(np.sqrt(shape[1]))
    head = np.zeros_like(codes)
    np.add.at(head, follows[walk], codes[walk])
    weights["model.embed_tokens.weight"], weights["lm_head.weight"] = codes, head
    _check_margin(codes @ head.T, follows)
    return weights


def _check_margin(scores: NDArray[np.float32], follows: NDArray[np.int64]) -> None:
    """Refuse codes so close that rounding could change the greedy choice. Scores are cosines, (token, next token)."""
    rows = np.arange(len(follows))
    best = scores[rows, follows].copy()
    scores[rows, follows] = -np.inf
    margin = float((best - scores.max(axis=1)).min())
    if margin < _LEAST_MARGIN:
        raise ValueError(f"two codes lie too close together (margin {margin:.2f}): choose another seed or fewer tokens")
