"""Writes the JSON schema of the guard's policy file.

- ``python scripts/guard_schema.py`` writes it.
- ``python scripts/guard_schema.py --check`` exits with 1 if it is out of date.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from otel_specdecode.guard.policy_text import SCHEMA_FILE, policy_schema

ROOT = Path(__file__).resolve().parent.parent


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Run the command line. ``root`` is the repository's; returns the exit status."""
    parser = argparse.ArgumentParser(description="Write the JSON schema of the guard's policy file.")
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if the file is out of date")
    options = parser.parse_args(arguments)
    path = root / SCHEMA_FILE
    text = json.dumps(policy_schema(), indent=2) + "\n"
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return 0
    if options.check:
        print(f"{SCHEMA_FILE} is out of date: run python scripts/guard_schema.py", file=sys.stderr)
        return 1
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(f"wrote {SCHEMA_FILE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
