"""Writes the files that a generator makes, or says which of them are out of date or made by nobody."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Generator:
    """What makes the generated files of one folder.

    Attributes:
        program: As it is called, such as `python -m collector.rulekit`.
        about: What it does, in one sentence.
        folder: Where its files are, from the repository's root.
        pattern: Which files of the folder have to be its own.
        outputs: Return the text of each file by its path from the repository's root.
        errors: What `outputs` raises if there is something that must not be written.
    """

    program: str
    about: str
    folder: str
    pattern: str
    outputs: Callable[[], Mapping[str, str]]
    errors: tuple[type[Exception], ...]

    def run(self, arguments: Sequence[str] | None, root: Path) -> int:
        """Run the command line on the repository at ``root``; return the exit status."""
        parser = argparse.ArgumentParser(prog=self.program, description=self.about)
        parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if a file is out of date")
        options = parser.parse_args(arguments)
        try:
            made = self.outputs()
        except self.errors as error:
            print(error, file=sys.stderr)
            return 1
        stale = [name for name, text in made.items() if not _holds(root / name, text)]
        return self._told(stale, made, root) if options.check else _written(stale, made, root)

    def _told(self, stale: Sequence[str], made: Mapping[str, str], root: Path) -> int:
        there = {f"{self.folder}/{path.name}" for path in (root / self.folder).glob(self.pattern)}
        orphans = sorted(there - made.keys())
        for name in stale:
            print(f"{name} is out of date: run {self.program}", file=sys.stderr)
        for name in orphans:
            print(f"{name} is made by nobody", file=sys.stderr)
        return 1 if stale or orphans else 0


def _written(stale: Sequence[str], made: Mapping[str, str], root: Path) -> int:
    for name in stale:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(made[name], encoding="utf-8")
        print(f"wrote {name}")
    return 0


def _holds(path: Path, text: str) -> bool:
    # What is not UTF-8 becomes characters that no generator writes.
    return path.is_file() and path.read_text(encoding="utf-8", errors="surrogateescape") == text
