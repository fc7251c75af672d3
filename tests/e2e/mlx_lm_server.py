"""MLX-LM's own web server, started as a user does without a line of code, and what its tests read of it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from otel_specdecode.testing.checker import check
from otel_specdecode.tiny_pair import model_path
from tests.e2e.servers import PROMPT_ONLY, SOON, Server
from tests.e2e.servers import running as running_command
from tests.otlp_receiver import Received, ReceivedSpan

SCRIPT = (str(Path(sys.executable).parent / "mlx_lm.server"),)
SUBCOMMAND = (sys.executable, "-m", "mlx_lm", "server")
MODULE = (sys.executable, "-m", "mlx_lm.server")

DRAFT = ("--draft-model", str(model_path("draft")))

TEXT, CHAT = "/v1/completions", "/v1/chat/completions"
ASKED: dict[str, dict[str, Any]] = {
    TEXT: {"prompt": f"Tell me a {PROMPT_ONLY} story"},
    CHAT: {"messages": [{"role": "user", "content": f"Tell me a {PROMPT_ONLY} story."}]},
}
WITHOUT_END = {"logit_bias": {"0": -100, "2": -100}, "max_tokens": 1200}
"""Forbids the tokens that end a generation, so that it is still running when a test does something to it."""

WITH_USAGE = {"stream_options": {"include_usage": True}}

COMPLAINTS = ("Failed to detach", "is not affected", "is not watched")
"""What the log holds where this library, or the SDK, found something wrong."""


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
    with running_command(on, folder, {**own, **variables}, instrumented) as server:
        yield server


def stops_quietly(server: Server, failed: int = 0) -> bool:
    """Stop a server as service managers do, and look at what it wrote in all its life.

    Args:
        server: That has run.
        failed: Requests whose handler raised, beside those whose client went away.
    """
    code, log = server.stop(signal.SIGTERM), server.log.read_text()
    gone = log.count("BrokenPipeError: ") + log.count("ConnectionResetError: ")
    return (
        code == -signal.SIGTERM
        and log.count("Traceback") == gone + failed
        and not any(words in log for words in COMPLAINTS)
    )


def finish_reason(span: ReceivedSpan) -> str:
    """Why a generation ended."""
    (reason,) = span.attributes["gen_ai.response.finish_reasons"]
    return str(reason)


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


def total(received: Received, metric: str) -> float:
    """A metric's newest number over all its series."""
    return sum(value for _, value in received.latest(metric))


def breaks_the_contract(received: Received) -> list[str]:
    """What of all that arrived is not as the registry has it."""
    return [str(finding) for finding in check(otlp=received.as_json()) if finding.severity == "violation"]
