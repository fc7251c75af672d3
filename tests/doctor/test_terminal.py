"""A report as text."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("rich", reason="needs the [cli] extra")

from otel_specdecode.doctor.checks import Check, Report, Section
from otel_specdecode.doctor.terminal import rendered

LONG = "a detail of so many words that it cannot stand in one line of a terminal that has eighty columns and no more"
REPORT = Report(
    (
        Section(
            "one",
            "Section one",
            (Check("a", "first", "ok", "good [red]brackets[/red]"), Check("b", "second", "warn", LONG)),
        ),
        Section(
            "two",
            "Section two",
            (
                Check("c", "traces", "error", "down", "start it"),
                Check("d", "metrics", "error", "down", "start it"),
                Check(
                    "e",
                    "heat",
                    "unknown",
                    "/a/path/without/any/blank/in/it/that/goes/on/and/on/for/more/than/eighty/columns",
                ),
            ),
        ),
    )
)


def shown(capsys: pytest.CaptureFixture[str], report: Report = REPORT) -> str:
    sys.stdout.write(rendered(report))
    return capsys.readouterr().out


def test_it_fits_in_80_columns_without_colour_and_cuts_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = shown(capsys)
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    assert all(word in text for word in LONG.split())
    assert "…" not in text


def test_text_is_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    assert "[red]brackets[/red]" in shown(capsys)


def test_what_is_broken_is_named_last_with_the_counts(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(shown(capsys).split())
    assert text.endswith("Broken: traces, metrics. 1 ok, 1 warn, 2 error, 1 unknown.")
    sound = Report(REPORT.sections[:1])
    assert " ".join(shown(capsys, sound).split()).endswith("Nothing needed is broken. 1 ok, 1 warn.")


def test_checks_that_found_the_same_stand_together(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys)
    assert text.count("fix: start it") == 1
    assert "metrics" in text


@pytest.mark.parametrize("columns", [20, 40])
def test_in_a_narrow_terminal_no_line_is_wider_and_no_word_is_lost(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = shown(capsys)
    assert max(map(len, text.splitlines())) <= columns
    assert all(word in text for word in LONG.split())
