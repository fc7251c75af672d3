"""What the registry says about upstream's definitions is what upstream says."""

from __future__ import annotations

import importlib
import os
import pkgutil
from pathlib import Path
from types import ModuleType

import pytest
from opentelemetry.semconv._incubating import attributes as upstream_attributes
from opentelemetry.semconv._incubating import metrics as upstream_metrics
from opentelemetry.semconv.schemas import Schemas
from registrykit.load import needed_upstream
from registrykit.upstream import facts, read_lock

python_package = pytest.mark.skipif(
    not any(schema.value.endswith("/1.41.0") for schema in Schemas),
    reason="opentelemetry-semantic-conventions is older than the release that the manifest pins",
)


def upstream_model(repository: Path) -> Path | None:
    """The tree of upstream's model, if there is one on this machine."""
    named = os.environ.get("OTEL_SPECDECODE_SEMCONV_UPSTREAM")
    model = Path(named) if named else repository.parent / "shared" / "semconv-upstream" / "model"
    return model if model.is_dir() else None


def strings_of(package: ModuleType) -> set[str]:
    """The values of all string constants in the modules of a package."""
    modules = [
        importlib.import_module(found.name) for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
    ]
    return {value for module in modules for value in vars(module).values() if isinstance(value, str)}


def test_lock_holds_what_upstream_says(repository: Path) -> None:
    """Types, values, instruments and units are those of the release that the manifest pins."""
    model = upstream_model(repository)
    if model is None:
        pytest.skip("no tree of upstream's model: set OTEL_SPECDECODE_SEMCONV_UPSTREAM")
    root = repository / "semconv"
    lock = read_lock(root)
    del lock["version"]

    assert facts(model, needed_upstream(root)) == lock


def test_refresh_refuses_what_upstream_lacks(tmp_path: Path, repository: Path) -> None:
    """A name that upstream does not have is told."""
    (tmp_path / "empty.yaml").write_text("groups: []\n", encoding="utf-8")

    with pytest.raises(LookupError, match=r"upstream has no attribute client\.address, device\.manufacturer"):
        facts(tmp_path, needed_upstream(repository / "semconv"))


@python_package
def test_upstream_attributes_are_known_to_the_python_package(repository: Path) -> None:
    """Every upstream key is a constant of opentelemetry-semantic-conventions."""
    known = strings_of(upstream_attributes)

    assert set(read_lock(repository / "semconv")["attributes"]) - known == set()


@python_package
def test_upstream_metrics_are_known_to_the_python_package(repository: Path) -> None:
    """Every upstream metric name is a constant of opentelemetry-semantic-conventions."""
    assert set(read_lock(repository / "semconv")["metrics"]) - strings_of(upstream_metrics) == set()
