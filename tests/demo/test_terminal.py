"""The tables on a narrow terminal: in parts, and no word cut."""

from __future__ import annotations

import io

import pytest

pytest.importorskip("numpy", reason="needs the [demo] extra")
pytest.importorskip("rich", reason="needs the [demo] extra")
pytest.importorskip("opentelemetry.exporter.otlp.proto.common", reason="needs the [demo] extra")

from rich.console import Console

from otel_specdecode.demo import terminal
from otel_specdecode.demo.capture import Buckets, Taken
from otel_specdecode.demo.lineups import Lineup, Mode, Prompt
from otel_specdecode.demo.measures import verdicts
from otel_specdecode.demo.results import Result
from otel_specdecode.demo.runs import Run
from otel_specdecode.telemetry.names import Attr


def result(padded_blocks: int = 0) -> Result:
    drafts = tuple(Mode(f"a-rather-long-name-of-draft-{number}", "about it") for number in range(3))
    lineup = Lineup(
        "a model", None, None, Mode("autoregressive", "alone"), drafts, (Prompt("p", []),), 8, padded_blocks
    )
    taken = Taken({Attr.SPECDECODE_MODE: "speculative"}, 0, 1, Buckets(), {})
    runs = [
        Run(mode.name, 0, 2 * number, (1,), taken)
        for number, draft in enumerate(drafts)
        for mode in (lineup.baseline, draft)
    ]
    return Result(lineup, runs, verdicts(lineup, runs, seed=1))


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_no_word_is_cut_at_any_width(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=width, highlight=False)
    terminal.show(console, result())
    tables = capsys.readouterr().out
    assert "…" not in tables
    for name in ("autoregressive", *(f"a-rather-long-name-of-draft-{number}" for number in range(3))):
        assert name in tables
    assert Attr.SPECDECODE_DRAFT_UNVERIFIED_TOKENS in tables


def test_a_padded_target_is_told_before_any_number(capsys: pytest.CaptureFixture[str]) -> None:
    file = io.StringIO()
    terminal.show(Console(file=file, width=200, highlight=False), result(padded_blocks=28))
    assert file.getvalue().strip().startswith("PADDED TARGET: 28 blocks")


def test_without_a_terminal_progress_is_a_line_each_quarter() -> None:
    file = io.StringIO()
    with terminal.progress(Console(file=file, width=200), "Requests", 8) as step:
        for _ in range(8):
            step()
    assert file.getvalue().splitlines() == [f"Requests: {done} of 8" for done in (2, 4, 6, 8)]
