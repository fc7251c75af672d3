"""llama-cpp-python's own web server, started as a user does without a line of code, and what its tests read of it."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e import servers
from tests.e2e.arrived import complains
from tests.e2e.servers import ENDLESS, SOON, Server
from tests.otlp_receiver import Received, ReceivedSpan

WITHOUT_END = {**ENDLESS, "max_tokens": 400}
"""Is still running when a test does something to it."""

LOOKUP = ("--draft_model", "prompt-lookup-decoding")
QUEUEING = ("--interrupt_requests", "false")
"""A new request waits for the one that streams."""

OF_THE_MOMENT = ("openai-processing-ms", "x-request-id")
"""Headers of its answers that differ from one to the next."""

_SETTINGS = {"n_ctx": 512, "verbose": False, "n_threads": 1, "n_threads_batch": 1}

_RAISED = re.compile(r"[\w.]*(Error|Exception|Warning)\b")
"""The last line of a traceback."""
_SERVERS_OWN = "Exception: "
"""What the server writes before one."""

_OF_THE_SERVER = ("fastapi", "pydantic_settings", "sse_starlette", "starlette_context", "uvicorn")
_PACKAGES = {
    "llama_cpp": "[llama-cpp] extra",
    "gguf": "[demo] extra",
    **{name: f"{name} package" for name in _OF_THE_SERVER},
    "opentelemetry.instrumentation.fastapi": "FastAPI instrumentation",
}


def skip_unless_installed() -> None:
    """Skip a test, or a module of tests, where the server, or what instruments it, is absent."""
    servers.skip_unless_installed(_PACKAGES)


def target(folder: Path) -> Path:
    """Write the tiny pair's target as a GGUF file."""
    from otel_specdecode.tiny_pair import model_path
    from otel_specdecode.tiny_pair.gguf import convert

    return convert(model_path("target"), folder / "target.gguf", "f32")


@contextmanager
def running(
    model: Path, folder: Path, *options: str, variables: Mapping[str, str] = SOON, instrumented: bool = True
) -> Iterator[Server]:
    """Run a server of a model under `opentelemetry-instrument` for the length of a block.

    Args:
        model: Its GGUF file.
        folder: Where the server's output goes.
        options: Further options of the server.
        variables: Environment variables beside those that name the receiver.
        instrumented: Otherwise the command runs as it is.

    Raises:
        RuntimeError: It did not start; the message ends with the last of its log.
    """

    def command(port: int) -> list[str]:
        settings = {"host": "127.0.0.1", "port": port, "model": model, **_SETTINGS}
        return [*_SERVER, *(part for name, value in settings.items() for part in (f"--{name}", str(value))), *options]

    with _running(command, folder, variables, instrumented) as server:
        yield server


@contextmanager
def running_several(
    models: Sequence[Mapping[str, Any]], folder: Path, variables: Mapping[str, str] = SOON
) -> Iterator[Server]:
    """Run a server of several models, of which it loads the one that is asked for.

    Args:
        models: The server's settings of each.
        folder: Where the server's output goes, and its configuration file.
        variables: Environment variables beside those that name the receiver.

    Raises:
        RuntimeError: It did not start; the message ends with the last of its log.
    """

    def command(port: int) -> list[str]:
        file = folder / "config.json"
        settings = {"host": "127.0.0.1", "port": port, "models": [{**_SETTINGS, **each} for each in models]}
        file.write_text(json.dumps(settings))
        return [*_SERVER, "--config_file", str(file)]

    with _running(command, folder, variables, True) as server:
        yield server


_SERVER = (sys.executable, "-m", "llama_cpp.server")


@contextmanager
def _running(
    command: Callable[[int], Sequence[str]], folder: Path, variables: Mapping[str, str], instrumented: bool
) -> Iterator[Server]:
    folder.mkdir(parents=True, exist_ok=True)
    with servers.running(command, folder, variables, instrumented) as server:
        yield server


def stops_quietly(server: Server, failures: Sequence[str] = ()) -> bool:
    """Stop a server as service managers do, and look at what it wrote in all its life.

    Args:
        server: That has run.
        failures: Exceptions whose tracebacks it may have written, beside that of a prompt that does not fit, which
            older releases of the server print.
    """
    code, log = server.stop(signal.SIGTERM), server.log.read_text()
    known = ("ValueError: Requested tokens", *failures)
    raised = [line for line in log.splitlines() if _RAISED.match(line) and not line.startswith(_SERVERS_OWN)]
    return (
        code in (0, -signal.SIGTERM)
        and "Application shutdown complete" in log
        and [line for line in raised if not line.startswith(known)] == []
        and (bool(raised) or "Traceback" not in log)
        and not complains(log)
    )


def seconds_waited(span: ReceivedSpan) -> float:
    """How long a generation's request had waited for its turn."""
    return float(span.attributes["specdecode.queue.duration"])


def started(received: Received) -> dict[str, float]:
    """The requests started so far, by operation."""
    points = received.latest("specdecode.request.started")
    return {labels["gen_ai.operation.name"]: value for labels, value in points}
