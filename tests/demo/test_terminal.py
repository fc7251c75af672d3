"""The tables on a narrow terminal: in parts, and no word cut."""

from __future__ import annotations

import io

import pytest

pytest.importorskip("numpy", reason="needs the [demo] extra")
pytest.importorskip("rich", reason="needs the [demo] extra")
pytest.importorskip("opentelemetry.exporter.otlp.proto.common", reason="needs the [demo] extra")

from rich.console import Console

from otel_specdecode.demo import terminal
from otel_specdecode.demo.engines.interface import Engine
from otel_specdecode.demo.results import Report, Result
from otel_specdecode.telemetry.names import Attr
from tests.demo.made import LLAMA_CPP, MLX, made_lineup, made_result

DRAFTS = tuple(f"a-rather-long-name-of-draft-{number}" for number in range(3))


def result(engine: Engine = MLX, padded_blocks: int = 0) -> Result:
    return made_result(made_lineup(engine=engine, drafts=DRAFTS, padded_blocks=padded_blocks))


def shown(*results: Result, width: int, capsys: pytest.CaptureFixture[str]) -> str:
    """What a terminal of that many columns gets: sentences through its console, tables at their own width."""
    file = io.StringIO()
    terminal.show(Console(file=file, width=width, highlight=False), Report(results, ["The names are told."]))
    return file.getvalue() + capsys.readouterr().out


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_no_word_is_cut_at_any_width(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=width, highlight=False)
    terminal.show(console, Report([result(), result(LLAMA_CPP)], []))
    tables = capsys.readouterr().out
    assert "…" not in tables
    for name in ("autoregressive", *DRAFTS):
        assert name in tables
    assert Attr.SPECDECODE_DRAFT_UNVERIFIED_TOKENS in tables


def test_where_there_is_room_both_engines_share_one_row_a_field(capsys: pytest.CaptureFixture[str]) -> None:
    wide = shown(result(), result(LLAMA_CPP), width=400, capsys=capsys)
    narrow = shown(result(), result(LLAMA_CPP), width=200, capsys=capsys)
    assert wide.count(Attr.SPECDECODE_ROLLBACKS_PER_MINUTE) == 1
    assert narrow.count(Attr.SPECDECODE_ROLLBACKS_PER_MINUTE) == 2
    (heading,) = [line for line in wide.splitlines() if "MLX-LM" in line and "llama.cpp" in line and "same" not in line]
    assert heading.split() == ["MLX-LM", "llama.cpp"]


def test_each_engine_has_a_section_and_what_is_shared_comes_after(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(result(), result(LLAMA_CPP), width=400, capsys=capsys).splitlines()
    order = [
        lines.index("MLX-LM"),
        lines.index("llama.cpp"),
        lines.index("The names are told."),
        lines.index("MLX-LM and llama.cpp emitted the same autoregressive text for 1 of 1 prompt."),
    ]
    assert order == sorted(order)


def test_a_padded_target_is_told_before_its_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(result(padded_blocks=28), width=200, capsys=capsys)
    assert text.strip().startswith("MLX-LM, padded target\nPADDED TARGET: 28 blocks")


def test_without_a_terminal_progress_is_a_line_each_quarter() -> None:
    file = io.StringIO()
    with terminal.progress(Console(file=file, width=200), "Requests", 8) as step:
        for _ in range(8):
            step()
    assert file.getvalue().splitlines() == [f"Requests: {done} of 8" for done in (2, 4, 6, 8)]
