"""Runs an example as a user does: a process of its own, the models of the package, a real OTLP server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.otlp_receiver import Received, ReceivedSpan, otlp_receiver

EXAMPLES = Path(__file__).parents[2] / "examples"
END_S = 120.0

WITHOUT_EXIT_HANDLERS = """
import os, runpy, sys
status = 1
try:
    runpy.run_path(sys.argv.pop(1), run_name="__main__")
    status = 0
except SystemExit as end:
    status = end.code or 0
finally:
    sys.stdout.flush()
    os._exit(status)
"""
"""Runs a program without what Python does at its exit, where the SDK would export what is left."""


def run(name: str, *, command: Sequence[str] = (sys.executable,)) -> tuple[str, Received]:
    """Run an example to its end; return what it prints and what it exports."""
    with otlp_receiver() as (url, received):
        done = subprocess.run(
            [*command, str(EXAMPLES / name)],
            env=environment(url),
            capture_output=True,
            text=True,
            timeout=END_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert not complaints(done.stderr), done.stderr
    return done.stdout, received


@contextmanager
def started(
    name: str, *arguments: str, command: Sequence[str] = (sys.executable,), **variables: str
) -> Iterator[tuple[subprocess.Popen[str], Received]]:
    """Start an example and give its process and what it exports; what still runs at the end of the block is ended."""
    with (
        otlp_receiver() as (url, received),
        subprocess.Popen(
            [*command, str(EXAMPLES / name), *arguments],
            env={**environment(url), **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        try:
            yield process, received
        finally:
            process.terminate()
            try:
                process.communicate(timeout=END_S)
            except subprocess.TimeoutExpired:
                process.kill()


def ended(process: subprocess.Popen[str], number: signal.Signals | None = None) -> tuple[int, str, str]:
    """Wait for a process, after a signal if one is given; return exit code, stdout and stderr."""
    if number is not None:
        process.send_signal(number)
    stdout, stderr = process.communicate(timeout=END_S)
    return process.returncode, stdout, stderr


def environment(url: str) -> dict[str, str]:
    """The variables of a process that exports to a URL, with this Python's commands first on its path."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), clean.get("PATH", "")])
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    exporter = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
    return {**clean, **one_thread, **exporter, "PATH": path}


def complaints(stderr: str) -> list[str]:
    """The lines of an output that tell of an error, or of telemetry that failed."""
    words = ("Traceback", "Error: ", "is not affected", "is not watched", "Failed to detach", "was not exported")
    return [line for line in stderr.splitlines() if any(word in line for word in words)]


def generations(received: Received) -> list[ReceivedSpan]:
    """The generations' spans, by their start."""
    spans = [span for span in received.spans() if span.scope == "otel_specdecode" and span.kind == "INTERNAL"]
    return sorted(spans, key=lambda span: span.start)


def each(received: Received, attribute: str) -> list[object]:
    """An attribute of each generation, by their start."""
    return [span.attributes.get(attribute) for span in generations(received)]


def finish_reasons(received: Received) -> list[str]:
    """How each generation ended, by their start."""
    return [reason for span in generations(received) for reason in span.attributes["gen_ai.response.finish_reasons"]]


def requests_counted(received: Received) -> float:
    """How many requests the metrics know of."""
    return sum(value for _, value in received.latest("specdecode.request.started"))
