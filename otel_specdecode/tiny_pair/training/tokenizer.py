"""Text as the models see it: the chat markup, and a byte-level BPE tokenizer trained on it."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from ..folders import CONTROL_TOKENS
from .corpus import Chat


def render(chat: Chat) -> str:
    """The chat in ChatML, as the shipped chat template renders it."""
    turns = (("user", chat.question), ("assistant", chat.answer))
    return "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns)


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """A tokenizer of at most `vocabulary` tokens: control tokens, 256 bytes, and merges within GPT-2's words."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(CONTROL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer
