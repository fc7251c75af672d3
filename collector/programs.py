"""The collector and Prometheus as programs of this machine: started, watched and ended."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import ProxyHandler, build_opener

if TYPE_CHECKING:
    from typing_extensions import Self

CONFIGURATIONS = Path(__file__).parent
LOOPBACK = "127.0.0.1"
START_S = 60.0
STOP_S = 30.0
SLOW_S = 2.0
POLL_S = 0.05

DIRECT = build_opener(ProxyHandler({}))
"""Opens addresses of this machine: a proxy that the environment names would look for them on its own machine."""

PORTS = ("GRPC", "HTTP", "HEALTH", "TELEMETRY", "WRITE")
"""Of a collector, as its configuration names them: OTELCOL_GRPC_PORT and so on."""


class ProgramError(Exception):
    """A program is not there, does not start, or has ended; the message says what to do or what it said last."""


def _silent(_text: str) -> None:
    """Tell nobody."""


@dataclass
class Program:
    """A program that can be started, ended, and started again as it was.

    It is no member of the terminal's process group: Ctrl-C reaches it through whoever started it, and in its order.

    Attributes:
        name: What messages call it.
        alive: Address that answers with 200 while the program works.
        log: All that it ever wrote.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    alive: str
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self, given_up: Callable[[], object] = lambda: False) -> None:
        """Start and wait until it works.

        Args:
            given_up: Once it says so, there is no more waiting, and no error.

        Raises:
            ProgramError: It does not work; the message ends with the last of its log.
        """
        try:
            with self.log.open("ab") as output:
                self.process = subprocess.Popen(
                    self.command,
                    env=dict(self.environment),
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=self.log.parent,
                    start_new_session=True,
                )
        except OSError as error:
            raise ProgramError(f"{self.name} cannot be started: {error.strerror}") from None
        deadline = time.monotonic() + START_S
        while not (given_up() or self.ended() or self.works()):
            if time.monotonic() > deadline:
                raise ProgramError(f"{self.name} does not answer; it said:\n{self.last_words()}")
            time.sleep(POLL_S)
        if self.ended() and not given_up():
            raise ProgramError(f"{self.name} ended; it said:\n{self.last_words()}")

    def works(self) -> bool:
        """Whether it answers."""
        try:
            with DIRECT.open(self.alive, timeout=5) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    def ended(self) -> bool:
        """Whether it was started and has ended."""
        return self.process is not None and self.process.poll() is not None

    def clean_up(self, say: Callable[[str], object] = _silent, hurried: Callable[[], object] = lambda: False) -> None:
        """End it whatever state it is in.

        Args:
            say: Is told once if that takes long.
            hurried: Once it says so, the program is killed.
        """
        if self.process is None or self.ended():
            return
        self.process.terminate()
        begun = time.monotonic()
        while not self.ended():
            waited = time.monotonic() - begun
            if hurried() or waited > STOP_S:
                self.process.kill()
                self.process.wait()
            elif waited > SLOW_S:
                say(f"Waiting for {self.name} to end ...")
                say = _silent
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(POLL_S)

    def said(self) -> str:
        """Return what it wrote so far."""
        return self.log.read_text(errors="replace")

    def last_words(self, lines: int = 15) -> str:
        """Return the last lines that it wrote, each cut where it is very long."""
        return "\n".join(line[:500] for line in self.said().splitlines()[-lines:])


@dataclass
class Collector(Program):
    """A collector.

    Attributes:
        ports: By their names in `PORTS`.
    """

    ports: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        program: str,
        folder: Path,
        configurations: Sequence[str],
        ports: Mapping[str, int],
        environment: Mapping[str, str],
        options: Sequence[str] = (),
    ) -> Self:
        """Return a collector that is not started yet.

        Args:
            program: Its path.
            folder: For what it stores, and its log.
            configurations: Names of files beside this one, or paths.
            ports: By their names in `PORTS`, all of them.
            environment: All of it but ports and storage; it may name a storage of its own.
            options: Further options of the program.
        """
        files = [part for name in configurations for part in ("--config", str(CONFIGURATIONS / name))]
        made = {f"OTELCOL_{name}_PORT": str(port) for name, port in ports.items()}
        return cls(
            name="the collector",
            command=[program, *files, *options],
            environment={"OTELCOL_STORAGE": str(folder / "storage"), **environment, **made},
            alive=f"http://{LOOPBACK}:{ports['HEALTH']}/",
            log=folder / "collector.log",
            ports=ports,
        )


@dataclass
class Prometheus(Program):
    """A Prometheus that takes remote write and exemplars.

    Attributes:
        url: Its base address.
    """

    url: str = ""

    @classmethod
    def of(
        cls,
        program: str,
        folder: Path,
        configuration: Path,
        port: int,
        environment: Mapping[str, str],
        options: Sequence[str] = (),
    ) -> Self:
        """Return a Prometheus that is not started yet.

        Args:
            program: Its path.
            folder: For its data, and its log.
            configuration: Its configuration.
            port: To listen on, on loopback.
            environment: All of it.
            options: Further options of the program.
        """
        url = f"http://{LOOPBACK}:{port}"
        flags = {
            "config.file": configuration,
            "storage.tsdb.path": folder / "data",
            "web.listen-address": f"{LOOPBACK}:{port}",
            "enable-feature": "exemplar-storage",
        }
        switches = (*(f"--{name}={value}" for name, value in flags.items()), "--web.enable-remote-write-receiver")
        return cls(
            name="Prometheus",
            command=[program, *switches, *options],
            environment=environment,
            alive=f"{url}/-/ready",
            log=folder / "prometheus.log",
            url=url,
        )

    @property
    def write_url(self) -> str:
        """Where remote write goes."""
        return f"{self.url}/api/v1/write"


def taken(port: int) -> bool:
    """Return whether something listens on a port of loopback, or holds it so that nothing else can."""
    with socket.socket() as caller:
        caller.settimeout(1)
        # Asked first: macOS lets a program bind loopback beside one that listens on all interfaces.
        if caller.connect_ex((LOOPBACK, port)) == 0:
            return True
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return True
    return False
