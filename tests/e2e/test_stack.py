"""The stack without containers: it starts, takes what services send, and leaves nothing behind however it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc", reason="needs the [otlp] extra")

from collector.stack import COLLECTOR_PORTS, PROMETHEUS_PORT
from otel_specdecode.testing.fake import WORKED_EXAMPLE, Script, accepted_rounds
from tests.e2e.pipeline import (
    PORTS,
    Prometheus,
    collector_program,
    eventually,
    free_ports,
    plain,
    prometheus_program,
)
from tests.e2e.services import service
from tests.otlp_receiver import otlp_receiver
from tests.programs import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.source]

VARIABLES = [port.variable for port in (*COLLECTOR_PORTS, PROMETHEUS_PORT)]
WORKED = Script(rounds=accepted_rounds(WORKED_EXAMPLE, 4))
STOP_S = 60


@dataclass
class Stack:
    """A stack in a process of its own.

    Attributes:
        ports: By the variables that chose them.
        said: Lines of its stdout, as far as they were read.
        rest: Where its data is, beside what others leave there.
        seen: What it ran when a test asked.
    """

    process: subprocess.Popen[str]
    ports: Mapping[str, str]
    rest: Path
    said: list[str] = field(default_factory=list)
    seen: dict[str, psutil.Process] = field(default_factory=dict)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.ports['OTELCOL_GRPC_PORT']}"

    @property
    def database(self) -> Prometheus:
        url = f"http://127.0.0.1:{self.ports['PROMETHEUS_PORT']}"
        return Prometheus("Prometheus", [], {}, url, self.rest / "log", url=url)

    def programs(self) -> dict[str, psutil.Process]:
        """Return what it runs, by name."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        self.seen = {Path(each.exe()).name: each for each in children}
        return self.seen

    def wait(self) -> tuple[int, str]:
        """Wait for its end; return the exit code and what it wrote to stderr."""
        said, errors = self.process.communicate(timeout=STOP_S)
        self.said += (said or "").splitlines()
        return self.process.returncode, errors


def variables(rest: Path, **more: str) -> dict[str, str]:
    """Return an environment in which the stack finds its programs and ports of its own."""
    ports = dict(zip(VARIABLES, map(str, free_ports(len(VARIABLES))), strict=True))
    found = {
        "OTEL_SPECDECODE_COLLECTOR": collector_program(),
        "OTEL_SPECDECODE_PROMETHEUS": prometheus_program(),
        "TMPDIR": str(rest),
    }
    return {**plain(), **ports, **found, **more}


@contextmanager
def begun(rest: Path, prefix: Sequence[str] = (), **more: str) -> Iterator[Stack]:
    environment = variables(rest, **more)
    process = subprocess.Popen(
        [*prefix, sys.executable, "-m", "collector.stack"],
        env=environment,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a group of its own, as in a terminal
    )
    made = Stack(process, {name: environment[name] for name in VARIABLES}, rest)
    try:
        yield made
    finally:
        if process.poll() is None:
            process.terminate()
            process.communicate(timeout=STOP_S)
        for orphan in filter(psutil.Process.is_running, made.seen.values()):
            orphan.kill()


@contextmanager
def stack(rest: Path, prefix: Sequence[str] = (), **more: str) -> Iterator[Stack]:
    """Run the stack for the length of a block, which begins once it has said that it is there."""
    with begun(rest, prefix, **more) as made:
        assert made.process.stdout
        for line in made.process.stdout:
            made.said.append(line)
            if "Ctrl-C" in line:
                break
        else:
            pytest.fail(made.wait()[1], pytrace=False)
        yield made


def ended(programs: Mapping[str, psutil.Process]) -> bool:
    return not any(each.is_running() for each in programs.values())


def refused(rest: Path, **more: str) -> str:
    """Return why the stack does not start, once it has ended and left nothing."""
    with begun(rest, **more) as running:
        code, errors = running.wait()
    assert code == 1
    assert not list(rest.iterdir())
    return errors


def test_the_ports_are_those_of_the_collector_in_its_order() -> None:
    assert [port.variable for port in COLLECTOR_PORTS] == [f"OTELCOL_{name}_PORT" for name in PORTS]


# While it runs


@pytest.mark.slow
def test_what_a_service_sends_shows_in_prometheus_and_in_a_recording_rule(tmp_path: Path) -> None:
    with stack(tmp_path) as running, service(running.endpoint) as process:
        process.generate(WORKED)
        process.export()
        database = running.database
        accepted = 'specdecode_draft_tokens_total{specdecode_draft_outcome="accepted"}'
        assert eventually(lambda: database.total(accepted)) == 18
        recorded = 'node:specdecode_draft_tokens:increase5m{specdecode_draft_outcome="accepted"}'
        assert eventually(lambda: database.total(recorded), 120) == 18


def test_it_says_where_to_send_to_and_what_comes_next(tmp_path: Path) -> None:
    with stack(tmp_path) as running:
        said = "".join(running.said)
    endpoint = running.endpoint.replace("127.0.0.1", "localhost")
    assert f"OTEL_EXPORTER_OTLP_ENDPOINT={endpoint} make demo-load" in said
    assert running.database.url in said
    assert "OTELCOL_TRACES_URL names a store" in said


