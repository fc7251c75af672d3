"""One machine with one serving process, as a program of its own: its requests come in real time, from a fake engine.

What records them is the library, what is told of them goes over OTLP to a collector.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import random
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

from opentelemetry import baggage, context

from otel_specdecode.generation.record import NANOSECONDS
from otel_specdecode.generation.request import Request, Sampling
from otel_specdecode.host.host import Host
from otel_specdecode.host.machine import Machine as Hardware
from otel_specdecode.host.process_memory import LifetimePeaks, ProcessMemory
from otel_specdecode.host.sampler import PeakSampler
from otel_specdecode.host.state import HostState
from otel_specdecode.host.watcher import Watcher
from otel_specdecode.identity import manifest
from otel_specdecode.identity.engines import EngineIdentity
from otel_specdecode.identity.manifest import Pair
from otel_specdecode.identity.models import LoadedModel, ModelIdentity
from otel_specdecode.telemetry.host_metrics import Watch
from otel_specdecode.telemetry.names import Attr
from otel_specdecode.testing.fake import MILLISECOND, FakeClock, Script, accepted_rounds, fake_stream
from tests.e2e.services import Service
from tests.gameday.scenarios import GIB, ORDINARY, SCENARIOS, Conditions, host_state

LENGTH = 4
EXPORT_S = 10.0
AUTOREGRESSIVE_SHARE = 0.2
FAILING_SHARE = 0.01
MODEL = "target-7b"
MACHINE = Hardware(
    *("Mac15,9", "Apple M3 Max", "arm64", 14, 14, 10, 4, 36 * GIB, "macOS", "15.5", "24F74", "simulated-mac-36g")
)


@dataclass(frozen=True)
class Part:
    """Which machine this is, and what happens to it when.

    Attributes:
        since: When its conditions change, a Unix time in s; infinite if they do not.
        deploys: When its service starts anew, Unix times in s.
    """

    service: str
    node: str
    changed: Conditions
    since: float
    deploys: tuple[float, ...]
    endpoint: str
    seed: int

    def now(self) -> Conditions:
        """Return what holds now."""
        return self.changed if time.time() >= self.since else ORDINARY


class Machine:
    """Serves requests as they come."""

    def __init__(self, part: Part) -> None:
        """Start its service."""
        self._part = part
        self._random = random.Random(part.seed)
        self._instances = itertools.count(1)
        self._numbers = itertools.count()
        self._running: list[tuple[float, int, Iterator[float]]] = []
        self._swapped = 0
        self._stop = False
        manifest.engine_identity = lambda provider: EngineIdentity(provider, "mlx-lm", part.now().engine)
        self._watch = Watch(self._host())
        self._service = self._begin()

    def stop(self, *_: object) -> None:
        """Have run() come to its end."""
        self._stop = True

    def run(self, until: float) -> None:
        """Serve until a Unix time (s), or until stop()."""
        now = time.time()
        arrival, export = now, now + EXPORT_S
        deploys = [each for each in self._part.deploys if each > now]
        while now < until and not self._stop:
            if deploys and now >= deploys[0]:
                del deploys[0]
                self._end()
                self._service = self._begin()
            if now >= export:
                export += EXPORT_S
                self._export()
            if now >= arrival:
                arrival += self._random.expovariate(self._part.now().traffic)
                self._enter(now, self._request())
            self._go_on(now)
            time.sleep(max(0.0, min([arrival, export, *(due for due, _, _ in self._running[:1])]) - time.time()))
            now = time.time()
        self._end()

    def _enter(self, due: float, stream: Iterator[float]) -> None:
        heapq.heappush(self._running, (due, next(self._numbers), stream))

    def _go_on(self, now: float) -> None:
        """Have every request emit the tokens that are due."""
        while self._running and self._running[0][0] <= now:
            _, _, stream = heapq.heappop(self._running)
            due = next(stream, None)
            if due is not None:
                self._enter(due, stream)

    def _export(self) -> None:
        self._swapped += round(self._part.now().swapping * EXPORT_S)
        self._watch.host.watcher.read_once()
        self._service.export()

    def _end(self) -> None:
        """Serve what is there to its end, and stop the service in order."""
        for _, _, stream in self._running:
            for _ in stream:
                pass
        self._running.clear()
        self._service.close()

    def _begin(self) -> Service:
        """Begin a new instance of the service."""
        part, now = self._part, self._part.now()
        instance = f"{part.node}-{next(self._instances)}"
        made = Service(part.endpoint, "grpc", part.service, instance, self._watch, host_name=part.node)
        meter = made.meter_provider.get_meter("game-day")
        self._traffic = meter.create_histogram("http.server.request.duration", "s")
        target = LoadedModel(ModelIdentity(MODEL, fingerprint="a" * 64, quantization="4 bits, group 64"))
        draft = LoadedModel(ModelIdentity(now.draft, fingerprint=now.draft.encode().hex().ljust(64, "0")[:64]))
        self._pairs = {
            "speculative": Pair("mlx", "draft_model", target, draft),
            "autoregressive": Pair("mlx", "none", target),
        }
        self._draft = now.draft
        return made

    def _request(self) -> Iterator[float]:
        """Serve one request; gives the time (Unix, s) at which its next token is due."""
        now, rng = self._part.now(), self._random
        (tenant,) = rng.choices(list(now.tenants), list(now.tenants.values()))
        script = self._script(now, now.chances.get(tenant, now.chance))
        speculative = bool(script.rounds)
        mode = "speculative" if speculative else "autoregressive"
        request = Request(
            "chat",
            "mlx",
            MODEL,
            mode=mode,
            requested_mode=mode,
            method="draft_model" if speculative else "none",
            draft_model=self._draft if speculative else None,
            draft_max_tokens=LENGTH if speculative else 0,
            sampling=Sampling(max_tokens=256, temperature=now.temperature),
            pair=self._pairs[mode],
        )
        clock, began = FakeClock(), time.time()
        start, status = clock.now, 200
        token = context.attach(baggage.set_baggage(Attr.SPECDECODE_TENANT_ID, tenant))
        try:
            stream = fake_stream(self._service.listener, script, clock, request)
        finally:
            context.detach(token)
        try:
            for _ in stream:
                yield began + (clock.now - start) / NANOSECONDS
        except RuntimeError:
            status = 500
        self._traffic.record(
            (clock.now - start) / NANOSECONDS,
            {"http.request.method": "POST", "http.route": "/v1/chat/completions", "http.response.status_code": status},
        )

    def _script(self, now: Conditions, chance: float) -> Script:
        rng = self._random
        prompt = max(20, round(rng.lognormvariate(0, 0.3) * now.prompt))
        tokens = min(250, max(8, round(rng.lognormvariate(4.4, 0.5))))
        pace = now.pace * rng.lognormvariate(0, 0.03)
        timing = {
            "prompt_tokens": prompt,
            "prefill": round((60 + 0.4 * prompt) * now.pace * MILLISECOND),
            "target_step": round(26 * pace * MILLISECOND),
            "draft_step": round(3 * now.draft_pace * MILLISECOND),
        }
        failure = RuntimeError("the engine failed") if rng.random() < FAILING_SHARE else None
        if rng.random() < AUTOREGRESSIVE_SHARE:
            return Script(tokens=tokens, failure=failure, **timing)
        accepted = []
        while sum(accepted) + len(accepted) < tokens:
            accepted.append(next((place for place in range(LENGTH) if rng.random() > chance), LENGTH))
        return Script(rounds=accepted_rounds(accepted, LENGTH), failure=failure, **timing)

    def _host(self) -> Host:
        """Return the machine that the library is to read, which is not the one that the program runs on."""
        part = self._part

        def memory() -> ProcessMemory:
            return ProcessMemory(2 * GIB, round(part.now().footprint))

        def lifetime() -> LifetimePeaks:
            return LifetimePeaks(2 * GIB, round(part.now().footprint))

        sampler = PeakSampler(memory, lifetime, lambda: SimpleNamespace(read=memory, close=lambda: None))
        return Host(Watcher(lambda: self), lambda: MACHINE, memory, lifetime, sampler)

    def read(self) -> HostState:
        """Return the state of the machine."""
        return host_state(self._part.now(), self._swapped)


def main(arguments: Sequence[str] | None = None) -> None:
    """Be one machine."""
    parser = argparse.ArgumentParser(description="Be a machine that serves, and on which something may go wrong.")
    parser.add_argument("--service", required=True)
    parser.add_argument("--node", required=True)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--scenario", choices=list(SCENARIOS))
    parser.add_argument("--since", type=float, default=float("inf"))
    parser.add_argument("--deploy", type=float, action="append", default=[])
    parser.add_argument("--until", type=float, required=True)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    changed = SCENARIOS[given.scenario].changed if given.scenario else ORDINARY
    deploys = tuple(sorted(given.deploy))
    machine = Machine(Part(given.service, given.node, changed, given.since, deploys, given.endpoint, given.seed))
    signal.signal(signal.SIGTERM, machine.stop)
    machine.run(given.until)


if __name__ == "__main__":
    main()
