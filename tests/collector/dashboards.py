"""The committed dashboards, as tests read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "collector" / "grafana" / "dashboards"
NAMES = ("overview", "speculation", "incident", "node")


def dashboard(name: str) -> dict[str, Any]:
    """Return a committed dashboard."""
    loaded: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return loaded
