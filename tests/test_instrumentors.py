"""What `opentelemetry-instrument` finds of this package, in environments with one engine, the other, or none."""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.distro", reason="needs the [zero-code] extra")

ENGINES = ("llama_cpp", "mlx_lm")

PROGRAM = """
import importlib.util, json
from otel_specdecode.instrumentors import instrumentors
assert {name for name in instrumentors() if importlib.util.find_spec(name)} == THERE
print(json.dumps({name: each.is_instrumented_by_opentelemetry for name, each in instrumentors().items()}))
"""

LAUNCH = "from opentelemetry.instrumentation.auto_instrumentation import run; run()"


def environment_without(folder: Path, hidden: set[str]) -> Path:
    """Make an environment that has all packages of this one but some; return its Python."""
    made = folder / "environment"
    venv.create(made, symlinks=True)
    (packages,) = made.glob("lib/python*/site-packages")
    for source in site.getsitepackages():
        for entry in Path(source).iterdir():
            if entry.name.partition("-")[0] not in hidden:
                (packages / entry.name).symlink_to(entry)
    return made / "bin" / "python"


def instrumented(python: Path, there: set[str]) -> tuple[dict[str, Any], str]:
    """Start a program that sees these engines; return what was instrumented without a line of code, and the log."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "PYTHON"))}
    exporters = {f"OTEL_{signal}_EXPORTER": "none" for signal in ("TRACES", "METRICS", "LOGS")}
    done = subprocess.run(
        [python, "-c", LAUNCH, python, "-c", PROGRAM.replace("THERE", repr(there))],
        env={**clean, **exporters},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found, done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="environments are put together of links")
@pytest.mark.parametrize(
    "there",
    [
        pytest.param({"llama_cpp"}, marks=pytest.mark.llama_cpp),
        pytest.param({"mlx_lm"}, marks=pytest.mark.mlx),
        pytest.param({"llama_cpp", "mlx_lm"}, marks=[pytest.mark.llama_cpp, pytest.mark.mlx]),
        set(),
    ],
    ids=lambda there: "+".join(sorted(there)) or "none",
)
def test_one_engine_is_enough_for_zero_code_and_without_any_nothing_is_done(there: set[str], tmp_path: Path) -> None:
    """OpenTelemetry asks whether any engine is installed; the other's instrumentor waits for an import, silently."""
    hidden = {spelled for engine in set(ENGINES) - there for spelled in (engine, f"{engine}_python")}
    found, logged = instrumented(environment_without(tmp_path, hidden), there)
    assert found == dict.fromkeys(found, bool(there))
    assert set(found) == set(ENGINES)
    assert logged == ""
