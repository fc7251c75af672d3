"""The benchmarks are part of the source tree alone; beside the installed package there is nothing to collect."""

from __future__ import annotations

import importlib.util

import pytest

collect_ignore_glob = [] if importlib.util.find_spec("benchmarks") else ["test_*.py"]


@pytest.fixture(autouse=True)
def no_earlier_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tests made the library warn of is no fault of a benchmark."""
    from benchmarks import measuring

    monkeypatch.setattr(measuring._faults, "told", [])
