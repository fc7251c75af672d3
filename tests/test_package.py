"""The wheel that is built: what is in it, and that it works alone, from outside the source tree."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import otel_specdecode.version

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "otel_specdecode"
TEXT = {".json", ".md", ".py", ".toml", ".txt", ".typed", ".yaml"}

pytestmark = [pytest.mark.slow, pytest.mark.source]


def run(*command: str | Path, cwd: Path) -> str:
    """Runs a command outside of this process's Python settings; its output, or a failure that shows what it said."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "OTEL_"))}
    finished = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert finished.returncode == 0, f"{command} said\n{finished.stdout}\n{finished.stderr}"
    return finished.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, ROOT, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(names: set[str]) -> None:
    source = {
        path.relative_to(ROOT).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if ".dist-info/" not in name} == source


@pytest.mark.parametrize(
    "wanted",
    [
        r"otel_specdecode/py\.typed",
        r"otel_specdecode/thresholds\.toml",
        r"otel_specdecode/(.+/)?registry\.json",
        r"otel_specdecode/tiny_pair/models/target/model\.safetensors",
        r"otel_specdecode/tiny_pair/models/draft/tokenizer\.json",
        r".+\.dist-info/licenses/LICENSE",
    ],
)
def test_the_wheel_holds_the_data_that_is_read_at_run_time(names: set[str], wanted: str) -> None:
    assert [name for name in names if re.fullmatch(wanted, name)]


def test_no_text_of_the_wheel_names_a_home_folder_or_the_folder_it_was_built_in(wheel: Path) -> None:
    private = re.compile(rf"/(?:home|Users)/\w|/root/|{re.escape(str(ROOT))}/|{re.escape(str(Path.home()))}/")
    with zipfile.ZipFile(wheel) as archive:
        found = [
            f"{name}: {match.group()}"
            for name in archive.namelist()
            if Path(name).suffix in TEXT
            for match in [private.search(archive.read(name).decode())]
            if match
        ]
    assert found == []


def test_the_wheel_works_with_its_base_dependencies_alone(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "venv"
    run(sys.executable, "-m", "venv", environment, cwd=tmp_path)
    python = environment / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", wheel, cwd=tmp_path)
    run(python, "-m", "pip", "check", cwd=tmp_path)
    script = (
        "import importlib.metadata as metadata, otel_specdecode, otel_specdecode.thresholds\n"
        "(hook,) = metadata.entry_points(group='opentelemetry_instrumentor', name='mlx_lm')\n"
        "hook.load()\n"
        "otel_specdecode.instrument()\n"
        "otel_specdecode.flush()\n"
        "otel_specdecode.uninstrument()\n"
        "print(metadata.version('otel-specdecode'), otel_specdecode.__file__)"
    )
    version, _, place = run(python, "-c", script, cwd=tmp_path).strip().partition(" ")
    assert version == otel_specdecode.version.__version__
    assert Path(place).is_relative_to(environment)
    script = (
        "import otel_specdecode\ntry:\n    otel_specdecode.configure()\nexcept ImportError as error:\n    print(error)"
    )
    assert 'pip install "otel-specdecode[otlp]"' in run(python, "-c", script, cwd=tmp_path)
