"""Each engine on a thread of its own: models are loaded where they are used."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from opentelemetry import baggage, context

from otel_specdecode.demo.engines.interface import Engine
from otel_specdecode.demo.load.driver import Driver, Stream, Streams
from otel_specdecode.demo.load.plan import Arrival, Load, Way, arrivals
from otel_specdecode.telemetry.tenancy import chosen_tenancy

if TYPE_CHECKING:
    from typing_extensions import Self


class Crew:
    """The engines of a load. As a context manager it leaves no engine behind, whether they were begun or not."""

    def __init__(self, engines: Sequence[Engine], load: Load, stop: threading.Event, scratch: Path) -> None:
        """Load the models of every engine, and wait for that.

        Args:
            engines: The engines.
            load: What each is asked for.
            stop: Ends all before their time. Set too once one has failed: what the others would send is half a load.
            scratch: Folder for derived models.

        Raises:
            BaseException: What the first engine raised that could not be loaded.
        """
        self._load = load
        self._stop = stop
        self._go = threading.Event()
        self._drivers: list[Driver] = []
        self._failures: list[BaseException] = []
        self._threads: list[threading.Thread] = []
        try:
            self._load_all(engines, scratch)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        """Nothing more to begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self.close()

    def close(self) -> None:
        """End what has not ended by itself, engines that wait to begin included."""
        if any(thread.is_alive() for thread in self._threads):
            self._stop.set()
        self._go.set()
        for thread in self._threads:
            thread.join()

    @property
    def dropped(self) -> int:
        """Requests that gave up waiting; all of them once `work` has ended."""
        return sum(driver.dropped for driver in self._drivers)

    def work(self) -> None:
        """Begin, and return when all have ended.

        Raises:
            BaseException: What the first one raised that failed; it ends the others.
        """
        self._go.set()
        for thread in self._threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def _load_all(self, engines: Sequence[Engine], scratch: Path) -> None:
        loaded = []
        for engine in engines:
            event = threading.Event()
            arguments = (engine, scratch / engine.name, event)
            thread = threading.Thread(target=self._run, args=arguments, name=f"load-{engine.name}")
            thread.start()
            self._threads.append(thread)
            loaded.append(event)
        for event in loaded:
            event.wait()
        if self._failures:
            raise self._failures[0]

    def _run(self, engine: Engine, scratch: Path, loaded: threading.Event) -> None:
        try:
            scratch.mkdir(parents=True)
            make, ways = _streams_of(engine.name)
            streams = make(scratch, self._load.seed)
            try:
                loaded.set()
                self._go.wait()
                plan = arrivals(self._load, engine.name, ways)
                driver = Driver(_WithTenant(streams), plan, self._load.seconds, self._stop)
                self._drivers.append(driver)
                driver.run()
            finally:
                streams.close()
        except BaseException as error:
            self._failures.append(error)
            self._stop.set()
        finally:
            loaded.set()


class _WithTenant:
    """Opens streams on behalf of their tenant, which the baggage of the call names."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        tenancy = chosen_tenancy()
        self._keys = (*tenancy.tenant_keys[:1], *tenancy.session_keys[:1])

    def open(self, arrival: Arrival) -> Stream | None:
        within = context.get_current()
        for key, name in zip(self._keys, (arrival.tenant, f"{arrival.tenant}-session"), strict=False):
            within = baggage.set_baggage(key, name, within)
        token = context.attach(within)
        try:
            return self._streams.open(arrival)
        finally:
            context.detach(token)

    def release(self, arrival: Arrival, stream: Stream) -> None:
        self._streams.release(arrival, stream)

    def close(self) -> None:
        self._streams.close()


def _streams_of(engine: str) -> tuple[Callable[[Path, int], Streams], tuple[Way, ...]]:
    if engine == "mlx":
        from otel_specdecode.demo.load.streams import mlx

        return mlx.MLXStreams, mlx.WAYS
    from otel_specdecode.demo.load.streams import llama_cpp

    return llama_cpp.LlamaCppStreams, llama_cpp.WAYS
