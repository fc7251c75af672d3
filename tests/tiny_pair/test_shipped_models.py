"""The shipped weights on the real engine: they load, talk sense, and speculate as the model card says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from otel_specdecode.tiny_pair import PROMPTS, ModelName, chat_tokens, model_path

pytestmark = pytest.mark.mlx

EOS = 2


def test_counting_is_right_up_to_the_end_of_the_turn(target: Any, autoregressive: Callable[..., list[int]]) -> None:
    """Greedy text of one prompt is fixed, sensible, and ended by the model itself."""
    model, tokenizer = target
    tokens = autoregressive(model, chat_tokens(tokenizer, "Count from 7 to 22."), 60)
    text = tokenizer.decode(tokens[: tokens.index(EOS)])
    assert text.startswith("7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22")


def test_code_is_a_function_of_the_asked_name(target: Any, autoregressive: Callable[..., list[int]]) -> None:
    """The target writes the function it is asked for."""
    model, tokenizer = target
    tokens = autoregressive(model, chat_tokens(tokenizer, "Write a function scale_rows in Python."), 40)
    assert tokenizer.decode(tokens).startswith("```python\ndef scale_rows(rows):\n")


def test_the_prompt_is_the_chat_template_s(target: Any) -> None:
    """`chat_tokens` opens the assistant's turn."""
    _, tokenizer = target
    text = tokenizer.decode(chat_tokens(tokenizer, "hello"))
    assert text == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize("k", [1, 3, 6])
def test_speculation_changes_no_token(
    k: int,
    load: Callable[..., Any],
    autoregressive: Callable[..., list[int]],
    speculative: Callable[..., tuple[list[int], list[bool]]],
) -> None:
    """Greedy speculative tokens are the greedy autoregressive ones, whatever the draft length.

    In float32: kernels that differ by the number of rows then agree closely enough on any device.
    """
    mx = pytest.importorskip("mlx.core", reason="needs the [mlx] extra")
    (model, tokenizer), (draft, _) = load(model_path("target")), load(model_path("draft"))
    model.set_dtype(mx.float32)
    draft.set_dtype(mx.float32)
    for prompt in PROMPTS[3:9]:
        ids = chat_tokens(tokenizer, prompt)
        assert speculative(model, draft, ids, 40, k)[0] == autoregressive(model, ids, 40)


@pytest.mark.parametrize(
    ("name", "low", "high"), [("draft", 0.7, 0.86), ("draft-kd", 0.78, 0.94), ("draft-weak", 0.55, 0.72)]
)
def test_accept_rates_are_roughly_the_card_s(
    name: ModelName, low: float, high: float, target: Any, load: Callable[..., Any], accept_rate: Callable[..., float]
) -> None:
    """At k = 3 over all prompts each draft is as good as the card says, within 0.08."""
    model, tokenizer = target
    draft, _ = load(model_path(name))
    prompts = [chat_tokens(tokenizer, prompt) for prompt in PROMPTS]
    assert low < accept_rate(model, draft, prompts, k=3, n=60) < high