def test_nothing_listens_beyond_loopback_whatever_the_environment_says(tmp_path: Path) -> None:
    with stack(tmp_path, OTELCOL_LISTEN="0.0.0.0") as running:
        connections = [each for program in running.programs().values() for each in program.net_connections("inet")]
    listening = {each.laddr.port: each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN}
    assert set(map(str, listening)) == set(running.ports.values())
    assert set(listening.values()) == {"127.0.0.1"}


def test_spans_and_log_records_go_to_stores_that_are_named(tmp_path: Path) -> None:
    with (
        otlp_receiver() as (store, received),
        stack(tmp_path, OTELCOL_TRACES_URL=store) as running,
        service(running.endpoint) as process,
    ):
        process.generate(WORKED)
        process.export()
        assert received.wait_for(lambda got: got.spans())
    assert "/v1/logs" not in received.requests


# How it ends


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130), (signal.SIGHUP, 0)])
def test_a_signal_ends_it_and_leaves_nothing(number: signal.Signals, code: int, tmp_path: Path) -> None:
    with stack(tmp_path) as running:
        programs = running.programs()
        os.killpg(running.process.pid, number)
        assert running.wait() == (code, "")
    assert len(programs) == 2
    assert ended(programs)
    assert not list(tmp_path.iterdir())


def test_under_nohup_the_end_of_the_terminal_does_not_end_it(tmp_path: Path) -> None:
    with stack(tmp_path, prefix=("nohup",)) as running:
        os.killpg(running.process.pid, signal.SIGHUP)
        running.process.send_signal(signal.SIGINT)  # the code is that of the first signal that counts
        assert running.wait()[0] == 130


def test_it_ends_cleanly_though_nobody_reads_what_it_says(tmp_path: Path) -> None:
    with stack(tmp_path) as running:
        programs = running.programs()
        assert running.process.stdout
        running.process.stdout.close()
        running.process.stdout = None
        running.process.send_signal(signal.SIGTERM)
        assert running.wait() == (0, "")
    assert ended(programs)
    assert not list(tmp_path.iterdir())


def test_a_second_ctrl_c_kills_what_is_slow_to_end(tmp_path: Path) -> None:
    with stack(tmp_path) as running:
        for program in running.programs().values():
            program.suspend()
        running.process.send_signal(signal.SIGINT)
        assert running.process.stdout
        running.said += iter(running.process.stdout.readline, "Waiting for the collector to end ... Ctrl-C kills it.\n")
        running.process.send_signal(signal.SIGINT)
        assert running.wait() == (130, "")
    assert not list(tmp_path.iterdir())


def test_a_signal_while_it_starts_ends_it_too(tmp_path: Path) -> None:
    with begun(tmp_path) as running:
        assert eventually(running.programs)
        running.process.send_signal(signal.SIGTERM)
        assert running.wait() == (0, "")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("victim", "name"), [("PROMETHEUS", "Prometheus"), ("COLLECTOR", "the collector")])
def test_if_a_program_is_killed_the_other_is_ended_and_it_says_which(victim: str, name: str, tmp_path: Path) -> None:
    with stack(tmp_path) as running:
        programs = running.programs()
        programs[Path(variables(tmp_path)[f"OTEL_SPECDECODE_{victim}"]).name].kill()
        code, errors = running.wait()
    assert code == 1
    assert errors.startswith(f"{name} ended by itself, with -9; it said:\n")
    assert ended(programs)
    assert not list(tmp_path.iterdir())


# What keeps it from starting


def test_a_port_that_is_taken_is_named_with_the_variable_that_changes_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert refused(tmp_path, PROMETHEUS_PORT=str(port)) == (
            f"Port {port}, for Prometheus, is taken: end what has it, or set PROMETHEUS_PORT to another.\n"
        )


def test_a_port_that_is_wanted_twice_is_named_with_both_variables(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    errors = refused(tmp_path, OTELCOL_GRPC_PORT=str(port), OTELCOL_HTTP_PORT=str(port))
    assert f"Port {port}, for OTLP over gRPC, is wanted twice" in errors
    assert "set OTELCOL_HTTP_PORT to another" in errors


@pytest.mark.parametrize("text", ["70000", "0", "http", "-1", "\N{FULLWIDTH DIGIT FOUR}317", "9" * 5000])
def test_what_is_no_port_is_refused(text: str, tmp_path: Path) -> None:
    assert refused(tmp_path, OTELCOL_HTTP_PORT=text) == f"OTELCOL_HTTP_PORT is not a port: {text[:20]}\n"


def test_a_program_that_is_missing_is_named_with_how_to_get_it(tmp_path: Path) -> None:
    nowhere = {"PATH": "", "XDG_CACHE_HOME": str(tmp_path)}
    errors = refused(tmp_path, OTEL_SPECDECODE_COLLECTOR="", OTEL_SPECDECODE_PROMETHEUS="", **nowhere)
    assert "python scripts/build_collector.py ~/.cache/otel-specdecode" in errors
    assert "brew install prometheus" in errors
    assert "apt-get install prometheus" in errors


def test_a_program_that_does_not_take_its_configuration_is_shown_with_its_last_words(tmp_path: Path) -> None:
    errors = refused(tmp_path, OTELCOL_QUEUE_BYTES="much")
    assert errors.startswith("the collector ended; it said:\n")
    assert "queue_size" in errors
