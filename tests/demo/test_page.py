"""The page where there is little or something unusual to show, and the padded target that leads there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("bokeh", reason="needs the [demo] extra")
pytest.importorskip("jinja2", reason="needs the [demo] extra")
pytest.importorskip("opentelemetry.exporter.otlp.proto.common", reason="needs the [demo] extra")

from otel_specdecode.demo.capture import Buckets, Taken
from otel_specdecode.demo.lineups import Lineup, Mode, Prompt, Size, build
from otel_specdecode.demo.measures import verdicts
from otel_specdecode.demo.page import page
from otel_specdecode.demo.results import Result
from otel_specdecode.demo.runs import Run
from otel_specdecode.telemetry.names import Attr


def result(
    text: str = "a prompt", padded_blocks: int = 0, quantised: bool = False, tokens: tuple[int, ...] = (1,)
) -> Result:
    lineup = Lineup(
        about="a model",
        target=None,
        tokenizer=None,
        baseline=Mode("autoregressive", "alone"),
        drafts=(Mode("draft", "small"),),
        prompts=(Prompt(text, []),),
        tokens=8,
        padded_blocks=padded_blocks,
        quantised=quantised,
    )
    attributes: dict[str, Any] = {Attr.SPECDECODE_MODE: "speculative", Attr.GEN_AI_REQUEST_MODEL: "<b>bold</b>"}
    runs = [
        Run("autoregressive", 0, 0, (1,), Taken(attributes, 0, 1, Buckets(), {})),
        Run("draft", 0, 0, tokens, Taken(attributes, 1, 2, Buckets(), {})),
    ]
    return Result(lineup, runs, verdicts(lineup, runs, seed=1))


def test_requests_too_short_for_any_number_still_make_a_page() -> None:
    text = page([result()])
    assert "too few prompts to tell" in text
    assert "PADDED TARGET" not in text


def test_a_padded_target_is_told_above_its_numbers() -> None:
    text = page([result(), result(padded_blocks=28)])
    assert text.index("PADDED TARGET: 28 blocks") > text.index("One request of each")
    assert text.count("<h2>With a padded target</h2>") == 1


def test_texts_that_part_are_named_and_names_are_escaped() -> None:
    text = page([result(text="<i>tag</i>", tokens=(2,), quantised=True)])
    assert "Texts that differ from the autoregressive ones: draft: &#39;&lt;i&gt;tag&lt;/i&gt;&#39;" in text
    assert "With quantised weights that happens" in text
    assert "<b>bold</b>" not in text


@pytest.mark.mlx
@pytest.mark.slow
def test_the_slower_target_emits_the_same_text_and_says_that_it_is_padded(tmp_path: Path) -> None:
    from mlx_lm import stream_generate

    lineup = build("tiny", Size(tokens=8, prompts=1), tmp_path)
    assert lineup.slower is not None
    slower = lineup.slower()
    assert slower.padded_blocks == 28
    assert "padded" in slower.about
    texts = [
        [
            response.token
            for response in stream_generate(each.target, each.tokenizer, each.prompts[0].tokens, max_tokens=8)
        ]
        for each in (lineup, slower)
    ]
    assert texts[0] == texts[1]
