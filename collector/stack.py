"""Runs the collector and Prometheus as plain programs of this machine, without containers.

The collector has the shipped agent.yaml, Prometheus the shipped rules. Everything listens on loopback, and all data is
in a temporary folder that goes with the programs. Ctrl-C or SIGTERM ends it; if one program dies, so does the other.

    python -m collector.stack
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from collector.finding import BUILDS, COLLECTOR_VARIABLE, PROMETHEUS_VARIABLE, find_collector, find_prometheus
from collector.programs import (
    CONFIGURATIONS,
    LOOPBACK,
    PORTS,
    Collector,
    Program,
    ProgramError,
    Prometheus,
    taken,
)

PROMETHEUS_CONFIGURATION = CONFIGURATIONS / "prometheus" / "prometheus.yaml"
LOOK_S = 0.5
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

COLLECTOR_ABSENT = """\
The collector was not found. Build it, which takes some minutes and needs Go:
    python scripts/build_collector.py {folder}
or put otelcol-specdecode or otelcol-contrib, of the version that collector/builder.yaml names, on PATH,
or its path into {variable}."""

PROMETHEUS_ABSENT = """\
Prometheus was not found. Install it (2.39 or newer):
    brew install prometheus          on macOS
    apt-get install prometheus       on Debian and Ubuntu
or put its path into {variable}."""


@dataclass(frozen=True)
class Port:
    """A port that somebody listens on.

    Attributes:
        variable: Of the environment; it says another one.
        default: Without that.
        what: Whose it is.
    """

    variable: str
    default: int
    what: str

    def chosen(self, environment: Mapping[str, str]) -> int:
        """Return the port to use.

        Raises:
            ProgramError: The variable holds no port.
        """
        text = environment.get(self.variable) or str(self.default)
        if not re.fullmatch("[0-9]{1,5}", text) or not 0 < int(text) < 65536:
            raise ProgramError(f"{self.variable} is not a port: {text[:20]}")
        return int(text)


COLLECTOR_PORTS = (
    Port("OTELCOL_GRPC_PORT", 4317, "OTLP over gRPC"),
    Port("OTELCOL_HTTP_PORT", 4318, "OTLP over HTTP"),
    Port("OTELCOL_HEALTH_PORT", 13133, "the collector's health check"),
    Port("OTELCOL_TELEMETRY_PORT", 8888, "the collector's own metrics"),
    Port("OTELCOL_WRITE_PORT", 4319, "the collector's way to itself"),
)
PROMETHEUS_PORT = Port("PROMETHEUS_PORT", 9090, "Prometheus")


class Ending:
    """Whether somebody has asked for the end, and how."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._again = threading.Event()
        self.number: int = signal.SIGTERM

    def listen(self) -> Callable[[], None]:
        """Take signals from now on; return what gives them back to whoever had them."""
        # Under nohup the end of the terminal is not meant to be the end of this.
        hung_up = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN
        taken_over = [number for number in ENDINGS if hung_up or number != signal.SIGHUP]
        before = {number: signal.signal(number, self._ask) for number in taken_over}

        def give_back() -> None:
            for number, handler in before.items():
                signal.signal(number, handler)

        return give_back

    def asked(self) -> bool:
        """Whether a signal came."""
        return self._asked.is_set()

    def hurried(self) -> bool:
        """Whether Ctrl-C came once the end had been asked for."""
        return self._again.is_set()

    def wait(self, seconds: float) -> bool:
        """Return whether a signal came, at the latest when the time (s) is over."""
        return self._asked.wait(seconds)

    def _ask(self, number: int, _frame: FrameType | None) -> None:
        if not self._asked.is_set():
            self.number = number
            self._asked.set()
        elif number == signal.SIGINT:
            self._again.set()


