"""Reads thresholds.toml, where every example number stands once."""

from __future__ import annotations

import sys
from functools import cache
from importlib import resources
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@cache
def thresholds() -> dict[str, Any]:
    """Return the tables of thresholds.toml."""
    text = resources.files("otel_specdecode").joinpath("thresholds.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
