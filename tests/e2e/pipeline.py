"""The real programs between a service and a screen: the collector with a shipped configuration, and Prometheus."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from tests.programs import ROOT

T = TypeVar("T")

CONFIGURATIONS = ROOT / "collector"
START_S = 60.0
STOP_S = 30.0
POLL_S = 0.05

PORTS = ("GRPC", "HTTP", "HEALTH", "TELEMETRY", "WRITE")
"""Of a collector, as its configuration names them: OTELCOL_GRPC_PORT and so on."""

COLLECTOR_ABSENT = (
    "needs the collector: scripts/build_collector.py builds it, and OTEL_SPECDECODE_COLLECTOR holds its path"
)
PROMETHEUS_ABSENT = "needs the program prometheus, on PATH or in OTEL_SPECDECODE_PROMETHEUS"


def collector_program() -> str:
    """Return the path of the collector; skip the test where there is none."""
    return os.environ.get("OTEL_SPECDECODE_COLLECTOR") or pytest.skip(COLLECTOR_ABSENT)


def prometheus_program() -> str:
    """Return the path of Prometheus; skip the test where there is none."""
    found = os.environ.get("OTEL_SPECDECODE_PROMETHEUS") or shutil.which("prometheus")
    return found or pytest.skip(PROMETHEUS_ABSENT)


@dataclass
class Program:
    """A program that can be ended, gently or not, and started again as it was.

    Attributes:
        alive: Address that answers with 200 while the program works.
        log: All that it ever wrote.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    alive: str
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start and wait until it works.

        Raises:
            RuntimeError: It does not; the message ends with the last of its log.
        """
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command, env=dict(self.environment), stdout=output, stderr=subprocess.STDOUT, cwd=self.log.parent
            )
        if not eventually(lambda: self.process and (self.process.poll() is not None or self.works()), START_S):
            raise RuntimeError(f"{self.command[0]} does not answer: " + self.said()[-3000:])
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.command[0]} ended: " + self.said()[-3000:])

    def works(self) -> bool:
        """Whether it answers."""
        try:
            with urlopen(self.alive, timeout=5) as response:
                return bool(response.status == 200)
        except (URLError, OSError):
            return False

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; return the exit code.

        Raises:
            subprocess.TimeoutExpired: It does not end.
        """
        assert self.process
        self.process.send_signal(number)
        return self.process.wait(STOP_S)

    def clean_up(self) -> None:
        """End it whatever state it is in."""
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def said(self) -> str:
        """Return what it wrote so far."""
        return self.log.read_text(errors="replace")


@dataclass
class Collector(Program):
    """A running collector.

    Attributes:
        ports: By their names in `PORTS`.
    """

    ports: Mapping[str, int] = field(default_factory=dict)

    @property
    def grpc(self) -> str:
        """Endpoint of OTLP over gRPC."""
        return f"http://127.0.0.1:{self.ports['GRPC']}"

    @property
    def http(self) -> str:
        """Endpoint of OTLP over HTTP."""
        return f"http://127.0.0.1:{self.ports['HTTP']}"

    def counter(self, name: str, component: str = "") -> float:
        """Return one of the collector's own counters, 0 if there is none.

        Args:
            name: As the collector itself shows it.
            component: The receiver, processor or exporter whose it is; the sum over all if empty.
        """
        with urlopen(f"http://127.0.0.1:{self.ports['TELEMETRY']}/metrics", timeout=10) as response:
            lines = response.read().decode().splitlines()
        found = (line for line in lines if re.split("[{ ]", line, maxsplit=1)[0] == name)
        return sum(float(line.rsplit(" ", 1)[1]) for line in found if not component or f'"{component}"' in line)


@dataclass
class Prometheus(Program):
    """A running Prometheus.

    Attributes:
        url: Its base address.
    """

    url: str = ""

    @property
    def write_url(self) -> str:
        """Where remote write goes."""
        return f"{self.url}/api/v1/write"

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Return labels and value of each series that an instant query finds now.

        Raises:
            ValueError: Prometheus refuses the query.
        """
        return [(each["metric"], float(each["value"][1])) for each in self._ask("query", query=expression)["result"]]

    def total(self, expression: str) -> float | None:
        """Return the sum over all series of an instant query, None if there are none."""
        found = self.query(expression)
        return sum(value for _, value in found) if found else None

    def names(self) -> set[str]:
        """Return the names of all metrics."""
        return set(self._ask("label/__name__/values"))

    def exemplars(self, selector: str, start: float, end: float) -> list[dict[str, str]]:
        """Return the labels of each exemplar between two Unix times in s."""
        found = self._ask("query_exemplars", query=selector, start=str(start), end=str(end))
        return [exemplar["labels"] for series in found for exemplar in series["exemplars"]]

    def _ask(self, what: str, **parameters: str) -> Any:
        try:
            with urlopen(f"{self.url}/api/v1/{what}?{urlencode(parameters)}", timeout=30) as response:
                return json.load(response)["data"]
        except HTTPError as error:
            raise ValueError(error.read().decode()) from None


@contextmanager
def collector(folder: Path, *configurations: str, options: Sequence[str] = (), **variables: str) -> Iterator[Collector]:
    """Run a collector for the length of a block.

    Args:
        folder: For what it stores, and its log.
        configurations: Names of files of the folder `collector`, or paths.
        options: Further options of the program.
        variables: Of the environment, such as OTELCOL_TRACES_URL.
    """
    program = collector_program()
    folder.mkdir(parents=True, exist_ok=True)
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    files = [part for name in configurations for part in ("--config", str(CONFIGURATIONS / name))]
    environment = {f"OTELCOL_{name}_PORT": str(port) for name, port in ports.items()}
    made = Collector(
        command=[program, *files, *options],
        environment={**_plain(), **environment, "OTELCOL_STORAGE": str(folder / "storage"), **variables},
        alive=f"http://127.0.0.1:{ports['HEALTH']}/",
        log=folder / "collector.log",
        ports=ports,
    )
    with _running(made):
        yield made


@contextmanager
def prometheus(
    folder: Path, configuration: str = "", options: Sequence[str] = (), port: int = 0
) -> Iterator[Prometheus]:
    """Run a Prometheus that takes remote write, and scrapes nothing unless told to, for the length of a block.

    Args:
        folder: For its data, and its log.
        configuration: Its configuration, in YAML.
        options: Further options of the program.
        port: To listen on; 0 for one that is free.
    """
    program = prometheus_program()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prometheus.yml").write_text(configuration)
    address = f"127.0.0.1:{port or free_ports(1)[0]}"
    flags = {
        "config.file": folder / "prometheus.yml",
        "storage.tsdb.path": folder / "data",
        "web.listen-address": address,
        "enable-feature": "exemplar-storage",
    }
    command = [program, *(f"--{name}={value}" for name, value in flags.items()), "--web.enable-remote-write-receiver"]
    url = f"http://{address}"
    made = Prometheus([*command, *options], _plain(), f"{url}/-/ready", folder / "prometheus.log", url=url)
    with _running(made):
        yield made


def eventually(look: Callable[[], T], seconds: float = 30.0) -> T:
    """Return what `look` finds as soon as that is true, or what it finds last when the time (s) is over."""
    deadline = time.monotonic() + seconds
    while not (found := look()) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return found


def free_ports(count: int) -> list[int]:
    """Return ports that nothing listens on, on loopback."""
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


@contextmanager
def _running(program: Program) -> Iterator[None]:
    try:
        program.start()
        yield
    finally:
        program.clean_up()


def _plain() -> dict[str, str]:
    """This process's environment without what would configure OpenTelemetry or a collector."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "OTELCOL_"))}
