"""The real programs between a service and a screen: the collector with a shipped configuration, and Prometheus."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import HTTPError
from urllib.parse import urlencode

import pytest

from collector import programs
from collector.finding import COLLECTOR_VARIABLE, find_prometheus
from collector.programs import CONFIGURATIONS, DIRECT, LOOPBACK, POLL_S, PORTS, STOP_S
from tests.otlp_receiver import Received, otlp_receiver

__all__ = [
    "CONFIGURATIONS",
    "PORTS",
    "Collector",
    "Prometheus",
    "Stack",
    "agent_stack",
    "collector",
    "collector_program",
    "eventually",
    "free_ports",
    "prometheus",
    "prometheus_program",
]

T = TypeVar("T")

COLLECTOR_ABSENT = (
    "needs the collector: scripts/build_collector.py builds it, and OTEL_SPECDECODE_COLLECTOR holds its path"
)
PROMETHEUS_ABSENT = "needs the program prometheus, on PATH or in OTEL_SPECDECODE_PROMETHEUS"


def collector_program() -> str:
    """Return the path of the collector; skip the test where there is none."""
    return os.environ.get(COLLECTOR_VARIABLE) or pytest.skip(COLLECTOR_ABSENT)


def prometheus_program() -> str:
    """Return the path of Prometheus; skip the test where there is none."""
    return find_prometheus(os.environ) or pytest.skip(PROMETHEUS_ABSENT)


class _Endable(programs.Program):
    """A program that a test ends, gently or not."""

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; return the exit code.

        Raises:
            ProgramError: It was never started.
            subprocess.TimeoutExpired: It does not end.
        """
        if self.process is None:
            raise programs.ProgramError(f"{self.name} was never started")
        self.process.send_signal(number)
        return self.process.wait(STOP_S)


@dataclass
class Collector(_Endable, programs.Collector):
    """A running collector, with its endpoints and its own counters."""

    @property
    def grpc(self) -> str:
        """Endpoint of OTLP over gRPC."""
        return f"http://{LOOPBACK}:{self.ports['GRPC']}"

    @property
    def http(self) -> str:
        """Endpoint of OTLP over HTTP."""
        return f"http://{LOOPBACK}:{self.ports['HTTP']}"

    def counter(self, name: str, component: str = "") -> float:
        """Return one of the collector's own counters, 0 if there is none.

        Args:
            name: As the collector itself shows it.
            component: The receiver, processor or exporter whose it is; the sum over all if empty.
        """
        with DIRECT.open(f"http://127.0.0.1:{self.ports['TELEMETRY']}/metrics", timeout=10) as response:
            lines = response.read().decode().splitlines()
        found = (line for line in lines if re.split("[{ ]", line, maxsplit=1)[0] == name)
        return sum(float(line.rsplit(" ", 1)[1]) for line in found if not component or f'"{component}"' in line)


@dataclass
class Prometheus(_Endable, programs.Prometheus):
    """A running Prometheus, with what it knows."""

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Return labels and value of each series that an instant query finds now.

        Raises:
            ValueError: Prometheus refuses the query.
        """
        return [(each["metric"], float(each["value"][1])) for each in self._ask("query", query=expression)["result"]]

    def query_range(self, expression: str, start: float, end: float, step: float) -> list[list[tuple[float, float]]]:
        """Return times and values of each series that a query finds between two Unix times, each `step` s.

        Raises:
            ValueError: Prometheus refuses the query.
        """
        found = self._ask("query_range", query=expression, start=str(start), end=str(end), step=str(step))["result"]
        return [[(float(at), float(value)) for at, value in each["values"]] for each in found]

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
            with DIRECT.open(f"{self.url}/api/v1/{what}?{urlencode(parameters)}", timeout=30) as response:
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
    made = Collector.of(program, folder, configurations, ports, {**plain(), **variables}, options)
    with running(made):
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
    written = folder / "prometheus.yml"
    written.write_text(configuration)
    made = Prometheus.of(program, folder, written, port or free_ports(1)[0], plain(), options)
    with running(made):
        yield made


@dataclass(frozen=True)
class Stack:
    """Everything behind a service: the agent of a node, Prometheus, and a store of spans and events."""

    agent: Collector
    database: Prometheus
    stored: Received


@contextmanager
def agent_stack(folder: Path) -> Iterator[Stack]:
    """Run the agent as it is shipped, with what it sends to, for the length of a block."""
    with (
        prometheus(folder / "prometheus") as database,
        otlp_receiver() as (store, stored),
        collector(
            folder,
            "agent.yaml",
            OTELCOL_REMOTE_WRITE_URL=database.write_url,
            OTELCOL_TRACES_URL=store,
            OTELCOL_LOGS_URL=store,
        ) as agent,
    ):
        yield Stack(agent, database, stored)


def plain() -> Mapping[str, str]:
    """Return this process's environment without what would configure OpenTelemetry or a collector."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "OTELCOL_"))}


def free_ports(count: int) -> list[int]:
    """Return ports that nothing listens on, on loopback."""
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((LOOPBACK, 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def eventually(look: Callable[[], T], seconds: float = 30.0) -> T:
    """Return what `look` finds as soon as that is true, or what it finds last when the time (s) is over."""
    deadline = time.monotonic() + seconds
    while not (found := look()) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return found


@contextmanager
def running(program: programs.Program) -> Iterator[None]:
    """Run a program for the length of a block.

    Raises:
        ProgramError: It does not work.
    """
    try:
        program.start()
        yield
    finally:
        program.clean_up()
