"""Asks mlx-lm which caches a model gets. Run as a program; weights are mapped, and none is read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from otel_specdecode.doctor.children import answer


def caches(folder: str) -> dict[str, Any]:
    """Return for each kind of cache how many layers have it, its window, and whether it can be rewound while empty."""
    try:
        from mlx_lm.models.cache import make_prompt_cache
        from mlx_lm.utils import load_model

        model = load_model(Path(folder), lazy=True)[0]
        layers = make_prompt_cache(model)
    except Exception as error:
        return {"failure": f"mlx-lm cannot load it ({type(error).__name__})"}
    found: dict[tuple[str, int | None, bool], int] = {}
    for layer in layers:
        for part in getattr(layer, "caches", (layer,)):
            kind = (type(part).__name__, getattr(part, "max_size", None), bool(part.is_trimmable()))
            found[kind] = found.get(kind, 0) + 1
    return {
        "caches": [
            {"kind": kind, "window": window, "trimmable": trimmable, "layers": count}
            for (kind, window, trimmable), count in found.items()
        ]
    }


if __name__ == "__main__":
    answer(lambda: caches(sys.argv[1]))
