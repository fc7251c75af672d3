"""What is generated is what the registry says, and stays so."""

from __future__ import annotations

from pathlib import Path

import generate
import pytest


@pytest.mark.source
def test_generated_files_are_up_to_date(repository: Path) -> None:
    """The committed files are what the generator writes now."""
    assert generate.main(["--check"], target=repository) == 0


def test_generating_again_changes_nothing(registry_copy: Path, tmp_path: Path) -> None:
    """A second run writes no file."""
    generate.main([], root=registry_copy, target=tmp_path)

    assert generate.main(["--check"], root=registry_copy, target=tmp_path) == 0


@pytest.mark.parametrize("name", sorted(generate.outputs(generate.ROOT)))
def test_check_names_a_stale_file(
    registry_copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """An edited file makes the check fail and is named, and only it."""
    generate.main([], root=registry_copy, target=tmp_path)
    (tmp_path / name).write_text("edited", encoding="utf-8")
    capsys.readouterr()

    assert generate.main(["--check"], root=registry_copy, target=tmp_path) == 1
    assert capsys.readouterr().err == f"{name} is out of date: run python semconv/generate.py\n"
    assert (tmp_path / name).read_text(encoding="utf-8") == "edited"


def test_check_names_a_missing_file(registry_copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that was never written is out of date."""
    assert generate.main(["--check"], root=registry_copy, target=tmp_path) == 1
    assert "docs/reference/fields.md" in capsys.readouterr().err
