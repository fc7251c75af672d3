"""llama-cpp-python's own web server, started as a user does without a line of code."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.servers import CALLER, PROMPT_ONLY, SOON, Server, answer
from tests.e2e.servers import running as running_command

__all__ = ["CALLER", "PROMPT_ONLY", "Server", "answer", "running"]


@contextmanager
def running(model: Path, folder: Path, *options: str, variables: Mapping[str, str] = SOON) -> Iterator[Server]:
    """Run a server of a model under `opentelemetry-instrument` for the length of a block.

    Args:
        model: Its GGUF file.
        folder: Where the server's output goes.
        options: Further options of the server.
        variables: Environment variables beside those that name the receiver.

    Raises:
        RuntimeError: It did not start; the message ends with the last of its log.
    """
    with running_command(lambda port: [*_command(model, port), *options], folder, variables) as server:
        yield server


def _command(model: Path, port: int) -> list[str]:
    options = {"host": "127.0.0.1", "port": port, "model": model, "n_ctx": 512, "verbose": "false"}
    threads = {"n_threads": 1, "n_threads_batch": 1}
    pairs = [part for name, value in (options | threads).items() for part in (f"--{name}", str(value))]
    return [sys.executable, "-m", "llama_cpp.server", *pairs]
