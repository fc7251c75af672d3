"""Which engine is installed, without importing it."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version

import pytest

from otel_specdecode.identity import engines
from otel_specdecode.identity.engines import EngineIdentity, engine_identity


@pytest.mark.mlx
def test_mlx_lm_is_told_with_the_mlx_below_it() -> None:
    assert engine_identity("mlx") == EngineIdentity("mlx", "mlx-lm", version("mlx-lm"), "mlx", version("mlx"))


@pytest.mark.llama_cpp
def test_llama_cpp_python_has_its_runtime_built_in() -> None:
    told = EngineIdentity("llama_cpp", "llama-cpp-python", version("llama-cpp-python"), None, None)
    assert engine_identity("llama_cpp") == told


def test_one_that_is_not_known_is_only_named() -> None:
    assert engine_identity("other") == EngineIdentity("other")


def test_one_that_is_not_installed_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(engines, "version", missing)
    assert engine_identity.__wrapped__("mlx") == EngineIdentity("mlx", "mlx-lm", None, "mlx", None)


def test_no_engine_is_imported_for_it() -> None:
    script = (
        "import json, sys; from otel_specdecode.identity.engines import engine_identity as e; e('mlx'); e('llama_cpp');"
        "import otel_specdecode.identity.manifest, otel_specdecode.identity.mlx_lm, otel_specdecode.identity.llama_cpp;"
        "print(json.dumps(sorted(sys.modules)))"
    )
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(json.loads(finished.stdout))
    assert not loaded & {"llama_cpp", "mlx", "mlx.core", "mlx_lm", "numpy", "safetensors", "tokenizers", "transformers"}
