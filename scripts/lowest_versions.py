"""Prints pip constraints that pin every dependency of pyproject.toml to its lower bound.

    python scripts/lowest_versions.py              the base dependencies
    python scripts/lowest_versions.py mlx otlp     and those of these extras

Exits with 1 if a dependency has no lower bound: what is not declared cannot be tested.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def requirements(project: dict[str, Any], extras: list[str]) -> Iterator[Requirement]:
    """The base dependencies and those of the extras; an extra that names another of our own is followed."""
    texts = list(project["dependencies"])
    for extra in extras:
        texts += project["optional-dependencies"][extra]
    for requirement in map(Requirement, texts):
        if requirement.name == project["name"]:
            yield from requirements({**project, "dependencies": []}, sorted(requirement.extras))
        else:
            yield requirement


def constraint(requirement: Requirement) -> str:
    """`name==lowest`, with the marker kept.

    Raises:
        ValueError: the requirement has no lower bound.
    """
    for specifier in requirement.specifier:
        if specifier.operator in (">=", "==", "~="):
            marker = f"; {requirement.marker}" if requirement.marker else ""
            return f"{requirement.name}=={re.sub(r'[.][*]$', '', specifier.version)}{marker}"
    raise ValueError(f"{requirement} has no lower bound")


def main(arguments: list[str]) -> int:
    """Prints the constraints, each once."""
    pyproject = Path(__file__).parent.parent / "pyproject.toml"
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    try:
        lines = {constraint(requirement) for requirement in requirements(project, arguments)}
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(sorted(lines)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
