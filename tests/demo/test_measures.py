"""The arithmetic behind the verdicts, on numbers that can be checked by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("numpy", reason="needs the [demo] extra")
pytest.importorskip("opentelemetry.sdk", reason="needs the [demo] extra")
pytest.importorskip("opentelemetry.exporter.otlp.proto.common", reason="needs the [demo] extra")

from otel_specdecode.demo import measures
from otel_specdecode.demo.capture import Recorded, Taken
from otel_specdecode.demo.lineups import Lineup
from otel_specdecode.demo.runs import Run
from otel_specdecode.telemetry.names import Attr
from tests.demo.made import made_lineup

# The worked example: accepted per round, all finished, k = 4.
ACCEPTED = [2, 3, 1, 4, 2, 0, 3, 3]


def worked_run(mode: str = "draft", pair: int = 0, per_second: float = 100.0, text: str = "same") -> Run:
    by_position = {place: sum(accepted > place for accepted in ACCEPTED) for place in range(4)}
    attributes: dict[str, Any] = {
        Attr.SPECDECODE_DRAFT_ACCEPTED_TOKENS: 18,
        Attr.SPECDECODE_DRAFT_REJECTED_TOKENS: 14,
        Attr.SPECDECODE_VERIFY_PASSES: 8,
        Attr.SPECDECODE_ACCEPTANCE_LENGTH: 3.25,
        Attr.SPECDECODE_DECODE_TOKENS_PER_SECOND: per_second,
        Attr.SPECDECODE_ROLLBACKS: 7,
        Attr.SPECDECODE_DECODE_DURATION: 0.5,
        Attr.SPECDECODE_DECODE_PASSES: 8,
        Attr.SPECDECODE_PREFILL_DURATION: 0.1,
    }
    rounds = Recorded(4, 0.24)
    return Run(mode, pair, pair, text, Taken(attributes, 0, 1, rounds, by_position))


def plain_run(pair: int = 0, per_second: float = 50.0, text: str = "same") -> Run:
    attributes: dict[str, Any] = {
        Attr.SPECDECODE_ACCEPTANCE_LENGTH: 1.0,
        Attr.SPECDECODE_DECODE_TOKENS_PER_SECOND: per_second,
        Attr.SPECDECODE_DECODE_DURATION: 0.5,
        Attr.SPECDECODE_DECODE_PASSES: 16,
        Attr.SPECDECODE_PREFILL_DURATION: 0.1,
    }
    return Run("autoregressive", pair, pair, text, Taken(attributes, 0, 1, Recorded(), {}))


def lineup(prompts: int) -> Lineup:
    return made_lineup(prompts=[f"prompt {number}" for number in range(prompts)])


def test_the_worked_example_keeps_its_numbers() -> None:
    runs = [worked_run(), worked_run()]
    assert measures.acceptance_length(runs) == 3.25
    assert measures.accept_rate(runs) == 18 / 32
    assert measures.rollbacks_per_minute(runs) == 14 * 60 / 1.0
    assert measures.mean_pass(runs) == 1.0 / 16
    assert measures.recorded_rounds(runs) == Recorded(8, 0.48)
    assert measures.accepted_per_round(runs, 4) == [1 / 8, 1 / 8, 2 / 8, 3 / 8, 1 / 8]


def test_a_mode_without_a_draft_has_no_accept_rate_and_an_acceptance_length_of_one() -> None:
    assert measures.accept_rate([plain_run()]) is None
    assert measures.acceptance_length([plain_run()]) == 1.0
    assert measures.accepted_per_round([plain_run()], 2) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("spec", "prompts", "word"),
    [
        (100.0, 8, "pays"),
        (25.0, 8, "hurts"),
        (50.0, 8, "no clear difference"),
        (100.0, 3, "pays"),
        (100.0, 2, "too few prompts to tell"),
    ],
)
def test_the_word_follows_the_interval(spec: float, prompts: int, word: str) -> None:
    runs = [run for pair in range(prompts) for run in (plain_run(pair), worked_run(pair=pair, per_second=spec))]
    (verdict,) = measures.verdicts(lineup(prompts), runs, seed=1)
    assert verdict.word == word
    assert verdict.speed_up is not None
    assert verdict.speed_up.ratio == pytest.approx(spec / 50.0)
    assert verdict.break_even == pytest.approx(2.0)


def with_attributes(run: Run, **changed: Any) -> Run:
    attributes = {key: value for key, value in {**run.taken.attributes, **changed}.items() if value is not None}
    return replace(run, taken=replace(run.taken, attributes=attributes))


def test_passes_for_which_nothing_was_proposed_do_not_make_rounds_look_cheap() -> None:
    """8 rounds and 24 plain passes cost what 48 autoregressive ones do: 24 of those for the rounds."""
    mixed = with_attributes(
        worked_run(), **{Attr.SPECDECODE_DECODE_PASSES: 8 + 24, Attr.SPECDECODE_DECODE_DURATION: 48 * 0.5 / 16}
    )
    assert measures.round_cost([mixed], [plain_run()]) == pytest.approx((48 - 24) / 8)
    assert measures.round_cost([plain_run()], [plain_run()]) is None


def test_without_a_known_end_of_prefill_the_first_pass_has_no_duration() -> None:
    run = with_attributes(worked_run(), **{Attr.SPECDECODE_PREFILL_DURATION: None})
    assert measures.mean_pass([run]) == pytest.approx(0.5 / 7)


def test_an_interval_that_straddles_one_is_no_verdict() -> None:
    speed_up = measures.speed_up([(1.0, 0.5), (1.0, 2.0)] * 4, seed=1)
    assert speed_up.low < 1 < speed_up.high
    assert speed_up.word == "no clear difference"


def test_prompts_whose_texts_part_are_named() -> None:
    runs = [plain_run(0), worked_run(pair=0), plain_run(1), worked_run(pair=1, text="other")]
    (verdict,) = measures.verdicts(lineup(2), runs, seed=1)
    assert verdict.parted == (1,)