def main(arguments: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Run the stack until it is asked to end; return the exit code: 130 after Ctrl-C, 1 after an error."""
    parser = argparse.ArgumentParser(
        prog="python -m collector.stack",
        description=__doc__,
        epilog="collector/README.md has the variables.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args(arguments)
    ending = Ending()
    give_back = ending.listen()
    try:
        with tempfile.TemporaryDirectory(prefix="otel-specdecode-stack-") as folder:
            _run(Path(folder), environment, ending)
    except ProgramError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        give_back()
    return 130 if ending.number == signal.SIGINT else 0


def _run(folder: Path, environment: Mapping[str, str], ending: Ending) -> None:
    database, agent = _programs(folder, environment)
    try:
        for program in (database, agent):
            program.start(ending.asked)
            if ending.asked():
                return
        _say(_welcome(agent, database, folder, environment))
        _watch((database, agent), ending)
        _say("Stopping.")
    finally:
        # The collector first: it hands on what it has.
        for program in (agent, database):
            program.clean_up(lambda text: _say(f"{text} Ctrl-C kills it."), ending.hurried)


def _say(text: str) -> None:
    """Print, if anybody still reads it."""
    try:
        print(text, flush=True)
    except OSError:
        # What is still held back would fail again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _programs(folder: Path, environment: Mapping[str, str]) -> tuple[Prometheus, Collector]:
    found = find_collector(environment), find_prometheus(environment)
    collector, prometheus = found
    if collector is None or prometheus is None:
        lacking = [
            COLLECTOR_ABSENT.format(folder=BUILDS, variable=COLLECTOR_VARIABLE),
            PROMETHEUS_ABSENT.format(variable=PROMETHEUS_VARIABLE),
        ]
        raise ProgramError("\n\n".join(text for text, path in zip(lacking, found, strict=True) if path is None))
    *ports, port = _free(environment)
    database = Prometheus.of(prometheus, folder, PROMETHEUS_CONFIGURATION, port, environment)
    agent = Collector.of(
        collector,
        folder,
        ["agent.yaml"],
        dict(zip(PORTS, ports, strict=True)),
        {
            **environment,
            "OTELCOL_LISTEN": LOOPBACK,
            "OTELCOL_REMOTE_WRITE_URL": database.write_url,
            "OTELCOL_STORAGE": str(folder / "storage"),
        },
        _without_stores(environment),
    )
    return database, agent


def _free(environment: Mapping[str, str]) -> list[int]:
    """Return the ports of the collector and, last, of Prometheus.

    Raises:
        ProgramError: Some of them cannot be had; the message names them all.
    """
    wanted = [(port, port.chosen(environment)) for port in (*COLLECTOR_PORTS, PROMETHEUS_PORT)]
    numbers = [number for _, number in wanted]
    wrong = [
        f"Port {number}, for {port.what}, is {'wanted twice' if numbers.count(number) > 1 else 'taken'}: "
        f"end what has it, or set {port.variable} to another."
        for port, number in wanted
        if numbers.count(number) > 1 or taken(number)
    ]
    if wrong:
        raise ProgramError("\n".join(wrong))
    return numbers


def _without_stores(environment: Mapping[str, str]) -> list[str]:
    """Return options that drop spans, or log records, where no store for them is named."""
    homeless = [signal_ for signal_ in ("traces", "logs") if not environment.get(f"OTELCOL_{signal_.upper()}_URL")]
    dropped = [f"--set=service::pipelines::{signal_}::exporters=[nop]" for signal_ in homeless]
    return ["--set=exporters::nop=", *dropped] if homeless else []


def _watch(programs: Sequence[Program], ending: Ending) -> None:
    """Return when the end is asked for.

    Raises:
        ProgramError: A program ended by itself.
    """
    while not ending.wait(LOOK_S):
        for program in programs:
            if program.process and program.ended():
                how = f"{program.name} ended by itself, with {program.process.returncode}"
                raise ProgramError(f"{how}; it said:\n{program.last_words()}")


def _welcome(agent: Collector, database: Prometheus, folder: Path, environment: Mapping[str, str]) -> str:
    endpoint = f"http://localhost:{agent.ports['GRPC']}"
    stores = {
        name: environment.get(f"OTELCOL_{name.upper()}_URL") or f"dropped; OTELCOL_{name.upper()}_URL names a store"
        for name in ("traces", "logs")
    }
    return f"""\
OTLP         {endpoint} (gRPC), http://localhost:{agent.ports["HTTP"]} (HTTP)
Prometheus   {database.url}
Traces       {stores["traces"]}
Logs         {stores["logs"]}
Their logs   {folder}
Next, in another terminal:
    OTEL_EXPORTER_OTLP_ENDPOINT={endpoint} make demo-load
Ctrl-C ends it, and removes what it stored."""


if __name__ == "__main__":
    sys.exit(main())
