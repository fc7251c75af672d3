"""The examples as a whole: each is run by a test file of its name, and has its line in the table."""

from __future__ import annotations

from pathlib import Path

from tests.examples.running import EXAMPLES

NAMES = sorted(path.name for path in EXAMPLES.iterdir() if path.suffix in {".py", ".sh"})


def test_every_example_is_run() -> None:
    tests = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")}
    assert {Path(name).stem for name in NAMES} == tests - {"every_example"}


def test_every_example_has_a_line_in_the_table() -> None:
    rows = [
        line for line in (EXAMPLES / "README.md").read_text(encoding="utf-8").splitlines() if line.startswith("| [")
    ]
    assert sorted(row.split("`")[1] for row in rows) == NAMES
    assert all(f"]({name})" in row and f"examples/{name}" in row for row in rows for name in [row.split("`")[1]])
