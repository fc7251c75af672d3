"""Writes the Grafana dashboards.

- ``python -m collector.grafana`` writes the files.
- ``python -m collector.grafana --check`` exits with 1 and names the files that are out of date or made by nobody.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from collector.generated import ROOT, Generator
from collector.grafana.gates import DashboardError

_PROGRAM = "python -m collector.grafana"
_SDK = "grafana_foundation_sdk"


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Run the command line on the repository at ``root``; return the exit status."""
    try:
        from collector.grafana.files import FOLDER, outputs
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != _SDK:
            raise
        print(f"{_PROGRAM} needs Python 3.11 or newer with the dev extra: pip install -e '.[dev]'", file=sys.stderr)
        return 1
    generator = Generator(
        program=_PROGRAM,
        about="Generate the Grafana dashboards.",
        folder=FOLDER,
        pattern="*",
        outputs=outputs,
        errors=(DashboardError, KeyError),
    )
    return generator.run(arguments, root)


if __name__ == "__main__":
    sys.exit(main())
