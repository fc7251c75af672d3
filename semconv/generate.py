"""Writes everything that is generated from the telemetry registry.

- ``python semconv/generate.py`` writes the files.
- ``python semconv/generate.py --check`` exits with 1 and names the files that are out of date.
- ``python semconv/generate.py --refresh-upstream MODEL`` reads upstream's facts again from a tree of its model.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from registrykit import docs, names, resolved
from registrykit.load import load, needed_upstream
from registrykit.types import RegistryError
from registrykit.upstream import facts, read_yaml, write_lock

ROOT = Path(__file__).resolve().parent


def outputs(root: Path) -> dict[str, str]:
    """Text of each generated file by its path from the repository's root."""
    registry = load(root)
    return {
        "otel_specdecode/telemetry/names.py": names.render(registry),
        "otel_specdecode/telemetry/registry.json": resolved.render(registry),
        "docs/reference/fields.md": docs.render(registry),
    }


def refresh(root: Path, model: Path) -> None:
    """Read the facts of every upstream definition that is referred to."""
    manifest = read_yaml(root / "model" / "manifest.yaml")
    version = manifest["dependencies"][0]["schema_url"].rsplit("/", 1)[-1]
    write_lock(root, version, facts(model, needed_upstream(root)))


def main(arguments: Sequence[str] | None = None, root: Path = ROOT, target: Path | None = None) -> int:
    """Run the command line. ``target`` is the repository's root; returns the exit status."""
    parser = argparse.ArgumentParser(description="Generate code and docs from the telemetry registry.")
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if a file is out of date")
    parser.add_argument("--refresh-upstream", type=Path, metavar="MODEL", help="folder model/ of a semconv release")
    options = parser.parse_args(arguments)
    target = target or root.parent
    try:
        if options.refresh_upstream:
            refresh(root, options.refresh_upstream)
        generated = outputs(root)
    except (RegistryError, LookupError) as error:
        print(error, file=sys.stderr)
        return 1
    stale = [name for name, text in generated.items() if not _holds(target / name, text)]
    if options.check:
        for name in stale:
            print(f"{name} is out of date: run python semconv/generate.py", file=sys.stderr)
        return 1 if stale else 0
    for name in stale:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text(generated[name], encoding="utf-8")
        print(f"wrote {name}")
    return 0


def _holds(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
