"""MLX-LM's own web server, started as a user does without a line of code."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from otel_specdecode.tiny_pair import model_path
from tests.e2e.servers import SOON, Server
from tests.e2e.servers import running as running_command

SCRIPT = (str(Path(sys.executable).parent / "mlx_lm.server"),)
SUBCOMMAND = (sys.executable, "-m", "mlx_lm", "server")
MODULE = (sys.executable, "-m", "mlx_lm.server")

DRAFT = ("--draft-model", str(model_path("draft")))


@contextmanager
def running(
    folder: Path, *options: str, command: Sequence[str] = SCRIPT, variables: Mapping[str, str] = SOON
) -> Iterator[Server]:
    """Run a server of the tiny pair's target under `opentelemetry-instrument` for the length of a block.

    Args:
        folder: Where the server's output goes.
        options: Further options of the server.
        command: One of the ways to start it.
        variables: Environment variables beside those that name the receiver.

    Raises:
        RuntimeError: It did not start; the message ends with the last of its log.
    """
    models = folder / "models"
    models.mkdir()

    def on(port: int) -> list[str]:
        return [*command, "--model", str(model_path("target")), "--port", str(port), *options]

    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with running_command(on, folder, {**one_thread, "HF_HUB_CACHE": str(models), **variables}) as server:
        yield server
