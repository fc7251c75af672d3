"""Writes how the machine is, every few seconds while a run goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from otel_specdecode.acceptance.records import HostSample
from otel_specdecode.acceptance.side_load import SideLoad
from otel_specdecode.host.process_memory import process_memory
from otel_specdecode.host.readers import Reader, reader_for

EVERY = 5.0
"""Seconds between two samples."""

SIDE_LOAD_EVERY = 6
"""Samples between two readings of the side load, which looks at every process."""

THREAD_NAME = "otel-specdecode-run-host"


class HostRecorder:
    """Samples on a thread of its own between start and stop. What it cannot read is unknown."""

    def __init__(
        self,
        write: Callable[[HostSample], None],
        make_reader: Callable[[], Reader] = reader_for,
        make_side_load: Callable[[], SideLoad] = SideLoad,
        every: float = EVERY,
    ) -> None:
        """Record to somewhere.

        Args:
            write: Takes each sample; what it raises ends the recording and is kept in `failure`.
            make_reader: Makes what the machine is read by, on the recording thread.
            make_side_load: Likewise for the side load.
            every: Seconds between two samples.
        """
        self._write = write
        self._make_reader = make_reader
        self._make_side_load = make_side_load
        self._every = every
        self._stopped = threading.Event()
        self._first = threading.Event()
        self._thread: threading.Thread | None = None
        self.first: HostSample | None = None
        self.last: HostSample | None = None
        self.failure: Exception | None = None

    def start(self, wait: float = 15.0) -> None:
        """Begin, and wait for the first sample.

        Args:
            wait: The longest wait, in seconds.
        """
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
        self._thread.start()
        self._first.wait(wait)

    def stop(self) -> None:
        """Take a last sample and end."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        try:
            reader, side_load = self._make_reader(), self._make_side_load()
            number = 0
            while not self._stopped.is_set():
                number += 1
                self._take(reader, side_load if number % SIDE_LOAD_EVERY == 0 else None)
                self._stopped.wait(self._every)
            self._take(reader, side_load)
        except Exception as error:
            self.failure = error
        finally:
            self._first.set()

    def _take(self, reader: Reader, side_load: SideLoad | None) -> None:
        sample = host_sample(reader, None if side_load is None else side_load.read())
        if self.first is None:
            self.first = sample
            self._first.set()
        self.last = sample
        self._write(sample)


def host_sample(reader: Reader, side_load: dict[str, float] | None) -> HostSample:
    """Return how machine and process are now."""
    state, memory = reader.read(), process_memory()
    return HostSample(
        at=time.time(),
        monotonic=time.monotonic(),
        rss=memory.resident,
        footprint=memory.footprint,
        swap_used=state.swap_used.value,
        swapped_in=state.swapped_in.value,
        swapped_out=state.swapped_out.value,
        memory_available=state.memory_available.value,
        memory_limit=state.memory_limit.value,
        memory_pressure=state.memory_pressure.value,
        thermal_state=state.thermal_state.value,
        power_mode=state.power_mode.value,
        power_source=state.power_source.value,
        side_load=side_load,
    )
