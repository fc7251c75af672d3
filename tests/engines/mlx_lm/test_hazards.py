"""Known MLX-LM conditions, met on the real engine, show as attribute, counter and event."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx_lm
import pytest
from mlx_lm.models.cache import KVCache, RotatingKVCache, make_prompt_cache

from otel_specdecode.telemetry.names import Attr, Event
from otel_specdecode.testing.capture import Telemetry
from tests.engines.mlx_lm.conftest import Pair, load_cycle

pytestmark = pytest.mark.mlx


def hazards(telemetry: Telemetry) -> list[tuple[str, ...]]:
    """The hazard ids of every span so far."""
    return [tuple(dict(span.attributes or {}).get(Attr.SPECDECODE_HAZARD_IDS, ())) for span in telemetry.spans()]


def run(pair: Pair, limit: int = 12, prompt: list[int] | None = None, **options: Any) -> list[Any]:
    """Stream speculatively to the end."""
    chosen = {"draft_model": pair.draft, "num_draft_tokens": 3, "max_tokens": limit, **options}
    return list(mlx_lm.stream_generate(pair.target, pair.tokenizer, prompt or [301, 302, 303], **chosen))


def windowed(model: Any, window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give one model caches with a sliding window."""
    caches = [RotatingKVCache(max_size=window) for _ in model.layers]
    original = type(model).__dict__.get("make_cache")

    def make_cache(self: Any) -> Any:
        if self is model:
            return caches
        return original(self) if original else [KVCache() for _ in self.layers]

    monkeypatch.setattr(type(model), "make_cache", make_cache, raising=False)


def test_an_ordinary_run_meets_none(telemetry: Telemetry, cycle: Pair) -> None:
    """No attribute, no event, and zeros in every hazard series."""
    run(cycle)
    assert hazards(telemetry) == [()]
    assert telemetry.events(Event.SPECDECODE_HAZARD_DETECTED) == []
    assert telemetry.total("specdecode.hazards") == 0


def test_logits_processors_with_a_draft(telemetry: Telemetry, cycle: Pair) -> None:
    """Under a draft they see another context than in an autoregressive run; without one there is nothing to tell."""
    processors = [lambda tokens, logits: logits]
    run(cycle, logits_processors=processors)
    run(cycle, logits_processors=processors, draft_model=None)
    assert hazards(telemetry) == [("processors_with_draft",), ()]


def test_a_draft_of_another_vocabulary(telemetry: Telemetry, cycle: Pair, tiny: Pair) -> None:
    """1,024 ids against 512."""
    run(tiny, draft_model=cycle.draft, prompt=[301])
    assert "vocab_mismatch" in hazards(telemetry)[0]


def test_a_target_whose_window_is_exceeded(telemetry: Telemetry, cycle: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the window rejected tokens stay in the cache, silently; within it all is well."""
    windowed(cycle.target, 64, monkeypatch)
    run(cycle)
    windowed(cycle.target, 8, monkeypatch)
    run(cycle)
    assert hazards(telemetry) == [(), ("sliding_window_exceeded",)]


def test_a_draft_whose_cache_cannot_be_trimmed(
    telemetry: Telemetry, cycle: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mlx-lm never checks the draft's cache."""
    windowed(cycle.draft, 8, monkeypatch)
    run(cycle)
    assert hazards(telemetry) == [("draft_not_trimmable",)]


def test_a_draft_that_gets_nothing_accepted(telemetry: Telemetry, tmp_path: Path) -> None:
    """Zero of at least 20 finished rounds: a 0 in the counter that everybody can see, and a hazard."""
    pair = load_cycle(tmp_path, agreement=0.0)
    run(pair, limit=19)
    run(pair, limit=40)
    assert hazards(telemetry) == [(), ("all_rejected",)]
    assert telemetry.total("specdecode.draft.tokens", draft_outcome="accepted") == 0
    assert telemetry.total("specdecode.draft.tokens", draft_outcome="rejected") > 100
    (event,) = telemetry.events(Event.SPECDECODE_HAZARD_DETECTED)
    assert event.attributes[Attr.SPECDECODE_HAZARD_ID] == "all_rejected"
    assert event.trace_id == telemetry.spans()[1].context.trace_id
    assert telemetry.total("specdecode.hazards", hazard_id="all_rejected") == 1


@pytest.mark.parametrize("feeds_last_token", [False, True])
def test_going_on_from_a_cache_that_lacks_its_last_token(
    feeds_last_token: bool, telemetry: Telemetry, tmp_path: Path
) -> None:
    """After a speculative run that ended on the target's own token; fed that token first, all is well."""
    pair = load_cycle(tmp_path, agreement=0.0)
    cache = make_prompt_cache(pair.target) + make_prompt_cache(pair.draft)
    last = run(pair, prompt_cache=cache, limit=5)[-1]
    assert not last.from_draft
    run(pair, prompt_cache=cache, prompt=[last.token, 310, 311] if feeds_last_token else [310, 311])
    assert hazards(telemetry) == [(), () if feeds_last_token else ("cache_reuse_short",)]


def test_a_cache_after_an_autoregressive_run_is_whole(telemetry: Telemetry, cycle: Pair) -> None:
    """Going on from it is no hazard."""
    cache = make_prompt_cache(cycle.target) + make_prompt_cache(cycle.draft)
    target_cache = cache[: len(cycle.target.layers)]
    list(mlx_lm.stream_generate(cycle.target, cycle.tokenizer, [301], max_tokens=4, prompt_cache=target_cache))
    run(cycle, prompt_cache=cache, prompt=[310, 311])
    assert hazards(telemetry) == [(), ()]


def test_reused_tokens_are_input_tokens(telemetry: Telemetry, cycle: Pair) -> None:
    """Input tokens include those of the cache, which are told apart."""
    cache = make_prompt_cache(cycle.target) + make_prompt_cache(cycle.draft)
    run(cycle, prompt_cache=cache, limit=4)
    held = cache[0].offset
    run(cycle, prompt_cache=cache, prompt=[310, 311])
    found = dict(telemetry.spans()[1].attributes or {})
    assert found[Attr.GEN_AI_USAGE_INPUT_TOKENS] == held + 2
    assert found[Attr.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS] == held
    assert found[Attr.SPECDECODE_PREFILL_PASSES] <= 1
