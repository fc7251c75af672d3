"""The arrows between the rooms of the package, read from its imports. A room that the table does not know fails too."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import otel_specdecode

PACKAGE = "otel_specdecode"
SOURCE = Path(otel_specdecode.__path__[0])

LEAVES = {"version", "thresholds", "user_files"}
ROOMS = {
    "acceptance",
    "demo",
    "doctor",
    "engines",
    "generation",
    "guard",
    "host",
    "identity",
    "telemetry",
    "testing",
    "tiny_pair",
}
JOINTS = {"__init__", "guard_from_environment", "guarded", "instrumentors", "llama_cpp", "mlx_lm"}

# What each room may import of the others. Leaves (constants, how a file of the user is read) may be imported by all and
# import nobody.
MAY_IMPORT: dict[str, set[str]] = {
    "generation": set(),
    "identity": set(),
    "host": set(),
    "tiny_pair": set(),
    "engines": {"generation", "identity"},
    "telemetry": {"generation", "host", "identity"},
    "guard": {"generation"},
    "testing": (ROOMS | JOINTS) - {"acceptance", "demo", "doctor"},
    "acceptance": ROOMS | JOINTS,
    "demo": ROOMS | JOINTS,
    "doctor": (ROOMS | JOINTS) - {"acceptance", "demo", "testing"},
    "cli": ROOMS | JOINTS,
    "__main__": {"cli"},
    **{joint: (ROOMS | JOINTS) - {"acceptance", "demo", "doctor"} for joint in JOINTS},
    **{leaf: set() for leaf in LEAVES},
}
KNOW_OPENTELEMETRY = {"__init__", "acceptance", "demo", "doctor", "instrumentors", "telemetry", "testing"}
KNOW_AN_ENGINE = {
    "acceptance",
    "cli",
    "demo",
    "doctor",
    "engines",
    "identity",
    "instrumentors",
    "llama_cpp",
    "mlx_lm",
    "tiny_pair",
}
ENGINES = {"llama_cpp", "mlx", "mlx_lm"}


def imports(tree: ast.Module, module: str, is_package: bool) -> Iterator[str]:
    """The full names that a module imports anywhere, inside functions and under TYPE_CHECKING too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = module.split(".")[: None if is_package else -1]
            parents = parents[: len(parents) - node.level + 1] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            # `from package import room` names the room in the alias.
            yield from (f"{base}.{alias.name}" for alias in node.names)


def fault(room: str, imported: str) -> str | None:
    """What is wrong with this import in this room, or None."""
    top, _, rest = imported.partition(".")
    if top == PACKAGE:
        other = rest.partition(".")[0]
        if other not in MAY_IMPORT:
            other = "__init__"  # a name that the package itself hands out
        if other == room or other in LEAVES or other in MAY_IMPORT[room]:
            return None
        return f"{room} imports {other}"
    if top == "opentelemetry" and room not in KNOW_OPENTELEMETRY:
        return f"{room} imports opentelemetry"
    if top in ENGINES and room not in KNOW_AN_ENGINE:
        return f"{room} imports the engine {top}"
    return None


def broken_arrows(package: Path) -> list[str]:
    """All faults of the package in this folder, each with its file."""
    found = []
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        room = parts[0]
        if room not in MAY_IMPORT:
            found.append(f"{path.name}: {room} is a room that the table does not know")
            continue
        is_package = parts[-1] == "__init__"
        module = ".".join([PACKAGE, *(parts[:-1] if is_package else parts)])
        tree = ast.parse(path.read_text(encoding="utf-8"))
        wrong = {fault(room, imported) for imported in imports(tree, module, is_package)} - {None}
        found += [f"{'/'.join(parts)}: {text}" for text in sorted(map(str, wrong))]
    return found


def test_the_rooms_import_only_along_the_arrows() -> None:
    assert broken_arrows(SOURCE) == []


@pytest.mark.parametrize(
    ("path", "line", "expected"),
    [
        ("generation/ledger.py", "from opentelemetry import trace", "generation imports opentelemetry"),
        ("generation/ledger.py", "import mlx_lm.generate", "generation imports the engine mlx_lm"),
        ("generation/ledger.py", "from otel_specdecode.telemetry import names", "generation imports telemetry"),
        ("generation/ledger.py", "from ..host import memory", "generation imports host"),
        ("generation/__init__.py", "from ..host import memory", "generation imports host"),
        ("generation/ledger.py", "from .. import host", "generation imports host"),
        ("generation/ledger.py", "def f():\n    import otel_specdecode.engines.mlx", "generation imports engines"),
        ("generation/ledger.py", "from otel_specdecode import instrument", "generation imports __init__"),
        ("engines/mlx/hooks.py", "from otel_specdecode.telemetry.emit import Emitter", "engines imports telemetry"),
        ("engines/mlx/hooks.py", "import opentelemetry.trace", "engines imports opentelemetry"),
        ("telemetry/emit.py", "from otel_specdecode import engines", "telemetry imports engines"),
        ("guard/window.py", "from otel_specdecode.host import memory", "guard imports host"),
        ("host/memory.py", "from otel_specdecode.identity import names", "host imports identity"),
        ("tiny_pair/folders.py", "from otel_specdecode.generation import record", "tiny_pair imports generation"),
        ("acceptance/sweep.py", "from otel_specdecode.cli import main", "acceptance imports cli"),
        ("instrumentors.py", "from otel_specdecode.acceptance import gates", "instrumentors imports acceptance"),
        ("mlx_lm.py", "from . import cli", "mlx_lm imports cli"),
        ("attic/old.py", "", "attic is a room that the table does not know"),
    ],
)
def test_a_bad_arrow_is_found(tmp_path: Path, path: str, line: str, expected: str) -> None:
    module = tmp_path / path
    module.parent.mkdir(parents=True, exist_ok=True)
    module.write_text(line)
    assert [text.partition(": ")[2] for text in broken_arrows(tmp_path)] == [expected]


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("generation/ledger.py", "from .counts import Counts\nfrom otel_specdecode.version import __version__"),
        ("engines/mlx/hooks.py", "import mlx_lm\nfrom otel_specdecode.generation.record import Record"),
        ("telemetry/emit.py", "from opentelemetry import trace\nfrom ..host import memory"),
        ("acceptance/sweep.py", "import otel_specdecode\nfrom otel_specdecode.guard import window"),
        ("mlx_lm.py", "from otel_specdecode.instrumentors import MLXLMInstrumentor\nimport mlx_lm"),
    ],
)
def test_a_good_arrow_is_let_through(tmp_path: Path, path: str, line: str) -> None:
    module = tmp_path / path
    module.parent.mkdir(parents=True, exist_ok=True)
    module.write_text(line)
    assert broken_arrows(tmp_path) == []


@pytest.mark.parametrize("module", ["otel_specdecode", "otel_specdecode.instrumentors"])
def test_importing_the_package_imports_no_engine_and_no_sdk(module: str) -> None:
    script = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(json.loads(finished.stdout))
    assert not loaded & {"llama_cpp", "mlx", "mlx.core", "mlx_lm", "numpy", "opentelemetry.sdk", "transformers"}
