"""The benchmarks need more than the library does; where that is not installed they are not collected."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

NEEDED = ("numpy", "pyperf", "rich", "opentelemetry.util.genai")


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


collect_ignore_glob = [] if all(map(_is_there, NEEDED)) else ["test_*.py"]


@pytest.fixture(autouse=True)
def no_fault_of_another_test() -> None:
    """What other tests made the library warn of is no fault of a benchmark."""
    from benchmarks import measuring

    measuring._faults.told.clear()
