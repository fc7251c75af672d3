"""What every test shares: nothing is left behind, needs are declared by marker, hypothesis has named profiles."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

from otel_specdecode.generation import faults
from otel_specdecode.telemetry import host_metrics

ROOT = Path(__file__).parent.parent

# Threads that may outlive a test, by name or by class: ours that lives as long as the process, and tqdm's.
LASTING_THREADS = ("otel-specdecode-recorder", "otel-specdecode-host", "otel-specdecode-memory", "TMonitor")
GRACE_S = 2.0

# The house phrase that begins the reason of a skip for something that is not there. llama-cpp-python may always be
# absent: without a ready wheel it has to be compiled.
NEEDS = "needs the"
MAY_BE_ABSENT = "[llama-cpp] extra"

settings.register_profile("dev", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dev"), max_examples=100, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips a test whose need, declared by marker, is not met."""
    if item.get_closest_marker("mlx") and importlib.util.find_spec("mlx_lm") is None:
        pytest.skip(f"{NEEDS} [mlx] extra")
    if item.get_closest_marker("llama_cpp") and importlib.util.find_spec("llama_cpp") is None:
        pytest.skip(f"{NEEDS} {MAY_BE_ABSENT}")
    if item.get_closest_marker("source") and not (ROOT / "otel_specdecode").is_dir():
        pytest.skip(f"{NEEDS} source tree")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With OTEL_SPECDECODE_REQUIRE_ALL=1, a test that is skipped because something is not installed fails."""
    report = yield
    reason = str(call.excinfo.value) if report.skipped and call.excinfo else ""
    required = reason.startswith(NEEDS) and MAY_BE_ABSENT not in reason
    if required and os.environ.get("OTEL_SPECDECODE_REQUIRE_ALL") == "1":
        report.outcome = "failed"
        report.longrepr = f"{reason}, and OTEL_SPECDECODE_REQUIRE_ALL=1 allows no skip"
    return report


def pytest_itemcollected(item: pytest.Item) -> None:
    """The tests of the generator compare files of the source tree. Marked here, `-m` can still leave them out."""
    if item.path.is_relative_to(ROOT / "tests" / "semconv"):
        item.add_marker("source")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Has programs run first: their files take minutes, and none should come last where processes share the tests."""
    items.sort(key=lambda item: not item.path.is_relative_to(ROOT / "tests" / "e2e"))


def _threads() -> set[threading.Thread]:
    return {
        thread
        for thread in threading.enumerate()
        if not thread.name.startswith(LASTING_THREADS) and type(thread).__name__ not in LASTING_THREADS
    }


def _children() -> set[psutil.Process]:
    """Our running child processes. The resource tracker of multiprocessing is Python's own and stays."""
    tracker = getattr(getattr(multiprocessing, "resource_tracker", None), "_resource_tracker", None)
    tracker_pid = getattr(tracker, "_pid", None)
    return {child for child in psutil.Process().children() if child.pid != tracker_pid}


@pytest.fixture(autouse=True)
def faults_forgotten() -> None:
    """What one test made the library warn of, once, is news to the next."""
    while not faults._waiting.empty():
        faults._waiting.get()
    faults._told.clear()


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fails a test that leaves a thread or a child process behind."""
    threads, children, watchers = _threads(), _children(), host_metrics.watch._watchers
    yield
    if host_metrics.watch._watchers > watchers:
        pytest.fail("left behind: a listener that was not closed, so the machine goes on being watched", pytrace=False)
    deadline = time.monotonic() + GRACE_S
    while (new_threads := _threads() - threads) | (new_children := _children() - children):
        if time.monotonic() > deadline:
            names = sorted(thread.name for thread in new_threads)
            pids = sorted(child.pid for child in new_children)
            pytest.fail(f"left behind: threads {names}, child processes {pids}", pytrace=False)
        time.sleep(0.01)
