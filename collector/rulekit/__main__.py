"""Writes the Prometheus rules.

- ``python -m collector.rulekit`` writes the files.
- ``python -m collector.rulekit --check`` exits with 1 and names the files that are out of date or made by nobody.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from collector.generated import ROOT, Generator
from collector.rulekit.files import FOLDER, outputs
from collector.rulekit.model import RuleError

_GENERATOR = Generator(
    program="python -m collector.rulekit",
    about="Generate the Prometheus rules.",
    folder=FOLDER,
    pattern="*.y*ml",
    outputs=outputs,
    errors=(RuleError, KeyError),
)


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Run the command line on the repository at ``root``; return the exit status."""
    return _GENERATOR.run(arguments, root)


if __name__ == "__main__":
    sys.exit(main())
