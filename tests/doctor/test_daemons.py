"""Calls side by side that nobody has to wait for."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from otel_specdecode.doctor.daemons import side_by_side, within


def test_results_come_in_order_though_the_calls_wait_for_each_other() -> None:
    all_run = threading.Barrier(3)

    def call(number: int) -> int:
        all_run.wait(30)
        return -number

    assert side_by_side(call, [1, 2, 3]) == [-1, -2, -3]


def test_what_a_call_raises_is_raised() -> None:
    with pytest.raises(KeyError):
        within(30, lambda: {}["x"])


def test_a_call_that_takes_too_long_is_not_waited_for() -> None:
    over = threading.Event()
    with pytest.raises(TimeoutError):
        within(0.01, over.wait)
    over.set()


def test_a_program_ends_though_a_call_goes_on() -> None:
    program = (
        "import threading; from otel_specdecode.doctor.daemons import within\n"
        "try: within(0.01, threading.Event().wait)\nexcept TimeoutError: print('over')"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert finished.stdout == "over\n"
