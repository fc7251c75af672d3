from __future__ import annotations

import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from otel_specdecode.acceptance.words import Finite, Numbers, command_line, drafts_by_label
from otel_specdecode.cli import main

PAIR = ("--model", "tiny", "--draft", "tiny:draft")


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_what_is_no_number_is_in_no_range(number: str) -> None:
    with pytest.raises(click.BadParameter):
        Finite(min=0).convert(number, None, None)


@pytest.mark.parametrize(
    "arguments",
    [
        ("sweep", *PAIR, "--warm-up", "nan"),
        ("sweep", *PAIR, "--cool-down", "nan"),
        ("sweep", *PAIR, "--max-hours", "nan"),
        ("soak", *PAIR, "--minutes", "nan"),
        ("soak", *PAIR, "--baseline-minutes", "nan"),
        ("soak", *PAIR, "--temperature", "nan"),
        ("soak", *PAIR, "--shape", "poisson", "--per-minute", "nan"),
        ("report", ".", "--hourly-rate", "nan"),
    ],
)
def test_no_option_takes_what_is_no_number(arguments: tuple[str, ...]) -> None:
    found = CliRunner().invoke(main, arguments)

    assert found.exit_code == 2, found.output
    assert "nan is not a finite number" in " ".join(found.output.split())


def test_fractions_that_an_arms_name_cannot_tell_apart_are_one() -> None:
    assert Numbers(float, 0.01, 5).convert("0.7,0.70000001,1", None, None) == (0.7, 1.0)
    assert Numbers(int, 1, 10**9).convert("1000000,1000001", None, None) == (1_000_000, 1_000_001)


def test_the_only_draft_needs_no_label_and_several_have_one() -> None:
    assert drafts_by_label(["a model"]) == {"": "a model"}
    assert drafts_by_label(["a=one", "b=x=y"]) == {"a": "one", "b": "x=y"}


@pytest.mark.parametrize("label", ["[/red]", "two words", "new\nline", ".x", "x" * 33])
def test_a_label_that_would_not_stand_in_an_arms_name_is_refused(label: str) -> None:
    with pytest.raises(click.UsageError, match="cannot be a draft's label: letters, digits"):
        drafts_by_label([f"{label}=model"])


@pytest.mark.parametrize(
    ("home", "word", "kept"),
    [
        ("/srv/al", "/srv/al/model", "~/model"),
        ("/srv/al", "/srv/alice/model", "/srv/alice/model"),
        ("/srv/al/", "--out=/srv/al", "--out=~"),
        ("/", "/data/model", "/data/model"),
        ("/srv/al", "/Users/bob/model", "~/model"),
        ("/srv/al", "/home/bob/model", "~/model"),
    ],
)
def test_the_command_that_is_kept_names_nobodys_home(
    home: str, word: str, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", home)
    monkeypatch.setattr(sys, "argv", [str(Path("bin/otel-specdecode")), "sweep", word])

    assert command_line() == f"otel-specdecode sweep {kept}"
