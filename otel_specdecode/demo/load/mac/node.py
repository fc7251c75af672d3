"""The Mac as a service of its own, beside the real one in this process."""

from __future__ import annotations

import threading
import uuid

from opentelemetry.sdk.resources import HOST_NAME, SERVICE_INSTANCE_ID, SERVICE_NAME, Resource

from otel_specdecode.demo.load.mac.generations import run
from otel_specdecode.demo.load.mac.host import Replay
from otel_specdecode.demo.load.outlet import Outlet
from otel_specdecode.engines.mlx_lm.calls import PROVIDER
from otel_specdecode.telemetry.host_metrics import Watch
from otel_specdecode.telemetry.listener import Listener
from otel_specdecode.telemetry.resource import ProcessResource, machine_attributes

SERVICE = "demo-load-synthetic"
HOST = "synthetic-mac"

_STREAMS = 2


class Node:
    """A Mac that goes through its states while it generates.

    Attributes:
        replay: Its readings.
        outlet: Where its telemetry goes.
    """

    def __init__(self, seconds: float, seed: int, endpoint: str) -> None:
        """Begin.

        Args:
            seconds: How long all states take.
            seed: Of what it generates.
            endpoint: Where it goes if the environment does not say.
        """
        self.replay = Replay(seconds)
        self.outlet = Outlet(_resource(self.replay), endpoint)
        self._stop = threading.Event()
        watch = Watch(self.replay.host())
        watch.read_allocator(PROVIDER, self.replay.allocator)
        self._listener = Listener(*self.outlet.providers, watch=watch)
        self._threads = [
            threading.Thread(
                target=run,
                args=(self._listener, self._slower, seed + number, self._stop),
                name=f"demo-load-synthetic-{number}",
                daemon=True,
            )
            for number in range(_STREAMS)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End its requests; what they told is not sent yet."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def close(self) -> bool:
        """Send what is left, and end.

        Returns:
            Whether every export was taken.
        """
        taken = self.outlet.finish()
        self._listener.close()
        return taken

    def _slower(self) -> float:
        return float(self.replay.moment().values["slower"])


def _resource(replay: Replay) -> Resource:
    """Say that it is synthetic, whatever the environment says of the real service."""
    machine = machine_attributes(replay.machine(), "darwin")
    own = {SERVICE_NAME: SERVICE, SERVICE_INSTANCE_ID: str(uuid.uuid4()), HOST_NAME: HOST}
    return ProcessResource(Resource.create({**machine, **own}).attributes)
