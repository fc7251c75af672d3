"""The page where there is little or something unusual to show."""

from __future__ import annotations

import pytest

pytest.importorskip("bokeh", reason="needs the [demo] extra")
pytest.importorskip("jinja2", reason="needs the [demo] extra")
pytest.importorskip("opentelemetry.exporter.otlp.proto.common", reason="needs the [demo] extra")

from otel_specdecode.demo.page import page
from otel_specdecode.demo.results import Report, Result
from otel_specdecode.telemetry.names import Attr
from tests.demo.made import LLAMA_CPP, made_lineup, made_result


def paged(*results: Result) -> str:
    return page(Report(results, ["The names are told."]))


def test_requests_too_short_for_any_number_still_make_a_page() -> None:
    text = paged(made_result(made_lineup()))
    assert "too few prompts to tell" in text
    assert "PADDED TARGET" not in text
    assert "The names are told." in text


def test_a_padded_target_is_told_above_its_numbers() -> None:
    text = paged(made_result(made_lineup()), made_result(made_lineup(padded_blocks=28)))
    assert text.count("<h2>MLX-LM, padded target</h2>") == 1
    assert text.index("<h2>MLX-LM, padded target</h2>") < text.index("PADDED TARGET: 28 blocks") < text.rindex("<dl>")


def test_texts_that_part_are_named_and_names_are_escaped() -> None:
    lineup = made_lineup(prompts=["<i>tag</i>"], quantised=True)
    text = paged(made_result(lineup, text="other", **{Attr.GEN_AI_REQUEST_MODEL: "<b>bold</b>"}))
    assert "Texts that differ from the autoregressive ones: draft: &#39;&lt;i&gt;tag&lt;/i&gt;&#39;" in text
    assert "With quantised weights that happens" in text
    assert "<b>bold</b>" not in text


def test_prompts_on_which_the_engines_part_are_named() -> None:
    prompts = ["one", "two"]
    first = made_result(made_lineup(prompts=prompts))
    second = made_result(made_lineup(prompts=prompts, engine=LLAMA_CPP), baseline_text="other")
    assert "emitted the same autoregressive text for 0 of 2 prompts" in paged(first, second)
    assert "emitted the same autoregressive text" not in paged(first)


def test_both_engines_stand_side_by_side() -> None:
    text = paged(made_result(made_lineup()), made_result(made_lineup(engine=LLAMA_CPP)))
    assert text.index("<h2>MLX-LM</h2>") < text.index("<h2>llama.cpp</h2>")
    fields = text.partition("All modes, field by field")[2].partition("One span of each mode")[0]
    assert fields.count(f"<code>{Attr.SPECDECODE_ROLLBACKS}</code>") == 1
    assert "MLX-LM<br>autoregressive" in text
    assert "llama.cpp<br>draft" in text
