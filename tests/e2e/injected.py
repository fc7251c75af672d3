"""Code that a program under `opentelemetry-instrument` runs before anything is instrumented."""

from __future__ import annotations

from pathlib import Path


def injecting(source: str, folder: Path) -> dict[str, str]:
    """Return the environment variables with which a program runs some code first.

    `opentelemetry-instrument` runs an entry point of each package that asks for it; this writes such a package.

    Args:
        source: A module with a function `run()`.
        folder: Where to put the package; it must be there, and empty.
    """
    about = folder / "injected-1.dist-info"
    about.mkdir()
    (folder / "injected.py").write_text(source)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: injected\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[opentelemetry_pre_instrument]\ninjected = injected:run\n")
    return {"PYTHONPATH": str(folder)}
