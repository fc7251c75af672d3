from __future__ import annotations

import threading
import time

import pytest

from otel_specdecode.acceptance.host_recorder import SIDE_LOAD_EVERY, THREAD_NAME, HostRecorder
from otel_specdecode.acceptance.records import HostSample
from otel_specdecode.acceptance.side_load import SideLoad
from otel_specdecode.host.readers import UnknownReader


def recorder(write, make_reader=lambda: UnknownReader("test")) -> HostRecorder:
    return HostRecorder(write, make_reader, lambda: SideLoad(list), every=0.001)


def test_the_first_sample_is_there_when_it_has_started_and_the_last_tells_of_side_load() -> None:
    taken: list[HostSample] = []
    recording = recorder(taken.append)
    recording.start()
    assert taken
    recording.stop()

    assert recording.first == taken[0]
    assert recording.last == taken[-1]
    assert taken[-1].side_load == {"browser": 0.0, "ide": 0.0, "indexer": 0.0, "other": 0.0}
    assert not any(thread.name == THREAD_NAME for thread in threading.enumerate())


def test_side_load_is_read_now_and_then() -> None:
    taken: list[HostSample] = []
    enough = threading.Event()

    def write(sample: HostSample) -> None:
        taken.append(sample)
        if len(taken) > 3 * SIDE_LOAD_EVERY:
            enough.set()

    recording = recorder(write)
    recording.start()
    assert enough.wait(60)
    recording.stop()

    known = [number for number, sample in enumerate(taken[:-1], 1) if sample.side_load is not None]
    assert known[:3] == [SIDE_LOAD_EVERY, 2 * SIDE_LOAD_EVERY, 3 * SIDE_LOAD_EVERY]


def test_what_cannot_be_written_ends_it_and_is_kept() -> None:
    def write(_: HostSample) -> None:
        raise OSError("full")

    recording = recorder(write)
    recording.start()
    recording.stop()

    assert isinstance(recording.failure, OSError)


def test_a_reader_that_cannot_be_made_holds_nobody_up() -> None:
    def make_reader() -> UnknownReader:
        raise RuntimeError("no reader")

    began = time.monotonic()
    recording = recorder(lambda _: None, make_reader)
    recording.start(wait=60)
    recording.stop()

    assert time.monotonic() - began < 30
    assert isinstance(recording.failure, RuntimeError)


def test_this_machine_tells_its_memory_and_both_clocks() -> None:
    taken: list[HostSample] = []
    recording = HostRecorder(taken.append)
    recording.start()
    recording.stop()

    assert taken[0].rss
    assert taken[0].at == pytest.approx(time.time(), abs=60)
    assert taken[0].monotonic <= taken[-1].monotonic
