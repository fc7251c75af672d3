from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from otel_specdecode.acceptance.side_load import GROUPS, SideLoad, group_of


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("Google Chrome Helper (Renderer)", "browser"),
        ("chrome", "browser"),
        ("Safari", "browser"),
        ("com.apple.WebKit.WebContent", "browser"),
        ("Code Helper", "ide"),
        ("pycharm", "ide"),
        ("mds_stores", "indexer"),
        ("mdworker_shared", "indexer"),
        ("tracker-miner-fs-3", "indexer"),
        ("python3.11", "other"),
        ("", "other"),
    ],
)
def test_processes_are_put_into_groups_by_their_names(name: str, group: str) -> None:
    assert group_of(name) == group


class Processes:
    """CPU seconds of processes, and a clock, both moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.spent: dict[int, tuple[str, float]] = {1: ("chrome", 100.0), 2: ("mds", 5.0), 3: ("python", 1.0)}
        self.side_load = SideLoad(lambda: [(pid, *each) for pid, each in self.spent.items()], lambda: self.now)

    def read(self, seconds: float) -> dict[str, float]:
        self.now += seconds
        return self.side_load.read()


def test_a_reading_is_the_cores_that_were_busy_since_the_one_before() -> None:
    processes = Processes()
    processes.spent = {1: ("chrome", 115.0), 2: ("mds", 5.5), 3: ("python", 1.0)}

    assert processes.read(10) == {"browser": 1.5, "ide": 0.0, "indexer": 0.05, "other": 0.0}
    assert processes.read(10) == dict.fromkeys((*GROUPS, "other"), 0.0)


def test_a_process_that_began_meanwhile_counts_with_all_it_spent_and_one_that_ended_with_nothing() -> None:
    processes = Processes()
    processes.spent = {4: ("xcodebuild", 2.0)}

    assert processes.read(10) == {"browser": 0.0, "ide": 0.2, "indexer": 0.0, "other": 0.0}


def test_a_process_id_that_is_taken_again_never_counts_below_nothing() -> None:
    processes = Processes()
    processes.spent = {1: ("firefox", 3.0)}

    assert processes.read(10)["browser"] == 0.0


def test_it_sees_a_real_process_that_is_busy_and_not_its_own() -> None:
    side_load = SideLoad()
    # A grandchild: the children of a run are its own.
    program = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', 'while True: pass']))"
    with subprocess.Popen([sys.executable, "-c", program], start_new_session=True) as process:
        try:
            deadline = time.monotonic() + 60
            busy = 0.0
            while busy < 0.1 and time.monotonic() < deadline:
                time.sleep(0.5)
                busy = side_load.read()["other"]
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert busy >= 0.1
