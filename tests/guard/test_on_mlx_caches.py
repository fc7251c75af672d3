"""Prompt caches of MLX-LM that hold a draft's layers, where the guard takes the draft away and gives it back."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("msgspec", reason="needs the [guard] extra")
pytest.importorskip("mlx_lm", reason="needs the [mlx] extra")

from mlx_lm.models.cache import RotatingKVCache, make_prompt_cache, trim_prompt_cache

from otel_specdecode.generation.plan import Plan
from otel_specdecode.guard.policy import Policy
from otel_specdecode.telemetry.names import Attr
from otel_specdecode.testing.capture import Telemetry, capture
from otel_specdecode.tiny_pair import chat_tokens
from tests.guard.joined import (
    NO_CONTROL,
    RUNGS,
    guarded,
    planned,
    violations,
)
from tests.guard.mlx_pair import EASY, Pair

pytestmark = pytest.mark.mlx


class Turns:
    """A talk with a prompt cache for both models, as programs keep one."""

    def __init__(self, pair: Pair) -> None:
        """Begin with empty caches."""
        self.pair = pair
        self.cache = [*make_prompt_cache(pair.target), *make_prompt_cache(pair.draft)]
        self.layers = len(pair.target.layers)

    def say(self, text: str, tokens: int = 24, **options: Any) -> list[int]:
        """Ask with the cache of before; return the tokens of the answer."""
        prompt = chat_tokens(self.pair.tokenizer, text)
        options = {"draft": self.pair.draft, "tokens": tokens, "prompt_cache": self.cache, **options}
        return [token for token, *_ in self.pair.run(prompt, **options)]


MODES = [
    pytest.param((Plan(), RUNGS["fallback"], Plan()), id="off and on"),
    pytest.param((RUNGS["fallback"], Plan(), RUNGS["control"]), id="on and off"),
    pytest.param((RUNGS["fallback"], RUNGS["fallback"], Plan(), Plan()), id="on late"),
    pytest.param((Plan(), Plan(2), RUNGS["fallback"], Plan(3)), id="shorter, off, on"),
]
SAID = (EASY, "Count from 7 to 22.", "List 5 animals.", EASY)


@pytest.mark.parametrize("trims", [0, 9])
@pytest.mark.parametrize("modes", MODES)
def test_a_prompt_cache_goes_through_a_switch_in_both_directions(
    modes: tuple[Plan, ...], trims: int, pair: Pair
) -> None:
    """The tokens are those that the target's part of the cache alone gives, and the draft works again afterwards."""
    turns, reference = Turns(pair), make_prompt_cache(pair.target)
    held, layers = turns.cache, list(turns.cache[: turns.layers])
    with capture() as telemetry:
        for plan, said in zip(modes, SAID, strict=False):
            _level(reference, turns.cache[: turns.layers])
            prompt = chat_tokens(pair.tokenizer, said)
            expected = [token for token, *_ in pair.run(prompt, tokens=24, prompt_cache=reference)]
            telemetry.clear()
            with planned(plan):
                assert turns.say(said) == expected
            if not plan.autoregressive:
                found = dict(telemetry.span().attributes or {})
                assert found[Attr.SPECDECODE_DRAFT_ACCEPTED_TOKENS] > 4
            trim_prompt_cache(turns.cache, trims)
        assert turns.cache is held
        assert all(one is other for one, other in zip(turns.cache, layers, strict=False))
        assert violations(telemetry) == []


def _level(reference: list[Any], target: list[Any]) -> None:
    """Take the reference to where the target's part is: a speculative run leaves out the entry of its last token."""
    trim_prompt_cache(reference, max(reference[0].offset - target[0].offset, 0))
    assert reference[0].offset == target[0].offset


def test_a_draft_begins_anew_where_it_missed_a_turn(pair: Pair, telemetry: Telemetry) -> None:
    """Its part of the cache would lack tokens in the middle; where it missed nothing it goes on."""
    turns = Turns(pair)
    turns.say(SAID[0])
    own = turns.cache[-1]
    with planned(Plan()):
        turns.say(SAID[1])
    assert turns.cache[-1] is own
    with planned(RUNGS["fallback"]):
        turns.say(SAID[2])
    assert turns.cache[-1] is own
    with planned(Plan()):
        turns.say(SAID[3])
    assert turns.cache[-1] is own
    assert own.offset < turns.cache[0].offset / 2


def test_a_draft_that_begins_anew_keeps_the_kind_of_cache_that_its_program_made(
    pair: Pair, telemetry: Telemetry
) -> None:
    """One that forgets what is too long ago does so afterwards too."""
    turns = Turns(pair)
    turns.cache = [RotatingKVCache(max_size=512, keep=4) for _ in turns.cache]
    for plan, said in zip((Plan(), RUNGS["fallback"], Plan()), SAID, strict=False):
        with planned(plan):
            turns.say(said)
    assert {(type(layer), layer.max_size) for layer in turns.cache} == {(RotatingKVCache, 512)}
    assert 0 < turns.cache[-1].offset < turns.cache[0].offset / 2


def test_a_guard_that_only_observes_leaves_a_prompt_cache_alone(pair: Pair, telemetry: Telemetry) -> None:
    """Also where a program itself let the draft miss a turn."""
    turns = Turns(pair)
    turns.say(SAID[0])
    own = turns.cache[-1]
    turns.say(SAID[1], draft=None, prompt_cache=turns.cache[: turns.layers])
    with guarded(Policy(baseline=NO_CONTROL)):
        turns.say(SAID[2])
    assert turns.cache[-1] is own


def test_a_quantised_prompt_cache_goes_through_a_switch(pair: Pair, telemetry: Telemetry) -> None:
    """A layer that the engine replaces as it quantises it is replaced in the caller's own list."""
    turns, reference = Turns(pair), make_prompt_cache(pair.target)
    quantised = {"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": 0}
    for plan, said in zip((RUNGS["fallback"], Plan(), RUNGS["fallback"]), SAID, strict=False):
        if reference[0].offset:
            _level(reference, turns.cache[: turns.layers])
        prompt = chat_tokens(pair.tokenizer, said)
        expected = [token for token, *_ in pair.run(prompt, tokens=24, prompt_cache=reference, **quantised)]
        telemetry.clear()
        with planned(plan):
            assert turns.say(said, **quantised) == expected
        assert all(type(layer).__name__ == "QuantizedKVCache" for layer in turns.cache[: turns.layers])
        if not plan.autoregressive:
            assert dict(telemetry.span().attributes or {})[Attr.SPECDECODE_DRAFT_ACCEPTED_TOKENS] > 4
