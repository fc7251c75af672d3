"""MLX-LM's own web server, started as a user does without a line of code, and what its tests read of it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from otel_specdecode.tiny_pair import model_path
from tests.e2e import servers
from tests.e2e.arrived import complains
from tests.e2e.servers import ENDLESS, SOON, Server
from tests.otlp_receiver import ReceivedSpan

SCRIPT = (str(Path(sys.executable).parent / "mlx_lm.server"),)
SUBCOMMAND = (sys.executable, "-m", "mlx_lm", "server")
MODULE = (sys.executable, "-m", "mlx_lm.server")

DRAFT = ("--draft-model", str(model_path("draft")))

WITHOUT_END = {**ENDLESS, "max_tokens": 1200}
"""Is still running when a test does something to it."""

WITH_USAGE = {"stream_options": {"include_usage": True}}


def skip_unless_installed() -> None:
    """Skip a test, or a module of tests, where the server, or what instruments it, is absent."""
    servers.skip_unless_installed({"mlx_lm": "[mlx] extra"})


@contextmanager
def running(
    folder: Path,
    *options: str,
    command: Sequence[str] = SCRIPT,
    variables: Mapping[str, str] = SOON,
    model: Path | None = None,
    instrumented: bool = True,
) -> Iterator[Server]:
    """Run a server for the length of a block, under `opentelemetry-instrument`.

    Args:
        folder: Where the server's output goes.
        options: Further options of the server.
        command: One of the ways to start it.
        variables: Environment variables beside those that name the receiver.
        model: Folder of the target; that of the tiny pair if not given.
        instrumented: Otherwise the command runs as it is.

    Raises:
        RuntimeError: It did not start; the message ends with the last of its log.
    """
    models = folder / "models"
    models.mkdir(parents=True)

    def on(port: int) -> list[str]:
        return [*command, "--model", str(model or model_path("target")), "--port", str(port), *options]

    own = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "HF_HUB_CACHE": str(models), "HF_HUB_OFFLINE": "1"}
    with servers.running(on, folder, {**own, **variables}, instrumented) as server:
        yield server


def stops_quietly(server: Server, failed: int = 0) -> bool:
    """Stop a server as service managers do, and look at what it wrote in all its life.

    Args:
        server: That has run.
        failed: Requests whose handler raised, beside those whose client went away.
    """
    code, log = server.stop(signal.SIGTERM), server.log.read_text()
    gone = log.count("BrokenPipeError: ") + log.count("ConnectionResetError: ")
    return code == -signal.SIGTERM and log.count("Traceback") == gone + failed and not complains(log)


def usage_of(span: ReceivedSpan) -> tuple[int, int, int]:
    """Prompt tokens, those of them that were reused, and emitted tokens, as the span tells."""
    found = span.attributes
    cached = found.get("gen_ai.usage.cache_read.input_tokens", 0)
    return found["gen_ai.usage.input_tokens"], cached, found["gen_ai.usage.output_tokens"]


def usage_in(body: Mapping[str, Any]) -> tuple[int, int, int]:
    """The same as a response tells it."""
    usage = body["usage"]
    cached = usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
    return usage["prompt_tokens"], cached, usage["completion_tokens"]
