"""The engines' own web servers as processes: bare, and under `opentelemetry-instrument`."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

import psutil

from benchmarks.servers_load import ask

START_SECONDS, STOP_SECONDS, POLL_SECONDS = 120.0, 20.0, 0.1
SPANS_MILLISECONDS, METRICS_MILLISECONDS = 5_000, 60_000
"""How often spans and metrics are exported by default."""

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
SIGNS_OF_A_FAULT = ("generation is not affected", "Failed to export")

_SOURCES = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Variant:
    """How a server is started.

    Attributes:
        name: Of the row.
        instrumentations: Those that are on, by entry point; None: not under `opentelemetry-instrument` at all.
        exports: Whether anything leaves the process.
    """

    name: str
    instrumentations: tuple[str, ...] | None
    exports: bool = True


@dataclass(frozen=True, slots=True)
class Block:
    """What one block of requests took; two can be added."""

    seconds: float
    cpu_seconds: float
    requests: int
    tokens: int

    def __add__(self, other: Block) -> Block:
        return Block(
            self.seconds + other.seconds,
            self.cpu_seconds + other.cpu_seconds,
            self.requests + other.requests,
            self.tokens + other.tokens,
        )


@dataclass(frozen=True, slots=True)
class Server:
    """A server that is stopped while nobody asks it, so that all its work falls into its own blocks."""

    port: int
    process: psutil.Popen
    log: Path

    def block(self, bodies: Sequence[bytes], clients: int) -> Block:
        """Send one block of requests.

        Raises:
            RuntimeError: If a request is not answered with 200, or something was not recorded: that would cost
                nothing.
        """
        self.process.send_signal(signal.SIGCONT)
        try:
            before = _cpu_seconds(self.process)
            seconds, tokens = ask(self.port, bodies, clients)
            return Block(seconds, _cpu_seconds(self.process) - before, len(bodies), tokens)
        finally:
            self.process.send_signal(signal.SIGSTOP)

    def check(self) -> None:
        """Look for faults in what the server wrote.

        Raises:
            RuntimeError: If there are some.
        """
        log = self.log.read_text(errors="replace")
        for sign in SIGNS_OF_A_FAULT:
            if sign in log:
                raise RuntimeError(f"a server's log says: {sign}")


@dataclass(frozen=True, slots=True)
class Sink:
    """A receiver of telemetry."""

    port: int

    def check(self, variant: Variant, signals: Sequence[str]) -> None:
        """Look whether a variant sent signals, such as `traces`.

        Raises:
            RuntimeError: If it did not.
        """
        with urlopen(f"http://127.0.0.1:{self.port}/", timeout=STOP_SECONDS) as response:
            paths = json.load(response)
        for each in signals:
            if f"/{quote(variant.name)}/v1/{each}" not in paths:
                raise RuntimeError(f"the server of {variant.name} sent no {each}")


@contextmanager
def sink() -> Iterator[Sink]:
    """Run a receiver for the length of a block."""
    command = [sys.executable, "-m", "benchmarks.servers_sink"]
    with subprocess.Popen(command, cwd=_SOURCES, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Sink(int(process.stdout.readline()))
        finally:
            process.kill()


@contextmanager
def servers(
    variants: Sequence[Variant], command: Sequence[str], folder: Path, receiver: Sink
) -> Iterator[dict[str, Server]]:
    """Run a server for each variant, all started with the same options, for the length of a block.

    Args:
        variants: How they are started.
        command: Without the option for the port.
        folder: Where their output goes.
        receiver: Where telemetry goes.

    Raises:
        RuntimeError: If one does not start; the message ends with the last of its log.
    """
    with ExitStack() as stack:
        found = {}
        for variant in variants:
            launcher = [] if variant.instrumentations is None else [str(script("opentelemetry-instrument"))]
            server = _start(
                [*launcher, *command], _environment(variant, receiver, len(variants)), folder / variant.name
            )
            stack.callback(_end, server.process)
            found[variant.name] = server
        for server in found.values():
            _wait(server)
        yield found


def _start(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Server:
    port = _free_port()
    with log.open("wb") as output:
        process = psutil.Popen([*command, "--port", str(port)], env=environment, stdout=output, stderr=output)
    return Server(port, process, log)


def _end(process: psutil.Popen) -> None:
    """End a server as service managers do; it exports then what it still has."""
    if process.poll() is None:
        process.terminate()
        process.send_signal(signal.SIGCONT)
    try:
        process.wait(STOP_SECONDS)
    except psutil.TimeoutExpired:
        process.kill()
        process.wait()


def _environment(variant: Variant, receiver: Sink, variants: int) -> dict[str, str]:
    """Return the environment of a server.

    It serves only in its turns, so its exports come as many times later as there are variants: in the time that it
    runs as often as by default.
    """
    clean = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")} | ONE_THREAD
    if variant.instrumentations is None:
        return clean
    others = {each.name for each in entry_points(group="opentelemetry_instrumentor")} - {*variant.instrumentations}
    clean["OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"] = ",".join(sorted(others))
    if not variant.exports:
        return clean | {f"OTEL_{signal_}_EXPORTER": "none" for signal_ in ("TRACES", "METRICS", "LOGS")}
    return clean | {
        "OTEL_SERVICE_NAME": "chat",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{receiver.port}/{quote(variant.name)}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_BSP_SCHEDULE_DELAY": str(SPANS_MILLISECONDS * variants),
        "OTEL_METRIC_EXPORT_INTERVAL": str(METRICS_MILLISECONDS * variants),
    }


def _cpu_seconds(process: psutil.Popen) -> float:
    """Return the CPU time of all threads; on Linux by the clock of the process, which has no ticks."""
    if sys.platform == "linux":
        return time.clock_gettime(~process.pid << 3 | 2)  # what clock_getcpuclockid makes of a process
    times = process.cpu_times()
    return float(times.user + times.system)


def _wait(server: Server) -> None:
    """Wait until a server listens, then stop it."""
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and server.process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", server.port), timeout=1).close()
        except OSError:
            time.sleep(POLL_SECONDS)
        else:
            server.process.send_signal(signal.SIGSTOP)
            return
    raise RuntimeError("a server did not start: " + server.log.read_text(errors="replace")[-2_000:])


def script(name: str) -> Path:
    """Return a program that was installed beside this Python."""
    return Path(sys.executable).parent / name


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
